"""A replica fetcher against a scripted leader: append, truncate, start anew, wait."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.replication.fetcher import ReplicaFetcher
from barnabas.broker.replication.fetchers import ReplicaFetchers
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k01_fetch as fetch_wire
from barnabas.protocol.messages import k02_list_offsets as list_wire
from tests.support.broker_room import BrokerRoom, batch, state, topic_id

TP = TopicPartition("t", 0)


class Leader:
    """Answers a fetcher from a list."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: list[Any] = []
        self.offsets: dict[int, int] = {}

    def send(self, message: Any, version: int) -> Any:
        self.asked.append(message)
        if isinstance(message, list_wire.ListOffsetsRequest):
            offset = self.offsets[message.topics[0].partitions[0].timestamp]
            partition = list_wire.ListOffsetsPartitionResponse(offset=offset)
            return list_wire.ListOffsetsResponse(
                topics=[list_wire.ListOffsetsTopicResponse(name="t", partitions=[partition])]
            )
        answer = self.answers.pop(0)
        if isinstance(answer, ErrorCode):
            return fetch_wire.FetchResponse(error_code=answer)
        topic = fetch_wire.FetchableTopicResponse(topic_id=topic_id("t"), partitions=[answer])
        return fetch_wire.FetchResponse(session_id=4, responses=[topic])

    def close(self) -> None:
        pass


@pytest.fixture
def room():
    made = BrokerRoom()
    made.push({"t": [state(2, (1, 2), leader_epoch=3, partition_epoch=3)]})
    yield made
    made.close()


@pytest.fixture
def leader():
    return Leader()


@pytest.fixture
def fetcher(room, leader):
    made = ReplicaFetcher(2, 0, room.manager, lambda: ("b2", 9092), lambda: 10)
    made._connection = leader
    made.add([room.manager.partition(TP)])
    return made


def turn(fetcher):
    ready = fetcher._wait_for_work()
    fetcher._fetch(ready)


def said(records=b"", *, error=0, high_watermark=0, log_start_offset=0, diverging=None):
    data = fetch_wire.PartitionData(
        error_code=error, high_watermark=high_watermark, log_start_offset=log_start_offset, records=records
    )
    if diverging is not None:
        data.diverging_epoch.epoch, data.diverging_epoch.end_offset = diverging
    return data


def written(*values, offset=0, epoch=3):
    return memoryview(bytearray(batch(*values, base_offset=offset, leader_epoch=epoch)))


def asked_of(request):
    return request.topics[0].partitions[0]


def test_what_comes_is_appended_and_the_watermark_follows(room, fetcher, leader):
    leader.answers = [said(written(b"a", b"b"), high_watermark=1), said(high_watermark=2)]
    turn(fetcher)
    partition = room.manager.partition(TP)
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 1)
    turn(fetcher)
    first, second = leader.asked
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (1, 10)
    assert (asked_of(first).fetch_offset, asked_of(first).last_fetched_epoch) == (0, -1)
    assert (second.session_id, second.session_epoch) == (4, 1)
    assert (asked_of(second).fetch_offset, asked_of(second).last_fetched_epoch) == (2, 3)
    assert partition.high_watermark == 2


def test_what_is_asked_for_is_as_configured(leader):
    settings = {
        "replica_fetch_min_bytes": "7",
        "replica_fetch_wait_max_ms": "321",
        "replica_fetch_max_bytes": "5000",
        "replica_fetch_response_max_bytes": "60000",
    }
    room = BrokerRoom(**settings)
    room.push({"t": [state(2, (1, 2), leader_epoch=3, partition_epoch=3)]})
    fetcher = ReplicaFetcher(2, 0, room.manager, lambda: ("b2", 9092), lambda: 10)
    fetcher._connection = leader
    fetcher.add([room.manager.partition(TP)])
    leader.answers = [said()]
    turn(fetcher)
    (request,) = leader.asked
    assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (7, 321, 60_000)
    assert asked_of(request).partition_max_bytes == 5000
    assert asked_of(request).current_leader_epoch == 3
    room.close()


def test_a_diverging_log_is_cut(room, fetcher, leader):
    leader.answers = [said(written(b"a", b"b")), said(written(b"c", offset=2)), said(diverging=(3, 2))]
    for _ in range(3):
        turn(fetcher)
    assert room.manager.partition(TP).log.log_end_offset == 2
    assert fetcher._states[TP].fetch_offset == 2


