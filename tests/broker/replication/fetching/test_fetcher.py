"""fetcher.py and fetchers.py with a scripted leader: append, truncate, restart, wait."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.fetch_sessions import session
from barnabas.broker.replication.fetching.fetcher import ReplicaFetcher
from barnabas.broker.replication.fetching.fetchers import ReplicaFetchers
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k01_fetch as fetch_wire
from barnabas.protocol.messages import k02_list_offsets as list_wire
from barnabas.protocol.records.message_set import encode_message
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, state, topic_id

TP = TopicPartition("t", 0)


class Leader:
    """Answers a fetcher from a list of responses."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.responses: list[Any] = []
        self.offsets: dict[int, int] = {}

    def send(self, message: Any, version: int) -> Any:
        self.requests.append(message)
        if isinstance(message, list_wire.ListOffsetsRequest):
            offset = self.offsets[message.topics[0].partitions[0].timestamp]
            partition = list_wire.ListOffsetsPartitionResponse(offset=offset)
            return list_wire.ListOffsetsResponse(
                topics=[list_wire.ListOffsetsTopicResponse(name="t", partitions=[partition])]
            )
        response = self.responses.pop(0)
        if isinstance(response, ErrorCode):
            return fetch_wire.FetchResponse(error_code=response)
        topic = fetch_wire.FetchableTopicResponse(topic_id=topic_id("t"), partitions=[response])
        return fetch_wire.FetchResponse(session_id=4, responses=[topic])

    def close(self) -> None:
        pass


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"t": [state(2, (1, 2), leader_epoch=3, partition_epoch=3)]})
    yield made
    made.close()


@pytest.fixture
def leader():
    return Leader()


@pytest.fixture
def fetcher(rig, leader):
    made = ReplicaFetcher(2, 0, rig.manager, lambda: ("b2", 9092), lambda: 10)
    made._connection = leader
    made.add([rig.manager.partition(TP)])
    return made


def turn(fetcher):
    ready = fetcher._wait_for_work()
    fetcher._fetch(ready)


def data(records=b"", *, error=0, high_watermark=0, log_start_offset=0, diverging=None):
    made = fetch_wire.PartitionData(
        error_code=error, high_watermark=high_watermark, log_start_offset=log_start_offset, records=records
    )
    if diverging is not None:
        made.diverging_epoch.epoch, made.diverging_epoch.end_offset = diverging
    return made


def records_of(*values, offset=0, epoch=3):
    return memoryview(bytearray(batch(*values, base_offset=offset, leader_epoch=epoch)))


def partition_of(request):
    return request.topics[0].partitions[0]


def test_records_are_appended_and_the_watermark_follows(rig, fetcher, leader):
    leader.responses = [data(records_of(b"a", b"b"), high_watermark=1), data(high_watermark=2)]
    turn(fetcher)
    partition = rig.manager.partition(TP)
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 1)
    turn(fetcher)
    first, second = leader.requests
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (1, 10)
    assert (partition_of(first).fetch_offset, partition_of(first).last_fetched_epoch) == (0, -1)
    assert (second.session_id, second.session_epoch) == (4, 1)
    assert (partition_of(second).fetch_offset, partition_of(second).last_fetched_epoch) == (2, 3)
    assert partition.high_watermark == 2


def test_a_partition_without_news_for_the_leader_is_not_named_again(rig, fetcher, leader):
    leader.responses = [data(records_of(b"a", b"b")), data(high_watermark=1), data(high_watermark=2), data()]
    for _ in range(4):
        turn(fetcher)
    assert [len(request.topics) for request in leader.requests] == [1, 1, 0, 0]
    assert rig.manager.partition(TP).high_watermark == 2


def test_the_leader_hears_at_once_that_the_log_start_moved(rig, fetcher, leader):
    leader.responses = [data(records_of(b"a", b"b"), high_watermark=2), data(high_watermark=2), data(), data()]
    leader.responses[1].log_start_offset = 1
    for _ in range(4):
        turn(fetcher)
    assert [len(request.topics) for request in leader.requests] == [1, 1, 1, 0]
    assert (partition_of(leader.requests[2]).fetch_offset, partition_of(leader.requests[2]).log_start_offset) == (2, 1)


