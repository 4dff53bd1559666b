"""DelayedShareFetch: several partitions, errors of some, and what it leaves behind. (Most of it is in
tests/broker/apis/test_share_fetch_apis.py.)
"""

from __future__ import annotations

import pytest

from barnabas.broker.share.led_partition import LedSharePartition
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import MAGIC_OFFSET
from tests.broker.share.share_rig import ShareRig, acquired, errors
from tests.support.broker.broker_rig import state


@pytest.fixture
def rig() -> ShareRig:
    return ShareRig()


def test_the_limit_of_records_holds_for_all_partitions_together(rig: ShareRig) -> None:
    for partition in (0, 1):
        for _ in range(3):
            rig.append(2, partition)
    assert acquired(rig.member("m").fetch(0, 1, most=4)) == [(0, 3, 1)]
    m = rig.member("n")
    assert acquired(m.fetch(1, 0, most=5)) == [(0, 5, 1)]


def test_the_bytes_are_divided_among_the_partitions(rig: ShareRig) -> None:
    for partition in (0, 1):
        for _ in range(4):
            rig.append(1, partition)
    response = rig.member("m").fetch(0, 1, max_bytes=300)
    assert acquired(response) == [(0, 1, 1), (0, 1, 1)]


def test_bytes_of_all_partitions_count(rig: ShareRig) -> None:
    waiting = rig.member("m").fetch(0, 1, wait_ms=500, min_bytes=100)
    rig.append(1, 0)
    assert waiting.response is None
    rig.append(1, 1)
    assert acquired(waiting.response) == [(0, 0, 1), (0, 0, 1)]


def test_a_fetch_does_not_wait_for_more_bytes_than_a_segment_has_left(rig: ShareRig) -> None:
    rig.append()
    partition = rig.manager.find(TopicPartition("t", 0))
    assert partition is not None
    partition.leader_log().roll()
    waiting = rig.member("m").fetch(wait_ms=500, min_bytes=1000)
    assert acquired(waiting) == [(0, 0, 1)]


def test_each_partition_comes_first_from_time_to_time(rig: ShareRig) -> None:
    m = rig.member("m")
    m.fetch(0, 1)
    first = set()
    for _ in range(4):
        for partition in (0, 1):
            rig.append(1, partition)
        response = m.fetch(most=1)
        first |= {index for index, code in errors(response).items() if not code}
    assert first == {0, 1}


def test_while_one_partition_can_be_used_the_error_of_another_waits(rig: ShareRig) -> None:
    waiting = rig.member("m").fetch(0, 1, wait_ms=500)
    rig.push({"t": [state(2, (1, 2), leader_epoch=1), state(1)]})
    assert waiting.response is None
    rig.append(1, 1)
    assert errors(waiting.response) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: 0}
    assert acquired(waiting.response) == [(0, 0, 1)]


def test_no_fetch_lock_is_left_behind(rig: ShareRig) -> None:
    m, n = rig.member("m"), rig.member("n")
    rig.append()
    m.fetch()
    waiting = m.fetch(wait_ms=500, min_bytes=500)
    rig.append()
    assert waiting.response is None
    assert n.acquire() == [(1, 1, 1)]
    rig.advance_ms(500)
    assert acquired(waiting.response) == []
    rig.append()
    assert n.acquire() == [(2, 2, 1)]


def test_a_log_that_cannot_be_read_is_an_error_of_its_partition(rig: ShareRig) -> None:
    rig.append()
    rig.fs.open("/data/t-0/00000000000000000000.log").pwrite(b"\x07", MAGIC_OFFSET)
    assert errors(rig.member("m").fetch()) == {0: ErrorCode.CORRUPT_MESSAGE}


def test_a_closed_connection_acquires_nothing(rig: ShareRig) -> None:
    m, n = rig.member("m"), rig.member("n")
    waiting = m.fetch(wait_ms=500)
    n.fetch()
    m.close()
    rig.append()
    assert acquired(waiting.response) == []
    assert n.acquire() == [(0, 0, 1)]


def test_a_bug_while_acquiring_is_an_error_and_leaves_no_lock(rig: ShareRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.append()

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(LedSharePartition, "acquire", broken)
        assert errors(rig.member("m").fetch()) == {0: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert rig.member("n").acquire() == [(0, 0, 1)]


def test_a_truncated_log_is_waited_for(rig: ShareRig) -> None:
    rig.initialize(0, start_offset=5, state_epoch=2)
    waiting = rig.member("m").fetch(wait_ms=500)
    for _ in range(5):
        rig.append()
    assert waiting.response is None
    rig.append()
    assert acquired(waiting.response) == [(5, 5, 1)]


def test_what_can_be_seen_of_a_wait(rig: ShareRig) -> None:
    waiting = rig.member("m").fetch(wait_ms=500)
    assert waiting.response is None
    assert len(rig.purgatories.share_fetch.waiting(10)) == 1
