"""`replication/replica_selector.py`: consumers fetch from the closest replica, and followers serve them."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.replica_selector import ReplicaView, rack_aware
from barnabas.common.topic_partition import TopicPartition
from barnabas.config.checks import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from barnabas.config.errors import ConfigError
from barnabas.protocol.errors import ErrorCode
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state

TP = TopicPartition("t", 0)


@pytest.fixture
def rig():
    """Brokers 1, 2 and 3 are in racks r1, r2 and r3."""
    made = BrokerRig(replica_selector_class=RACK_AWARE_SELECTOR)
    yield made
    made.close()


def partition_of(response):
    return response.responses[0].partitions[0]


def follower_fetch(rig, offset, *, replica):
    request = fetch(offset, item={"log_start_offset": 0})
    request.replica_state.replica_id = replica
    return rig.answer(request, 17)


def consume(rig, offset, rack, version=17, **about):
    return partition_of(rig.answer(fetch(offset, rack_id=rack, **about), version))


def led_with_two_records(rig):
    rig.push({"t": [state(1, (1, 2, 3))]})
    rig.answer(produce(batch(b"a", b"b")), 9)
    for replica in (2, 3):
        follower_fetch(rig, 2, replica=replica)


def test_a_consumer_is_redirected_to_the_replica_in_its_rack(rig):
    led_with_two_records(rig)
    data = consume(rig, 0, "r2", max_wait_ms=500)
    assert (data.error_code, data.preferred_read_replica, data.high_watermark, len(data.records)) == (0, 2, 2, 0)


@pytest.mark.parametrize("rack", ["", "r1", "elsewhere"])
def test_other_consumers_stay_with_the_leader(rig, rack):
    led_with_two_records(rig)
    data = consume(rig, 0, rack)
    assert data.preferred_read_replica == -1
    assert data.records.size > 0


def test_an_old_consumer_that_cannot_be_redirected_stays(rig):
    led_with_two_records(rig)
    assert partition_of(rig.answer(fetch(0), 10)).records.size > 0


def test_only_replicas_that_have_the_offset_are_candidates(rig):
    led_with_two_records(rig)
    rig.answer(produce(batch(b"c")), 9)
    follower_fetch(rig, 3, replica=3)
    assert consume(rig, 3, "r2").preferred_read_replica == -1  # out of range on replica 2
    assert consume(rig, 3, "r3").preferred_read_replica == 3


def test_a_replica_outside_the_isr_is_no_candidate(rig):
    rig.push({"t": [state(1, (1, 2, 3), (1, 3))]})
    follower_fetch(rig, 0, replica=2)
    assert consume(rig, 0, "r2").preferred_read_replica == -1


def test_a_dead_replica_is_no_candidate(rig):
    led_with_two_records(rig)
    rig.answer(rig.update_metadata({}, brokers=(1, 3)), 8)
    assert consume(rig, 0, "r2").preferred_read_replica == -1


def test_followers_are_never_redirected(rig):
    led_with_two_records(rig)
    request = fetch(0, rack_id="r3", item={"log_start_offset": 0})
    request.replica_state.replica_id = 2
    assert partition_of(rig.answer(request, 17)).preferred_read_replica == -1


def test_without_a_selector_consumers_read_from_the_leader():
    for settings in ({}, {"replica_selector_class": LEADER_SELECTOR}):
        rig = BrokerRig(**settings)
        led_with_two_records(rig)
        assert consume(rig, 0, "r2").preferred_read_replica == -1
        rig.close()


def test_an_unknown_selector_class_is_refused():
    with pytest.raises(ConfigError, match=r"replica.selector.class=com.example.Mine is not supported"):
        BrokerRig(replica_selector_class="com.example.Mine")


def test_the_replica_with_the_highest_end_is_chosen_then_the_most_recently_caught_up():
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
    def rig(self, rig):
        rig.push({"t": [state(2, (2, 1), leader_epoch=4)]})
        partition = rig.manager.partition(TP)
        partition.append_as_follower(memoryview(bytearray(batch(b"a", b"b"))), leader_epoch=4)
        return rig

    def advance(self, rig, high_watermark):
        if rig.manager.partition(TP).update_follower_watermarks(high_watermark, 0):
            rig.manager.complete_delayed(TP)

    def test_it_returns_records_below_its_own_watermark(self, rig):
        assert len(consume(rig, 0, "r1").records) == 0
        self.advance(rig, 2)
        data = consume(rig, 0, "r1")
        assert (data.error_code, data.high_watermark, data.preferred_read_replica) == (0, 2, -1)
        assert data.records.size > 0

    def test_a_waiting_consumer_is_woken_when_the_watermark_moves(self, rig):
        waiting = rig.answer(fetch(0, rack_id="r1", max_wait_ms=500), 17)
        assert waiting.response is None
        self.advance(rig, 2)
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
    def test_errors(self, rig, offset, epoch, error):
        assert consume(rig, offset, "r1", item={"current_leader_epoch": epoch}).error_code == error

    def test_an_old_client_that_can_only_use_leaders_is_refused(self, rig):
        assert partition_of(rig.answer(fetch(0), 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