def test_the_leader_hears_that_the_log_start_moved_by_retention(rig, fetcher, leader):
    leader.responses = [data(records_of(b"a", b"b"), high_watermark=2), data(high_watermark=2), data(), data()]
    leader.responses.insert(2, data(high_watermark=2))
    leader.responses[2].log_start_offset = 1
    turn(fetcher)
    turn(fetcher)
    rig.manager.partition(TP).log.maybe_increment_log_start_offset(1, "retention")
    turn(fetcher)
    turn(fetcher)
    asked = partition_of(leader.requests[-1])
    assert (asked.fetch_offset, asked.log_start_offset) == (2, 1)


def test_requests_use_the_configured_limits(leader):
    settings = {
        "replica_fetch_min_bytes": "7",
        "replica_fetch_wait_max_ms": "321",
        "replica_fetch_max_bytes": "5000",
        "replica_fetch_response_max_bytes": "60000",
    }
    rig = BrokerRig(**settings)
    rig.push({"t": [state(2, (1, 2), leader_epoch=3, partition_epoch=3)]})
    fetcher = ReplicaFetcher(2, 0, rig.manager, lambda: ("b2", 9092), lambda: 10)
    fetcher._connection = leader
    fetcher.add([rig.manager.partition(TP)])
    leader.responses = [data()]
    turn(fetcher)
    (request,) = leader.requests
    assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (7, 321, 60_000)
    assert partition_of(request).partition_max_bytes == 5000
    assert partition_of(request).current_leader_epoch == 3
    rig.close()


def test_a_diverging_log_is_truncated(rig, fetcher, leader):
    leader.responses = [data(records_of(b"a", b"b")), data(records_of(b"c", offset=2)), data(diverging=(3, 2))]
    for _ in range(3):
        turn(fetcher)
    assert rig.manager.partition(TP).log.log_end_offset == 2
    assert fetcher._states[TP].fetch_offset == 2


def messages_v1(first, end):
    """Messages of format v1, to which no leader epoch belongs."""
    return memoryview(bytearray(b"".join(encode_message(1, at, 1000, b"k", b"%d" % at) for at in range(first, end))))


@pytest.mark.parametrize("overtaken", [False, True])
def test_a_log_without_epochs_is_cut_to_its_high_watermark_before_its_first_fetch(rig, fetcher, leader, overtaken):
    partition = rig.manager.partition(TP)
    leader.responses = [data(messages_v1(0, 10), high_watermark=4)]
    turn(fetcher)
    assert (partition.log.log_end_offset, partition.high_watermark, partition.log.latest_epoch) == (10, 4, -1)
    fetcher.remove([TP])
    fetcher.add([partition])
    if overtaken:  # a former leader's last answer
        partition.update_follower_watermarks(6, 0)
    leader.responses = [data(), data(messages_v1(4, 12), high_watermark=12), data(messages_v1(6, 12))]
    turn(fetcher)
    assert partition.log.log_end_offset == (6 if overtaken else 4)
    turn(fetcher)
    if overtaken:
        rig.clock.advance_ms(rig.config.replica_fetch_backoff_ms)
        turn(fetcher)
    assert (partition.log.log_end_offset, fetcher._states[TP].fetch_offset) == (12, 12)


def test_a_log_without_epochs_that_has_more_than_the_answer_is_cut(rig, fetcher, leader):
    partition = rig.manager.partition(TP)
    leader.responses = [data(messages_v1(0, 10), high_watermark=4), data(messages_v1(7, 12)), data(messages_v1(4, 12))]
    turn(fetcher)
    turn(fetcher)
    rig.clock.advance_ms(rig.config.replica_fetch_backoff_ms)
    turn(fetcher)
    assert partition_of(leader.requests[-1]).fetch_offset == 4
    assert (partition.log.log_end_offset, fetcher._states[TP].fetch_offset) == (12, 12)


