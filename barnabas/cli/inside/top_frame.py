"""One frame of `barnabas top`, computed from two samples of the pages. Pure functions.

Rates and mean times cover the time between the samples, by each process's own clock (`up_ms`). A process that restarted
between them has none yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.common.pages.live_constants import STATIONS

MS_PER_S: Final = 1000
ELSEWHERE: Final = "coordinators"
FETCHES: Final = "Fetch"

Lives = Mapping[int, Mapping[str, Any]]


class Sample(NamedTuple):
    """The pages of a cluster at one moment."""

    brokers: Lives
    unreachable: Mapping[int, str]  # broker id -> why it does not answer
    controllers: Sequence[Mapping[str, Any]] = ()  # the active one first


class BrokerRow(NamedTuple):
    """A broker's threads and queues. `problem`: why it does not answer; the numbers are then meaningless."""

    broker: int
    state: str
    problem: str = ""
    connections: int = 0
    network_idle: float = 0.0  # shares, 0 to 1
    queued: int = 0
    capacity: int = 0
    handlers: int = 0
    busy: int = 0
    handlers_idle: float = 0.0
    answered: int = 0  # in response queues
    parked: int = 0
    per_second: float | None = None


class RequestRow(NamedTuple):
    """Requests of one API that finished between the samples; times are means in milliseconds."""

    api: str
    per_second: float
    times_ms: dict[str, float]  # by station
    total_ms: float


class WaitRow(NamedTuple):
    """A purgatory with waiting operations, and what the oldest waits for."""

    broker: int
    purgatory: str
    operations: int
    oldest_ms: float
    sentence: str


class PartitionRow(NamedTuple):
    """A partition, as reported by its leader."""

    name: str
    leader: int
    per_second: float | None  # records
    log_end_offset: int
    unreplicated: int  # records above the high watermark
    isr: list[int]
    replica_count: int


class ControllerRow(NamedTuple):
    """The controller: its event queue, and the states of its brokers."""

    controller: int
    events: int  # in its queue
    idle: float
    active: int
    fenced: int


class QuorumRow(NamedTuple):
    """A controller of several, as it describes itself; `behind` and `fetched_ms` are the leader's, -1 if not known."""

    controller: int
    role: str
    epoch: int
    voted: int | None
    log_end_offset: int
    behind: int
    fetched_ms: int
    reason: str  # why it has this role


class Frame(NamedTuple):
    """The whole content of the screen."""

    at_ms: int
    cluster_id: str
    brokers: list[BrokerRow]
    controller: ControllerRow | None
    requests: list[RequestRow]  # by total time, longest first
    waits: list[WaitRow]  # oldest first, fetches last
    partitions: list[PartitionRow]  # those with missing replicas first, then the busiest
    clock_offset_ms: int = 0  # by how much the cluster's time was moved ahead on purpose
    quorum: Sequence[QuorumRow] = ()  # by id; empty with one controller

    def as_json(self) -> dict[str, Any]:
        """The frame as JSON values."""
        return {
            "at_ms": self.at_ms,
            "clock_offset_ms": self.clock_offset_ms,
            "cluster_id": self.cluster_id,
            "brokers": [row._asdict() for row in self.brokers],
            "controller": None if self.controller is None else self.controller._asdict(),
            "quorum": [row._asdict() for row in self.quorum],
            "requests": [row._asdict() for row in self.requests],
            "waits": [row._asdict() for row in self.waits],
            "partitions": [row._asdict() for row in self.partitions],
        }


def make_frame(before: Sample, now: Sample) -> Frame:
    """The state `now`, with the rates since `before`."""
    elapsed_s = {broker: _elapsed_s(before.brokers.get(broker), live) for broker, live in now.brokers.items()}
    first: Mapping[str, Any] = next(iter(now.brokers.values()), {"at_ms": 0, "node": {"cluster_id": ""}})
    rows = [_broker(id_, live, before.brokers.get(id_), elapsed_s[id_]) for id_, live in now.brokers.items()]
    rows += [BrokerRow(broker, "silent", problem) for broker, problem in now.unreachable.items()]
    return Frame(
        first["at_ms"],
        first["node"]["cluster_id"],
        sorted(rows),
        _controller(now.controllers[0]) if now.controllers else None,
        _requests(before.brokers, now.brokers, elapsed_s),
        # Why fetches last: waiting is normal for them.
        sorted(_waits(now.brokers), key=lambda row: (row.purgatory == FETCHES, -row.oldest_ms)),
        _partitions(before.brokers, now.brokers, elapsed_s),
        first.get("clock_offset_ms", 0),
        _quorum(now.controllers),
    )