def test_a_log_longer_than_the_leaders_is_cut_and_one_behind_its_start_begins_anew(room, fetcher, leader):
    out_of_range = said(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    leader.answers = [said(written(b"a")), said(written(b"b", offset=1)), out_of_range, out_of_range]
    turn(fetcher)
    turn(fetcher)
    leader.offsets = {-1: 1}
    turn(fetcher)
    log = room.manager.partition(TP).log
    assert log.log_end_offset == 1
    leader.offsets = {-1: 900, -2: 500}
    turn(fetcher)
    assert (log.log_start_offset, log.log_end_offset, fetcher._states[TP].fetch_offset) == (500, 500, 500)


def test_a_leader_that_does_not_know_yet_is_asked_again_soon_and_then_less_often(room, fetcher, leader):
    leader.answers = [said(error=ErrorCode.UNKNOWN_LEADER_EPOCH)] * 12 + [said(written(b"a"))]
    pauses = []
    for _ in range(12):
        turn(fetcher)
        pauses.append(fetcher._states[TP].delayed_until_ms - room.clock.monotonic_ms())
        room.clock.advance_ms(pauses[-1])
    assert pauses[:3] == [10, 20, 40]
    assert pauses[-1] == room.config.replica_fetch_backoff_ms
    turn(fetcher)
    assert (fetcher._states[TP].refusals, fetcher._states[TP].fetch_offset) == (0, 1)


def test_an_error_is_waited_out_and_a_fence_ends_it(room, fetcher, leader):
    leader.answers = [
        said(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        said(error=ErrorCode.FENCED_LEADER_EPOCH),
    ]
    turn(fetcher)
    assert not fetcher._states[TP].is_ready(room.clock.monotonic_ms())
    room.clock.advance_ms(room.config.replica_fetch_backoff_ms)
    turn(fetcher)
    assert fetcher.is_idle()


def test_an_answer_for_a_former_state_is_dropped(room, fetcher, leader):
    ready = fetcher._wait_for_work()
    leader.answers = [said(written(b"a"))]
    fetcher.remove([TP])
    fetcher._fetch(ready)
    assert room.manager.partition(TP).log.log_end_offset == 0


def test_a_lost_session_begins_anew(fetcher, leader):
    leader.answers = [said(), ErrorCode.FETCH_SESSION_ID_NOT_FOUND, said()]
    for _ in range(3):
        turn(fetcher)
    assert [(r.session_id, r.session_epoch) for r in leader.asked] == [(0, 0), (4, 1), (0, 0)]


def test_a_corrupt_batch_is_not_appended(room, fetcher, leader):
    records = written(b"a")
    records[-1] ^= 1
    leader.answers = [said(records)]
    turn(fetcher)
    assert room.manager.partition(TP).log.log_end_offset == 0
    assert not fetcher._states[TP].is_ready(room.clock.monotonic_ms())


def test_in_slow_motion_it_pauses_after_each_fetch(room, fetcher, leader, monkeypatch):
    room.config.replace(room.config.with_overrides({"barnabas.slow.motion.fetcher.ms": "700"}))
    leader.answers = [said(), said()]
    pauses = []

    def pause(timeout):
        pauses.append(timeout)
        fetcher._is_stopping = len(pauses) == 2

    monkeypatch.setattr(fetcher._condition, "wait", pause)
    fetcher._run()
    assert pauses == [0.7, 0.7]


def test_fetchers_can_become_more_and_fewer():
    room = BrokerRoom()
    names = [f"t{number}" for number in range(12)]
    room.push({name: [state(2, (1, 2))] for name in names})
    fetchers = ReplicaFetchers(room.manager, lambda: 10)
    fetchers.follow([room.manager.partition(TopicPartition(name, 0)) for name in names], {})
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
    room.close()


def test_what_a_throttle_holds_back_is_not_asked_for(room, fetcher, leader):
    quota = room.manager.quotas.follower
    quota.set_limit(10)
    quota.throttle("t", ["0:1"], 1)
    leader.answers = [said(written(b"a" * 100), high_watermark=5), said(high_watermark=2)]
    turn(fetcher)
    assert fetcher._wait_for_work() == {}, "it has used more than it may, and lags"
    room.clock.advance_ms(20_000)
    assert set(fetcher._wait_for_work()) == {TP}
    quota.record(TP, 1000)
    fetcher.lags[TP] = 0
    assert set(fetcher._wait_for_work()) == {TP}, "one in sync is never held back"