def test_a_disk_that_fails_while_a_log_without_epochs_is_cut_ends_its_fetching(rig, fetcher, leader):
    partition = rig.manager.partition(TP)
    leader.responses = [data(messages_v1(0, 10), high_watermark=4), data()]
    turn(fetcher)
    fetcher.remove([TP])
    fetcher.add([partition])
    partition.log.mark_offline(OSError("the disk"))
    turn(fetcher)
    assert fetcher.failed == {TP}


def test_a_log_beyond_the_leaders_end_is_truncated_and_one_below_its_start_restarts(rig, fetcher, leader):
    out_of_range = data(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    leader.responses = [data(records_of(b"a")), data(records_of(b"b", offset=1)), out_of_range, out_of_range]
    turn(fetcher)
    turn(fetcher)
    leader.offsets = {-1: 1}
    turn(fetcher)
    log = rig.manager.partition(TP).log
    assert log.log_end_offset == 1
    leader.offsets = {-1: 900, -2: 500}
    turn(fetcher)
    assert (log.log_start_offset, log.log_end_offset, fetcher._states[TP].fetch_offset) == (500, 500, 500)


def test_a_log_whose_leaders_start_is_inside_a_batch_catches_up(rig, fetcher, leader):
    """DeleteRecords moved the leader's start to 5, into the batch of 0 to 9, which it sends whole."""
    leader.offsets = {-1: 10, -2: 5}
    whole = records_of(*[b"x"] * 10)
    leader.responses = [
        data(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=5),
        data(whole, high_watermark=10, log_start_offset=5),
    ]
    turn(fetcher)
    turn(fetcher)
    log = rig.manager.partition(TP).log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (5, 10, 10)
    assert fetcher._states[TP].fetch_offset == 10
    log.invariants()


def test_a_leader_that_does_not_know_its_election_is_retried_with_growing_pauses(rig, fetcher, leader):
    leader.responses = [data(error=ErrorCode.UNKNOWN_LEADER_EPOCH)] * 12 + [data(records_of(b"a"))]
    pauses = []
    for _ in range(12):
        turn(fetcher)
        pauses.append(fetcher._states[TP].delayed_until_ms - rig.clock.monotonic_ms())
        rig.clock.advance_ms(pauses[-1])
    assert pauses[:3] == [10, 20, 40]
    assert pauses[-1] == rig.config.replica_fetch_backoff_ms
    turn(fetcher)
    assert (fetcher._states[TP].refusals, fetcher._states[TP].fetch_offset) == (0, 1)


def test_an_error_delays_a_partition_and_a_fenced_epoch_ends_its_fetching(rig, fetcher, leader):
    leader.responses = [
        data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        data(error=ErrorCode.FENCED_LEADER_EPOCH),
    ]
    turn(fetcher)
    assert not fetcher._states[TP].is_ready(rig.clock.monotonic_ms())
    rig.clock.advance_ms(rig.config.replica_fetch_backoff_ms)
    turn(fetcher)
    assert fetcher.is_idle()


def test_an_error_code_of_a_newer_leader_delays_the_partition(rig, fetcher, leader):
    leader.responses = [data(error=9999), data(records_of(b"a"))]
    turn(fetcher)
    assert not fetcher._states[TP].is_ready(rig.clock.monotonic_ms())
    rig.clock.advance_ms(rig.config.replica_fetch_backoff_ms)
    turn(fetcher)
    assert fetcher._states[TP].fetch_offset == 1


def test_a_response_for_a_former_state_is_dropped(rig, fetcher, leader):
    ready = fetcher._wait_for_work()
    leader.responses = [data(records_of(b"a"))]
    fetcher.remove([TP])
    fetcher._fetch(ready)
    assert rig.manager.partition(TP).log.log_end_offset == 0


def test_the_watermark_of_a_dropped_response_is_asked_for_again(rig, fetcher, leader):
    # num.replica.fetchers changes while a fetch waits: a new state of the same leader epoch and offset.
    leader.responses = [data(records_of(b"a", b"b")), data(high_watermark=2), data(high_watermark=2)]
    turn(fetcher)
    ready = fetcher._wait_for_work()
    fetcher.add(fetcher.take_all())
    fetcher._fetch(ready)
    turn(fetcher)
    assert partition_of(leader.requests[-1]).fetch_offset == 2, "a leader sends the same watermark once in a session"
    assert rig.manager.partition(TP).high_watermark == 2


def test_a_lost_session_is_replaced(fetcher, leader):
    leader.responses = [data(), ErrorCode.FETCH_SESSION_ID_NOT_FOUND, data()]
    for _ in range(3):
        turn(fetcher)
    assert [(r.session_id, r.session_epoch) for r in leader.requests] == [(0, 0), (4, 1), (0, 0)]


def test_a_corrupt_batch_is_not_appended(rig, fetcher, leader):
    records = records_of(b"a")
    records[-1] ^= 1
    leader.responses = [data(records)]
    turn(fetcher)
    assert rig.manager.partition(TP).log.log_end_offset == 0
    assert not fetcher._states[TP].is_ready(rig.clock.monotonic_ms())


def test_slow_motion_pauses_after_each_fetch(rig, fetcher, leader, monkeypatch):
    rig.config.replace(rig.config.with_overrides({"barnabas.slow.motion.fetcher.ms": "700"}))
    leader.responses = [data(), data()]
    pauses = []

    def pause(timeout):
        pauses.append(timeout)
        fetcher._is_stopping = len(pauses) == 2

    monkeypatch.setattr(fetcher._condition, "wait", pause)
    fetcher._run()
    assert pauses == [0.7, 0.7]


def test_the_number_of_fetchers_can_change():
    rig = BrokerRig()
    names = [f"t{number}" for number in range(12)]
    rig.push({name: [state(2, (1, 2))] for name in names})
    fetchers = ReplicaFetchers(rig.manager, lambda: 10)
    fetchers.follow([rig.manager.partition(TopicPartition(name, 0)) for name in names], {})
    assert set(fetchers._fetchers) == {(2, 0)}
    fetchers.resize(2)
    assert set(fetchers._fetchers) == {(2, 0), (2, 1)}
    held = [set(fetcher._states) for fetcher in fetchers._fetchers.values()]
    assert all(held)
    assert set.union(*held) == {TopicPartition(name, 0) for name in names}
    fetchers.resize(1)
    assert set(fetchers._fetchers) == {(2, 0)}
    assert len(fetchers._fetchers[2, 0]._states) == 12
    fetchers.shutdown()
    rig.close()


def test_throttled_partitions_are_not_fetched(rig, fetcher, leader):
    quota = rig.manager.quotas.follower
    quota.set_limit(10)
    quota.throttle("t", ["0:1"], 1)
    leader.responses = [data(records_of(b"a" * 100), high_watermark=5), data(high_watermark=2)]
    turn(fetcher)
    assert fetcher._wait_for_work() == {}, "above the limit and lagging"
    rig.clock.advance_ms(20_000)
    assert set(fetcher._wait_for_work()) == {TP}
    quota.record(TP, 1000)
    fetcher.lags[TP] = 0
    assert set(fetcher._wait_for_work()) == {TP}, "one in sync is never held back"


@pytest.mark.parametrize("ends", ["diverging", "restarts"])
def test_who_reads_from_a_follower_is_told_that_its_log_was_truncated(rig, fetcher, leader, monkeypatch, ends):
    """Also of a partition that is idle, since nothing new could be told of it."""
    monkeypatch.setattr(session, "IDLE_FROM", 0)
    leader.responses = [data(records_of(b"a", b"b")), data(high_watermark=2)]
    turn(fetcher)
    turn(fetcher)
    opened = rig.answer(fetch(2, session_epoch=0), 13)
    rig.answer(fetch(2, session_id=opened.session_id, session_epoch=1), 13)
    unchanged = fetch_wire.FetchRequest(
        session_id=opened.session_id, session_epoch=2, max_wait_ms=10_000, min_bytes=1, max_bytes=1000, topics=[]
    )
    waiting = rig.answer(unchanged, 13)
    assert waiting.response is None
    if ends == "diverging":
        leader.responses = [data(diverging=(3, 1))]
    else:
        leader.responses = [data(error=ErrorCode.OFFSET_OUT_OF_RANGE)]
        leader.offsets = {-1: 900, -2: 500}
    turn(fetcher)
    (told,) = waiting.response.responses[0].partitions
    assert told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
