"""The reasons why requests wait, in exact sentences: a broker without threads, whose followers fetch step by step.

Tests `live/waiting.py` and `replication/delayed/reasons.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.live.look import Look
from barnabas.broker.live.requests import RequestViews
from barnabas.broker.live.waiting import in_purgatory, parked, purgatories, sentence
from barnabas.broker.purgatory import Deferred
from barnabas.broker.replication.delayed.reasons import fetch_reasons
from barnabas.broker.replication.reading import FetchItem, FetchParams
from barnabas.broker.requests.request_log import RequestLog
from barnabas.broker.storage.log.log_types import FetchIsolation
from barnabas.common.pages.live_shape import Waiting
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.k43_elect_leaders import ElectLeadersRequest
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state


@pytest.fixture
def rig() -> Iterator[BrokerRig]:
    made = BrokerRig(min_insync_replicas="1", replica_lag_time_max_ms="30000")
    yield made
    made.close()


@pytest.fixture
def views(rig: BrokerRig) -> RequestViews:
    return RequestViews(TABLE, RequestLog(RequestMetrics(rig.registry)))


def waiting_operations(rig: BrokerRig, views: RequestViews, name: str, **query: str) -> list[Waiting]:
    """Return the waiting operations of a purgatory."""
    p = rig.purgatories
    found = purgatories((p.produce, p.fetch, p.delete_records, p.topic), views, Look.of(query, rig.clock))
    (one,) = [purgatory for purgatory in found if purgatory["name"] == name]
    return one["items"]


def follower_fetch(rig: BrokerRig, offset: int, replica: int, **about: Any) -> Any:
    request = fetch(offset, item={"log_start_offset": 0}, **about)
    request.replica_state.replica_id = replica
    return rig.answer(request, 17)


def test_a_produce_waits_for_a_lagging_replica(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"t": [state(1, (1, 2, 3))]})
    rig.answer(produce(batch(b"a", b"b")), 9)
    follower_fetch(rig, 2, replica=2)
    follower_fetch(rig, 1, replica=3)
    rig.clock.advance_ms(4_000)
    rig.answer(produce(batch(b"c"), acks=-1, timeout_ms=30_000), 9, client_id="A")
    follower_fetch(rig, 3, replica=2)
    rig.clock.advance_ms(100)
    (waiting,) = waiting_operations(rig, views, "produce")
    assert waiting["sentence"] == (
        "produce of client A waits for offset 3 of t-0 on replica 3, whose fetcher is at 1 and last fetched 4.1 s ago"
    )
    assert waiting["reasons"] == [
        {
            "kind": "replica",
            "text": "for offset 3 of t-0 on replica 3, whose fetcher is at 1 and last fetched 4.1 s ago",
            "topic": "t",
            "partition": 0,
            "offset": 3,
            "replica": 3,
            "replica_offset": 1,
            "last_fetch_ms": 4100,
        }
    ]
    assert (waiting["operation"], waiting["client_id"], waiting["keys"]) == ("produce", "A", ["t-0"])
    assert (waiting["age_ms"], waiting["deadline_ms"]) == (100, 29_900)
    assert waiting["request"] is not None
    assert (waiting["request"]["api"], waiting["request"]["correlation_id"]) == ("Produce", 7)
    follower_fetch(rig, 3, replica=3)
    assert waiting_operations(rig, views, "produce") == []


def test_replicas_that_never_fetched_or_are_not_alive(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"t": [state(1, (1, 2, 3))]}, brokers=(1, 2))
    rig.answer(produce(batch(b"a"), acks=-1), 9, client_id="")
    (waiting,) = waiting_operations(rig, views, "produce")
    assert waiting["sentence"] == (
        "produce of a client without a name waits for offset 1 of t-0 on replica 2, which has not fetched since this "
        "broker became leader; and for offset 1 of t-0 on replica 3, which has not fetched since this broker became "
        "leader (broker 3 is not alive)"
    )
    assert [reason["last_fetch_ms"] for reason in waiting["reasons"]] == [-1, -1]


def test_a_produce_waits_for_a_shrinking_isr(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"t": [state(1, (1, 2))]})
    rig.answer(produce(batch(b"a"), acks=-1, timeout_ms=120_000), 9, client_id="A")
    follower_fetch(rig, 0, replica=2)
    rig.clock.advance_ms(31_000)
    rig.manager.maybe_shrink_isrs()
    (waiting,) = waiting_operations(rig, views, "produce")
    assert waiting["sentence"] == (
        "produce of client A waits for offset 1 of t-0 on replica 2, whose fetcher is at 0 and last fetched 31.0 s "
        "ago; and for the controller to accept a smaller ISR of t-0"
    )


def test_a_produce_that_lost_its_leader(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"t": [state(1, (1, 2))]})
    rig.answer(produce(batch(b"a"), acks=-1), 9, client_id="A")
    (operation, keys) = rig.purgatories.produce.waiting(1)[0]
    rig.manager.partition(TopicPartition("t", 0)).resign()
    look = Look.of({}, rig.clock)
    assert in_purgatory(operation, keys, views, look, look.now_ms)["sentence"] == (
        "produce of client A waits to be answered: t-0 is led by another broker"
    )


def test_a_produce_whose_partition_went_offline(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"t": [state(1, (1, 2))]})
    rig.answer(produce(batch(b"a"), acks=-1), 9, client_id="A")
    (operation, keys) = rig.purgatories.produce.waiting(1)[0]
    rig.manager.partition(TopicPartition("t", 0)).log = None
    look = Look.of({}, rig.clock)
    assert in_purgatory(operation, keys, views, look, look.now_ms)["sentence"] == (
        "produce of client A waits to be answered: t-0 is offline here, or was deleted"
    )


def test_an_append_of_a_coordinator_has_no_request(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"__consumer_offsets": [state(1, (1, 2))]})
    tp = TopicPartition("__consumer_offsets", 0)
    rig.manager.append_internal(tp, batch(b"a"), 5000, lambda _error, _offset: None)
    (waiting,) = waiting_operations(rig, views, "produce")
    assert waiting["request"] is None
    assert waiting["sentence"].startswith(
        "append of a coordinator to __consumer_offsets-0 waits for offset 1 of __consumer_offsets-0 on replica 2"
    )


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, "fetch of client c waits for 1 byte of t-0 from offset 0 (high watermark 0, log end 2)"),
        (
            {"min_bytes": 1_000_000},
            "fetch of client c waits for 1,000,000 bytes of t-0 from offset 0 (high watermark 0, log end 2)",
        ),
        (
            {"isolation_level": 1},
            "fetch of client c waits for 1 byte of t-0 from offset 0 (high watermark 0, log end 2)",
        ),
    ],
)
def test_a_fetch_waits_for_bytes(rig: BrokerRig, views: RequestViews, about: dict[str, int], expected: str) -> None:
    rig.push({"t": [state(1, (1, 2))]})
    rig.answer(produce(batch(b"a", b"b")), 9)
    rig.answer(fetch(0, max_wait_ms=500, **about), 12, client_id="c")
    (waiting,) = waiting_operations(rig, views, "fetch")
    assert waiting["sentence"] == expected
    (reason,) = waiting["reasons"]
    assert (reason["kind"], reason["min_bytes"], reason["available_bytes"]) == ("bytes", about.get("min_bytes", 1), 0)
    assert reason["positions"] == [{"topic": "t", "partition": 0, "offset": 0, "end": 0}]


def test_a_fetch_shows_the_available_bytes(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"t": [state(1, (1,))]})
    rig.answer(produce(batch(b"a", b"b")), 9)
    rig.answer(fetch(0, max_wait_ms=500, min_bytes=5000), 12, client_id="c")
    (waiting,) = waiting_operations(rig, views, "fetch")
    there = waiting["reasons"][0]["available_bytes"]
    assert 60 < there < 200
    assert waiting["sentence"] == (
        f"fetch of client c waits for 5,000 bytes, of which {there} are available, of t-0 from offset 0 "
        "(high watermark 2)"
    )


@pytest.mark.parametrize(
    ("min_bytes", "available", "expected"),
    [
        (1, 1, "to be answered: 1 byte is available of t-0 from offset 0 (high watermark 0)"),
        (100, 300, "to be answered: 100 bytes are available of t-0 from offset 0 (high watermark 0)"),
        (100, 1, "for 100 bytes, of which 1 is available, of t-0 from offset 0 (high watermark 0)"),
    ],
)
def test_a_fetch_that_is_about_to_complete(rig: BrokerRig, min_bytes: int, available: int, expected: str) -> None:
    """The page may be made between the append and the response."""
    rig.push({"t": [state(1, (1,))]})
    params = FetchParams(
        replica_id=-1,
        replica_epoch=-1,
        max_wait_ms=500,
        min_bytes=min_bytes,
        max_bytes=1000,
        isolation=FetchIsolation.HIGH_WATERMARK,
        leader_only=True,
    )
    item = FetchItem(TopicPartition("t", 0), bytes(16), 0, 1000)
    (reason,) = fetch_reasons(rig.manager.reader, params, [item], lambda _item: available)
    assert reason["text"] == expected


def test_a_followers_fetch_names_the_replica(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"t": [state(1, (1, 2))]})
    follower_fetch(rig, 0, replica=2, max_wait_ms=500)
    (waiting,) = waiting_operations(rig, views, "fetch")
    assert waiting["sentence"] == "fetch of replica 2 waits for 1 byte of t-0 from offset 0 (log end 0)"
    assert waiting["request"] is not None
    assert waiting["request"]["follower_id"] == 2


def test_a_deletion_waits_for_the_replicas_that_still_have_the_records(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"t": [state(1, (1, 2))]})
    rig.answer(produce(batch(b"a", b"b")), 9)
    follower_fetch(rig, 2, replica=2)
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    rig.answer(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2, client_id="admin")
    (waiting,) = waiting_operations(rig, views, "delete_records")
    assert waiting["sentence"] == (
        "delete records of client admin waits for replica 2 to delete t-0 up to offset 2: its log starts at 0"
    )


def test_limits_and_topics(rig: BrokerRig, views: RequestViews) -> None:
    rig.push({"t": [state(1, (1, 2))], "u": [state(1, (1, 2))]})
    for number in range(5):
        rig.answer(produce(batch(b"a"), acks=-1), 9, client_id=f"p{number}")
        rig.clock.advance_ms(1)
    rig.answer(produce(batch(b"a"), acks=-1, topic="u"), 9, client_id="other")
    assert [waiting["client_id"] for waiting in waiting_operations(rig, views, "produce", limit="2")] == ["p0", "p1"]
    assert [waiting["client_id"] for waiting in waiting_operations(rig, views, "produce", topic="u")] == ["other"]
    assert len(waiting_operations(rig, views, "produce")) == 6


def test_long_lists_of_reasons_are_cut() -> None:
    reasons: Any = [{"kind": "x", "text": f"for {number}"} for number in range(5)]
    assert sentence(None, reasons, ["t-0"]) == (
        "append of a coordinator to t-0 waits for 0; and for 1; and for 2; and for 2 more"
    )
    assert sentence(None, [], ["t-0"]) == "append of a coordinator to t-0 is about to be answered"


def test_requests_parked_outside_purgatories(rig: BrokerRig, views: RequestViews) -> None:
    message = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x")
    inside, outside, answered = (rig.request(message, 3, client_id=name) for name in ("inside", "outside", "answered"))
    for request in (inside, outside):
        request.operation = Deferred()
        request.api_local_done_ns = request.dequeued_ns = request.received_ns = rig.clock.monotonic_ns()
    rig.purgatories.topic.try_complete_else_watch(inside.operation, ["t"])
    rig.clock.advance_ms(70)
    look = Look.of({}, rig.clock)
    listing = parked([inside, outside, answered], lambda api, _: [{"kind": "k", "text": f"for {api}"}], views, look)
    assert listing["total"] == 1
    assert listing["items"][0]["sentence"] == "add partitions to txn of client outside waits for AddPartitionsToTxn"
    assert listing["items"][0]["age_ms"] == 70


def test_a_forwarded_request_without_keys_waits_for_the_controller(rig: BrokerRig, views: RequestViews) -> None:
    request = rig.request(ElectLeadersRequest(), 2, client_id="admin")
    request.api_local_done_ns = request.dequeued_ns = request.received_ns = rig.clock.monotonic_ns()
    park = TABLE[43].handle(rig.services, request)
    request.operation = park.operation
    park.purgatory.try_complete_else_watch(park.operation, park.keys)
    assert waiting_operations(rig, views, "topic") == []
    listing = parked([request], lambda _api, _message: [], views, Look.of({}, rig.clock))
    assert [item["sentence"] for item in listing["items"]] == [
        "elect leaders of client admin waits for the controller's answer"
    ]
