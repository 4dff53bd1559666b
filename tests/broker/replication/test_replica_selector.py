"""Consumers that fetch from the closest replica, and followers that serve them."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.replica_selector import ReplicaView, rack_aware
from barnabas.common.topic_partition import TopicPartition
from barnabas.config.checks import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from barnabas.config.errors import ConfigError
from barnabas.protocol.errors import ErrorCode
from tests.support.broker_room import BrokerRoom, batch, fetch, produce, state

TP = TopicPartition("t", 0)


@pytest.fixture
def room():
    """Brokers 1, 2 and 3 stand in racks r1, r2 and r3."""
    made = BrokerRoom(replica_selector_class=RACK_AWARE_SELECTOR)
    yield made
    made.close()


def partition_of(response):
    return response.responses[0].partitions[0]


def follower_fetch(room, offset, *, replica):
    request = fetch(offset, item={"log_start_offset": 0})
    request.replica_state.replica_id = replica
    return room.answer(request, 17)


def consume(room, offset, rack, version=17, **about):
    return partition_of(room.answer(fetch(offset, rack_id=rack, **about), version))


def led_with_two_records(room):
    room.push({"t": [state(1, (1, 2, 3))]})
    room.answer(produce(batch(b"a", b"b")), 9)
    for replica in (2, 3):
        follower_fetch(room, 2, replica=replica)


def test_a_consumer_is_sent_to_the_replica_of_its_rack(room):
    led_with_two_records(room)
    told = consume(room, 0, "r2", max_wait_ms=500)
    assert (told.error_code, told.preferred_read_replica, told.high_watermark, len(told.records)) == (0, 2, 2, 0)


@pytest.mark.parametrize("rack", ["", "r1", "elsewhere"])
def test_a_consumer_stays_with_the_leader(room, rack):
    led_with_two_records(room)
    told = consume(room, 0, rack)
    assert told.preferred_read_replica == -1
    assert told.records.size > 0


def test_a_consumer_that_cannot_be_told_stays(room):
    led_with_two_records(room)
    assert partition_of(room.answer(fetch(0), 10)).records.size > 0


def test_only_replicas_that_have_what_is_asked_for_are_candidates(room):
    led_with_two_records(room)
    room.answer(produce(batch(b"c")), 9)
    follower_fetch(room, 3, replica=3)
    assert consume(room, 3, "r2").preferred_read_replica == -1  # 2 would find it out of range
    assert consume(room, 3, "r3").preferred_read_replica == 3


def test_a_replica_out_of_the_isr_is_no_candidate(room):
    room.push({"t": [state(1, (1, 2, 3), (1, 3))]})
    follower_fetch(room, 0, replica=2)
    assert consume(room, 0, "r2").preferred_read_replica == -1


def test_a_dead_replica_is_no_candidate(room):
    led_with_two_records(room)
    room.answer(room.update_metadata({}, brokers=(1, 3)), 8)
    assert consume(room, 0, "r2").preferred_read_replica == -1


def test_followers_are_never_sent_elsewhere(room):
    led_with_two_records(room)
    request = fetch(0, rack_id="r3", item={"log_start_offset": 0})
    request.replica_state.replica_id = 2
    assert partition_of(room.answer(request, 17)).preferred_read_replica == -1


def test_without_a_selector_everybody_reads_from_the_leader():
    for settings in ({}, {"replica_selector_class": LEADER_SELECTOR}):
        room = BrokerRoom(**settings)
        led_with_two_records(room)
        assert consume(room, 0, "r2").preferred_read_replica == -1
        room.close()


def test_a_selector_that_we_do_not_have_is_refused():
    with pytest.raises(ConfigError, match=r"replica.selector.class=com.example.Mine is not supported"):
        BrokerRoom(replica_selector_class="com.example.Mine")


def test_the_replica_with_most_is_taken_then_the_freshest():
    leader = ReplicaView(1, "a", 10, 0)
    views = [
        ReplicaView(2, "b", 8, 0),
        ReplicaView(3, "b", 9, 50),
        ReplicaView(4, "b", 9, 20),
        ReplicaView(5, "c", 10, 0),
    ]
    assert rack_aware("b", leader, views).broker_id == 4
    assert rack_aware("a", leader, views) is leader
    assert rack_aware("d", leader, views) is leader


class TestFollower:
    """Broker 1 follows broker 2, and serves consumers."""

    @pytest.fixture
    def room(self, room):
        room.push({"t": [state(2, (2, 1), leader_epoch=4)]})
        partition = room.manager.partition(TP)
        partition.append_as_follower(memoryview(bytearray(batch(b"a", b"b"))), leader_epoch=4)
        return room

    def advance(self, room, high_watermark):
        if room.manager.partition(TP).update_follower_watermarks(high_watermark, 0):
            room.manager.complete_delayed(TP)

    def test_it_gives_what_is_below_its_own_watermark(self, room):
        assert len(consume(room, 0, "r1").records) == 0
        self.advance(room, 2)
        told = consume(room, 0, "r1")
        assert (told.error_code, told.high_watermark, told.preferred_read_replica) == (0, 2, -1)
        assert told.records.size > 0

    def test_a_waiting_consumer_is_woken_when_the_watermark_moves(self, room):
        waiting = room.answer(fetch(0, rack_id="r1", max_wait_ms=500), 17)
        assert waiting.response is None
        self.advance(room, 2)
        assert partition_of(waiting.response).records.size > 0

    @pytest.mark.parametrize(
        ("offset", "epoch", "error"),
        [
            (3, 4, ErrorCode.OFFSET_OUT_OF_RANGE),
            (0, 3, ErrorCode.FENCED_LEADER_EPOCH),
            (0, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (2, 4, ErrorCode.NONE),
        ],
    )
    def test_errors(self, room, offset, epoch, error):
        assert consume(room, offset, "r1", item={"current_leader_epoch": epoch}).error_code == error

    def test_a_client_that_knows_leaders_only_is_refused(self, room):
        assert partition_of(room.answer(fetch(0), 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
