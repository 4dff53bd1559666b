"""Frames computed from two samples of a cluster's pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.cli.inside.top_frame import BrokerRow, ControllerRow, Frame, QuorumRow, Sample, make_frame
from barnabas.common.pages.live_constants import STATIONS
from tests.barnabas.cli.inside.lives import broker, handler, listed, partition, processor, purgatory, request, waiting


def spent(**times: float) -> dict[str, float]:
    return {station: times.get(station, 0.0) for station in STATIONS}


def done(counts: dict[str, int], times: dict[str, dict[str, float]]) -> dict[str, Any]:
    return {"finished": counts, "spent_ms": times, "slow": [], "recent": [], "errors": []}


def at(up_ms: int, number: int = 1, **changes: Any) -> dict[str, Any]:
    live = broker(number, **changes)
    live["node"]["up_ms"] = up_ms
    return live


def frame(before: dict[str, Any], now: dict[str, Any]) -> Frame:
    return make_frame(Sample({1: before}, {}), Sample({1: now}, {}))


def test_rates_and_mean_times_cover_the_time_between_the_samples() -> None:
    before = at(1000, requests=done({"Produce": 10}, {"Produce": spent(local=100, remote=7)}))
    times = {"Produce": spent(local=160, remote=7, send=10), "Metadata": spent(request_queue=4)}
    now = at(3000, requests=done({"Produce": 30, "Metadata": 2}, times))
    made = frame(before, now)
    assert made.brokers[0].per_second == 11
    produce, metadata = made.requests
    assert (produce.api, produce.per_second, produce.total_ms) == ("Produce", 10, 3.5)
    assert produce.times_ms == spent(local=3, send=0.5)
    assert (metadata.api, metadata.per_second, metadata.times_ms) == ("Metadata", 1, spent(request_queue=2))


def test_apis_without_new_requests_are_not_shown() -> None:
    same = done({"Produce": 10}, {"Produce": spent(local=100)})
    made = frame(at(1000, requests=same), at(3000, requests=same))
    assert (made.requests, made.brokers[0].per_second) == ([], 0)


@pytest.mark.parametrize("before", [None, 9000])
def test_a_restarted_process_has_no_rates_yet(before: int | None) -> None:
    now = at(500, requests=done({"Produce": 5}, {"Produce": spent()}), partitions=listed(partition()))
    samples = {} if before is None else {1: at(before, requests=done({"Produce": 900}, {}))}
    made = make_frame(Sample(samples, {}), Sample({1: now}, {}))
    assert made.brokers[0].per_second is None
    assert made.requests == []
    assert made.partitions[0].per_second is None


def test_threads_and_queues() -> None:
    live = at(
        2000,
        processors=[
            processor(0, idle=0.5, response_queue=listed(request(), request())),
            processor(1, idle=1.0, connections=4),
        ],
        request_queue={"capacity": 8, "total": 5, "items": [], "blocked_processors": 1},
        handlers={"total": 2, "sleeping": 0, "idle": 0.25, "items": [handler(0, request()), handler(1)]},
        purgatories=[purgatory("Produce", waiting("")), purgatory("Fetch", waiting(""), waiting(""))],
        elsewhere=listed(waiting("")),
    )
    row = frame(at(1000), live).brokers[0]
    assert row == BrokerRow(1, "running", "", 7, 0.75, 5, 8, 2, 1, 0.25, 2, 4, 0.0)


def test_brokers_that_do_not_answer_are_listed_among_the_others() -> None:
    made = make_frame(Sample({}, {}), Sample({1: at(1)}, {0: "its page does not answer", 2: "it has none"}))
    assert [(row.broker, row.problem) for row in made.brokers] == [
        (0, "its page does not answer"),
        (1, ""),
        (2, "it has none"),
    ]
    nobody = make_frame(Sample({}, {}), Sample({}, {0: "gone"}))
    assert (nobody.cluster_id, len(nobody.brokers)) == ("", 1)


def test_the_oldest_of_each_purgatory_is_shown_and_fetches_last() -> None:
    lives = {
        1: at(1, purgatories=[purgatory("Produce", waiting("a", age_ms=5.0), waiting("b", age_ms=90.0))]),
        2: at(
            1,
            2,
            purgatories=[purgatory("Produce"), purgatory("Fetch", waiting("c", age_ms=500.0))],
            elsewhere=listed(waiting("d", age_ms=300.0)),
        ),
    }
    made = make_frame(Sample({}, {}), Sample(lives, {}))
    assert [(row.broker, row.purgatory, row.operations, row.sentence) for row in made.waits] == [
        (2, "coordinators", 1, "d"),
        (1, "Produce", 2, "b"),
        (2, "Fetch", 1, "c"),
    ]


def test_partitions_with_missing_replicas_come_first_then_the_busiest() -> None:
    def views(end: int) -> dict[str, Any]:
        return listed(
            partition("idle", 0, log_end_offset=5),
            partition("busy", 0, log_end_offset=end, high_watermark=end - 3),
            partition("followed", 0, role="follower"),
            partition("__consumer_offsets", 0, log_end_offset=5),
            partition("broken", 0, isr=[1]),
        )

    made = frame(at(1000, partitions=views(100)), at(3000, partitions=views(200)))
    assert [row.name for row in made.partitions] == ["broken-0", "busy-0", "idle-0", "__consumer_offsets-0"]
    busy = made.partitions[1]
    assert (busy.per_second, busy.log_end_offset, busy.unreplicated, busy.isr, busy.replica_count) == (
        50,
        200,
        3,
        [0, 1, 2],
        3,
    )


def test_the_controller() -> None:
    live = at(1, 100)
    live["node"]["role"] = "controller"
    told = {
        **live,
        "events": {"total": 4, "items": [], "idle": 0.5, "processed": 9, "deciding": None},
        "brokers": [{"state": "active"}, {"state": "fenced"}, {"state": "active"}],
    }
    made = make_frame(Sample({}, {}), Sample({1: at(1)}, {}, [told]))
    assert made.controller == ControllerRow(100, 4, 0.5, 2, 1)


def controller(id_: int, role: str, behind: int = 0, members: int = 2) -> dict[str, Any]:
    view = {
        "role": role,
        "epoch": 7,
        "voted": 100 if role == "leader" else None,
        "end_offset": 50,
        "members": [{"id": 100 + n, "behind": behind * n, "fetched_ms": 3 * n} for n in range(members)],
        "changes": [{"reason": f"{id_} is {role}"}, {"reason": "older"}],
    }
    live = {**at(1, 100), "events": {"total": 0, "items": [], "idle": 1.0, "processed": 9, "deciding": None}}
    return {**live, "node": {**live["node"], "id": id_, "role": "controller"}, "brokers": [], "quorum": view}


def test_the_quorum_has_a_row_for_each_controller() -> None:
    made = make_frame(Sample({}, {}), Sample({}, {}, [controller(100, "leader", 4), controller(101, "follower")]))
    assert made.quorum == [
        QuorumRow(100, "leader", 7, 100, 50, 0, 0, "100 is leader"),
        QuorumRow(101, "follower", 7, None, 50, 4, 3, "101 is follower"),
    ]
    assert made.as_json()["quorum"][1]["behind"] == 4


def test_without_a_leader_nobody_knows_how_far_they_are() -> None:
    made = make_frame(Sample({}, {}), Sample({}, {}, [controller(101, "candidate")]))
    assert [(row.role, row.behind, row.fetched_ms) for row in made.quorum] == [("candidate", -1, -1)]


def test_a_single_controller_is_no_quorum() -> None:
    assert make_frame(Sample({}, {}), Sample({}, {}, [controller(100, "leader", members=1)])).quorum == []


def test_a_frame_is_json() -> None:
    before = at(1000, requests=done({}, {}), partitions=listed(partition()))
    now = at(2000, requests=done({"Produce": 1}, {"Produce": spent(local=1)}), partitions=listed(partition()))
    told = json.loads(json.dumps(frame(before, now).as_json()))
    assert told["cluster_id"] == "h3zYrOmsQJqmHD2y0yjFEg"
    assert told["brokers"][0]["capacity"] == 500
    assert told["requests"][0]["times_ms"]["local"] == 1
    assert told["partitions"][0]["name"] == "orders-3"
    assert told["controller"] is None