def _elapsed_s(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> float | None:
    """Seconds between two samples of a process; None if it has restarted or has one sample only."""
    if before is None:
        return None
    elapsed_ms = now["node"]["up_ms"] - before["node"]["up_ms"]
    return elapsed_ms / MS_PER_S if elapsed_ms > 0 else None


def _broker(
    broker: int, live: Mapping[str, Any], before: Mapping[str, Any] | None, elapsed_s: float | None
) -> BrokerRow:
    processors, handlers, queue = live["processors"], live["handlers"], live["request_queue"]
    per_second = None
    if before is not None and elapsed_s is not None:
        finished = sum(live["requests"]["finished"].values()) - sum(before["requests"]["finished"].values())
        per_second = finished / elapsed_s
    return BrokerRow(
        broker,
        live["node"]["state"],
        "",
        sum(processor["connections"] for processor in processors),
        sum(processor["idle"] for processor in processors) / len(processors) if processors else 1.0,
        queue["total"],
        queue["capacity"],
        handlers["total"],
        sum(handler["state"] == "busy" for handler in handlers["items"]),
        handlers["idle"],
        sum(processor["response_queue"]["total"] for processor in processors),
        sum(purgatory["delayed"] for purgatory in live["purgatories"]) + live["elsewhere"]["total"],
        per_second,
    )


def _controller(live: Mapping[str, Any]) -> ControllerRow:
    states = [broker["state"] for broker in live["brokers"]]
    events = live["events"]
    return ControllerRow(
        live["node"]["id"], events["total"], events["idle"], states.count("active"), states.count("fenced")
    )


def _quorum(controllers: Sequence[Mapping[str, Any]]) -> list[QuorumRow]:
    """A row for each controller that answers; none if there is one controller."""
    views = {live["node"]["id"]: live["quorum"] for live in controllers if "quorum" in live}
    members = {each["id"]: each for view in views.values() if view["role"] == "leader" for each in view["members"]}
    if max((len(view["members"]) for view in views.values()), default=0) < 2:
        return []
    rows = []
    for id_, view in sorted(views.items()):
        member, changes = members.get(id_, {}), view["changes"]
        rows.append(
            QuorumRow(
                id_,
                view["role"],
                view["epoch"],
                view["voted"],
                view["end_offset"],
                member.get("behind", -1),
                member.get("fetched_ms", -1),
                changes[0]["reason"] if changes else "",
            )
        )
    return rows


def _requests(before: Lives, now: Lives, elapsed_s: Mapping[int, float | None]) -> list[RequestRow]:
    """The requests that finished between the samples, over all brokers that are in both."""
    counts: dict[str, int] = defaultdict(int)
    rates: dict[str, float] = defaultdict(float)
    spent: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(STATIONS, 0.0))
    for broker, live in now.items():
        seconds = elapsed_s[broker]
        if seconds is None:
            continue
        new, old = live["requests"], before[broker]["requests"]
        for api, finished in new["finished"].items():
            count = finished - old["finished"].get(api, 0)
            if count > 0:
                counts[api] += count
                rates[api] += count / seconds
                earlier = old["spent_ms"].get(api, {})
                for station in STATIONS:
                    spent[api][station] += max(0.0, new["spent_ms"][api][station] - earlier.get(station, 0.0))
    rows = []
    for api, count in counts.items():
        means = {station: ms / count for station, ms in spent[api].items()}
        rows.append(RequestRow(api, rates[api], means, sum(means.values())))
    return sorted(rows, key=lambda row: (-row.per_second * (row.total_ms - row.times_ms["remote"]), row.api))


def _waits(now: Lives) -> Iterator[WaitRow]:
    for broker, live in now.items():
        elsewhere = live["elsewhere"]
        lists = [(purgatory["name"], purgatory["delayed"], purgatory["items"]) for purgatory in live["purgatories"]]
        for name, count, items in [*lists, (ELSEWHERE, elsewhere["total"], elsewhere["items"])]:
            if items:
                oldest = max(items, key=lambda waiting: waiting["age_ms"])
                # Why max(): the count and the items are read at two moments.
                yield WaitRow(broker, name, max(count, len(items)), oldest["age_ms"], oldest["sentence"])


def _partitions(before: Lives, now: Lives, elapsed_s: Mapping[int, float | None]) -> list[PartitionRow]:
    rows = []
    for broker, live in now.items():
        seconds, earlier = elapsed_s[broker], _ends(before.get(broker))
        for view in live["partitions"]["items"]:
            if view["role"] != "leader":
                continue
            end = view["log_end_offset"]
            old = earlier.get((view["topic"], view["partition"]))
            rows.append(
                PartitionRow(
                    f"{view['topic']}-{view['partition']}",
                    broker,
                    None if seconds is None or old is None else max(0, end - old) / seconds,
                    end,
                    max(0, end - view["high_watermark"]),
                    view["isr"],
                    len(view["replica_ids"]),
                )
            )
    return sorted(rows, key=_attention)


def _attention(row: PartitionRow) -> tuple[bool, float, int, bool, str]:
    """Sort key: partitions with missing replicas first, then the busiest; internal topics last among idle ones."""
    is_whole = len(row.isr) >= row.replica_count
    return is_whole, -(row.per_second or 0.0), -row.unreplicated, row.name.startswith("__"), row.name


def _ends(live: Mapping[str, Any] | None) -> dict[tuple[str, int], int]:
    if live is None:
        return {}
    return {(view["topic"], view["partition"]): view["log_end_offset"] for view in live["partitions"]["items"]}
