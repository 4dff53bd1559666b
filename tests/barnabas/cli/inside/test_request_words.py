"""The lines that `barnabas explain request` prints."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.inside.request_words import Found, chosen, request_words, requests_of
from tests.barnabas.cli.inside.lives import broker, handler, listed, processor, purgatory, request, waiting

TIMES = {
    "request_queue": 150.0,
    "local": 252.4,
    "remote": 1455.0,
    "throttle": 0.0,
    "response_queue": 50.26,
    "send": 0.0841,
}


def words(waits: Any = None, **changes: Any) -> list[str]:
    return request_words(Found("broker 2", request(**changes), waits))


def test_a_finished_request() -> None:
    assert words(times_ms=TIMES) == [
        "Produce v12, correlation id 7, of client billing, 182 bytes, on broker 2 (connection "
        "127.0.0.1:9092-127.0.0.1:50000-0-1): done 4.0 s ago, in 1.9 s.",
        "        150 ms  waited in the request queue for a handler",
        "        252 ms  ran in a handler",
        "         1.5 s  was parked until its records were on every in-sync replica, or its time was up",
        "       50.3 ms  its response waited in the response queue for a network thread",
        "     0.0841 ms  its response was sent",
        "  Longest: parked, 76 % of the time.",
    ]


@pytest.mark.parametrize(
    ("place", "times", "last"),
    [
        ("request_queue", {"request_queue": 3.0}, "waits in the request queue for a handler, so far"),
        ("handler", {"request_queue": 3.0, "local": 5.0}, "runs in a handler, so far"),
        ("response_queue", {"local": 5.0, "response_queue": 0.0}, "for a network thread, so far"),
        ("sending", {"local": 5.0, "send": 2.0}, "its response is being sent, so far"),
    ],
)
def test_a_request_in_progress(place: str, times: dict[str, float], last: str) -> None:
    text = words(place=place, times_ms=times)
    assert text[0].endswith(f"in progress for {sum(times.values()):.3g} ms.")
    assert text[-1].endswith(last)


def test_a_parked_request_names_what_it_waits_for() -> None:
    waits = waiting("produce of client billing waits for offset 9 of orders-0 on replica 3")
    text = words(waits, place="parked", times_ms={"local": 1.0, "remote": 4100.0})
    assert text[-2:] == [
        "         4.1 s  is parked, so far",
        "  Produce of client billing waits for offset 9 of orders-0 on replica 3.",
    ]


def test_followers_and_requests_that_cannot_be_decoded() -> None:
    assert words(api="Fetch", follower_id=3)[0].startswith("Fetch v12, correlation id 7, of follower 3, ")
    assert words(api=None)[0].startswith("A request that cannot be decoded, correlation id 7")
    assert "was parked until its response was known" in words(api="Heartbeat", times_ms={"remote": 3.0})[1]


def test_all_places_are_searched_and_each_request_is_listed_once() -> None:
    in_purgatory = request(correlation_id=1, place="parked")
    live = broker(
        purgatories=[purgatory("Produce", waiting("waits", request=in_purgatory), waiting("append of a coordinator"))],
        elsewhere=listed(waiting("waits", request=request(correlation_id=2, place="parked"))),
        request_queue={"capacity": 8, "total": 1, "items": [request(correlation_id=3, place="request_queue")]},
        handlers={"items": [handler(0), handler(1, request(correlation_id=4, place="handler"))]},
        processors=[
            processor(
                response_queue=listed(request(correlation_id=5, place="response_queue")),
                sending=listed(request(correlation_id=6, place="sending")),
            )
        ],
        requests={
            "slow": [request(correlation_id=7)],
            "recent": [request(correlation_id=7), request(correlation_id=8)],
        },
    )
    found = list(requests_of("broker 1", live))
    assert [each.request["correlation_id"] for each in found] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [each.waiting is not None for each in found] == [True, True, *[False] * 6]


def test_requests_are_chosen_by_all_criteria() -> None:
    first = Found("broker 0", request(correlation_id=1, client_id="a", total_ms=9.0, own_ms=9.0))
    second = Found("broker 1", request(correlation_id=1, client_id="b", total_ms=20.0, own_ms=1.0))
    now = Found("broker 1", request(correlation_id=2, client_id="b", place="handler", total_ms=3.0, own_ms=3.0))
    found = [first, second, now]
    assert chosen(found, 1) == [second, first]
    assert chosen(found, 1, "a") == [first]
    assert chosen(found, client="b") == [now, second], "in progress first"
    assert chosen(found, api="Produce") == [now, second, first]
    assert chosen(found, slowest=True) == [first, second], "by their time without waits on purpose"
    assert chosen(found, 3) == chosen(found, api="Fetch") == []
