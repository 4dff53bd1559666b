"""Describes a request: where its time went and where it is now. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.common.pages.live_constants import STATIONS
from barnabas.common.pages.live_shape import RequestShape, Waiting
from barnabas.common.pages.phrases import count, duration

INDENT = "  "
DONE = "done"

#: A station's name; what happens to a request there; what happened.
STATION_WORDS = {
    "request_queue": (
        "the request queue",
        "waits in the request queue for a handler",
        "waited in the request queue for a handler",
    ),
    "local": ("a handler", "runs in a handler", "ran in a handler"),
    "remote": ("parked", "is parked", "was parked"),
    "throttle": ("a quota", "a quota delays it", "a quota delayed it"),
    "response_queue": (
        "the response queue",
        "its response waits in the response queue for a network thread",
        "its response waited in the response queue for a network thread",
    ),
    "send": ("sending", "its response is being sent", "its response was sent"),
}
#: What parked requests wait for. The wait may also end otherwise: a timeout, a new leader, a member that leaves.
PARKED_UNTIL = {
    "Produce": "until its records were on every in-sync replica, or its time was up",
    "Fetch": "until there was enough to fetch, or its time was up",
    "DeleteRecords": "until every live replica had deleted them, or its time was up",
    "CreateTopics": "until this broker knew the topics, or its time was up",
    "CreatePartitions": "until this broker knew the partitions, or its time was up",
    "DeleteTopics": "until this broker had removed the topics, or its time was up",
    "JoinGroup": "until the group's other members had joined, or the time to join was up",
    "SyncGroup": "until the group's leader had assigned the partitions, or a new rebalance began",
    "OffsetCommit": "until the commit was on every in-sync replica, or its time was up",
    "TxnOffsetCommit": "until the commit was on every in-sync replica, or its time was up",
}
_STATION_OF_PLACE = {
    "request_queue": "request_queue",
    "handler": "local",
    "parked": "remote",
    "response_queue": "response_queue",
    "sending": "send",
}


class Found(NamedTuple):
    """A request, the process that has it, and what it waits for if it is parked."""

    where: str
    request: RequestShape
    waiting: Waiting | None = None

    @property
    def is_done(self) -> bool:
        """Whether its response was sent."""
        return self.request["place"] == DONE


def requests_of(where: str, live: Mapping[str, Any]) -> Iterator[Found]:
    """Each request on a process's page once: those in progress, then the finished ones, slowest first."""
    seen: set[tuple[str, int, bool]] = set()
    for found in _all_of(where, live):
        request = found.request
        key = (request["connection"], request["correlation_id"], found.is_done)
        if key not in seen:
            seen.add(key)
            yield found


def _all_of(where: str, live: Mapping[str, Any]) -> Iterator[Found]:
    waiting: list[Waiting] = [item for purgatory in live.get("purgatories", ()) for item in purgatory["items"]]
    waiting += live["elsewhere"]["items"]
    for item in waiting:
        if item["request"] is not None:
            yield Found(where, item["request"], item)
    for request in live["request_queue"]["items"]:
        yield Found(where, request)
    for handler in live["handlers"]["items"]:
        if handler["request"] is not None:
            yield Found(where, handler["request"])
    for processor in live["processors"]:
        for request in (*processor["response_queue"]["items"], *processor["sending"]["items"]):
            yield Found(where, request)
    for request in (*live["requests"]["slow"], *live["requests"]["recent"]):
        yield Found(where, request)


def chosen(
    found: list[Found],
    correlation_id: int | None = None,
    client: str | None = None,
    api: str | None = None,
    *,
    slowest: bool = False,
) -> list[Found]:
    """The requests that match all given criteria: those in progress first, then the slowest."""
    matching = [
        each
        for each in found
        if correlation_id in (None, each.request["correlation_id"])
        and client in (None, each.request["client_id"])
        and api in (None, each.request["api"])
    ]
    if slowest:
        matching = [each for each in matching if each.is_done]
        return sorted(matching, key=lambda each: -each.request["own_ms"])
    return sorted(matching, key=lambda each: (each.is_done, -each.request["total_ms"]))


def request_words(found: Found) -> list[str]:
    """The lines about a request: a heading, one for each station, and what it waits for or what took longest."""
    request, times = found.request, found.request["times_ms"]
    lines = [_heading(found)]
    now = None if found.is_done else _STATION_OF_PLACE[request["place"]]
    for station in STATIONS:
        if station in times and (times[station] > 0 or station == now):
            _, present, past = STATION_WORDS[station]
            text = f"{present}, so far" if station == now else past
            if station == "remote" and found.is_done:
                text = f"{text} {PARKED_UNTIL.get(request['api'] or '', 'until its response was known')}"
            lines.append(f"{INDENT}{_ms(times[station]):>12}  {text}")
    if found.waiting is not None:
        lines.append(f"{INDENT}{_capital(found.waiting['sentence'])}.")
    elif found.is_done and request["total_ms"] > 0:
        longest = max(STATIONS, key=lambda station: times.get(station, 0.0))
        share = round(100 * times.get(longest, 0.0) / request["total_ms"])
        lines.append(f"{INDENT}Longest: {STATION_WORDS[longest][0]}, {share} % of the time.")
    return lines


def _heading(found: Found) -> str:
    request = found.request
    name = f"{request['api']} v{request['version']}" if request["api"] else "A request that cannot be decoded"
    follower = request["follower_id"]
    sender = f"client {request['client_id']}" if follower is None else f"follower {follower}"
    text = f"{name}, correlation id {request['correlation_id']}, of {sender}, {count(request['size_bytes'], 'byte')}, "
    text += f"on {found.where} (connection {request['connection']}): "
    if found.is_done:
        return f"{text}done {duration(request['age_ms'])} ago, in {_ms(request['total_ms'])}."
    return f"{text}in progress for {_ms(request['total_ms'])}."


def _ms(ms: float) -> str:
    """A time of a request; short ones have microseconds."""
    return duration(ms) if ms >= 1000 else f"{ms:.3g} ms" if ms < 100 else f"{ms:.0f} ms"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
