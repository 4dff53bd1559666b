"""Fetch on real logs, and `replication/delayed/delayed_fetch.py`."""

from __future__ import annotations

import contextlib
import os

import pytest

from barnabas.common.disk.files import OsFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ErrorCode
from barnabas.security.values import QuotaEntity
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state, topic_id


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"t": [state(1), state(2, (2, 3))]})
    yield made
    made.close()


def fetched(rig, request, version=12):
    return rig.answer(request, version).responses[0].partitions[0]


def bytes_of(data):
    return data.records if isinstance(data.records, bytes) else data.records.read()


def test_produced_records_are_fetched(rig):
    rig.answer(produce(batch(b"first")), 9)
    rig.answer(produce(batch(b"second")), 9)
    data = fetched(rig, fetch(0))
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset) == (0, 2, 2, 0)
    assert b"first" in bytes_of(data)
    assert b"second" in bytes_of(data)
    assert b"first" not in bytes_of(fetched(rig, fetch(1)))
    assert bytes_of(fetched(rig, fetch(2))) == b""


def test_the_first_batch_is_returned_whole_despite_small_limits(rig):
    rig.answer(produce(batch(bytes(5000))), 9)
    rig.answer(produce(batch(bytes(5000))), 9)
    data = fetched(rig, fetch(0, max_bytes=1, item={"partition_max_bytes": 1}))
    assert 5000 < len(bytes_of(data)) < 6000


@pytest.mark.parametrize(
    ("request_", "version", "error"),
    [
        (fetch(5), 12, ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch(-1), 12, ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch(0, partition=1), 12, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (fetch(0, partition=7), 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch(0, topic="nowhere"), 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch(0, topic="nowhere"), 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (fetch(0, item={"current_leader_epoch": 4}), 12, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (fetch(0, item={"last_fetched_epoch": 4}), 12, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_errors(rig, request_, version, error):
    data = fetched(rig, request_, version)
    assert (ErrorCode(data.error_code), data.high_watermark, data.records) == (error, -1, b"")


@pytest.mark.parametrize("version", [12, 17])
def test_a_fetch_does_not_wait_for_more_bytes_than_a_segment_has_left(rig, version):
    log = rig.manager.find(TopicPartition("t", 0)).log
    rig.answer(produce(batch(b"first")), 9)
    log.roll()
    wanted = {"max_wait_ms": 500, "min_bytes": 10_000}
    for value in (b"second", b"third"):
        rig.answer(produce(batch(value)), 9)
        assert b"first" in bytes_of(fetched(rig, fetch(0, **wanted), version))
    waiting = rig.answer(fetch(1, **wanted), version)  # the last segment may grow
    assert waiting.response is None


def test_the_next_append_completes_a_waiting_fetch(rig):
    waiting = rig.answer(fetch(0, max_wait_ms=500), 12)
    assert waiting.response is None
    rig.answer(produce(batch(b"news")), 9)
    assert b"news" in bytes_of(waiting.response.responses[0].partitions[0])


def test_a_fetch_that_waits_is_counted_once(rig):
    """As in Kafka: the read that ends the wait is no request."""
    waiting = rig.answer(fetch(0, max_wait_ms=500), 12)
    rig.answer(produce(batch(b"news")), 9)
    assert waiting.response is not None
    assert rig.registry.meter(catalogue.TOTAL_FETCH_REQUESTS_PER_SEC).count == 1


def test_a_fetch_waits_for_min_bytes(rig):
    waiting = rig.answer(fetch(0, max_wait_ms=500, min_bytes=1500), 12)
    rig.answer(produce(batch(bytes(1000))), 9)
    assert waiting.response is None
    rig.answer(produce(batch(bytes(1000))), 9)
    assert len(bytes_of(waiting.response.responses[0].partitions[0])) > 2000


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_repeated_partition_is_read_once(rig, epoch):
    rig.answer(produce(batch(b"news")), 9)
    request = fetch(0, session_epoch=epoch)
    request.topics[0].partitions *= 100
    assert len(rig.answer(request, 12).responses[0].partitions) == 1


def test_an_expired_fetch_returns_no_records(rig):
    waiting = rig.answer(fetch(0, max_wait_ms=500), 12)
    rig.advance_ms(499)
    assert waiting.response is None
    rig.advance_ms(10)
    data = waiting.response.responses[0].partitions[0]
    assert (data.error_code, data.records) == (0, b"")


def test_a_topic_that_is_unknown_does_not_end_the_wait_for_others(rig):
    request = fetch(0, max_wait_ms=500)
    request.topics += fetch(0, topic="nowhere").topics
    waiting = rig.answer(request, 12)
    assert waiting.response is None
    rig.advance_ms(510)
    codes = [topic.partitions[0].error_code for topic in waiting.response.responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_waiting_fetch_completes_when_leadership_is_lost(rig):
    waiting = rig.answer(fetch(0, max_wait_ms=500, item={"current_leader_epoch": 0}), 16)
    rig.push({"t": [state(2, (1, 2), leader_epoch=1, partition_epoch=1)]})
    data = waiting.response.responses[0].partitions[0]
    assert (data.error_code, data.current_leader.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, 2)
    assert waiting.response.node_endpoints[0].host == "b2"


def test_sessions_send_only_changes(rig):
    opened = rig.answer(fetch(0, session_id=0, session_epoch=0), 13)
    assert opened.session_id > 0
    assert opened.responses[0].topic_id == topic_id("t")
    rig.answer(produce(batch(b"x")), 9)
    more = fetch(0, session_id=opened.session_id, session_epoch=1)
    more.topics = []
    assert bytes_of(rig.answer(more, 13).responses[0].partitions[0])
    bad = fetch(0, session_id=opened.session_id, session_epoch=9)
    refused = rig.answer(bad, 13)
    assert (refused.error_code, refused.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)


def test_the_old_id_of_a_recreated_topic_is_inconsistent(rig):
    opened = rig.answer(fetch(0, session_id=0, session_epoch=0), 13)
    rig.manager.find(rig.manager.partitions()[0].tp).topic_id = topic_id("t", 9)
    more = fetch(0, session_id=opened.session_id, session_epoch=1)
    assert rig.answer(more, 13).error_code == ErrorCode.INCONSISTENT_TOPIC_ID


def limited(rig, bytes_a_second):
    rig.services.quotas.update({QuotaEntity.of({"user": None}): {"consumer_byte_rate": bytes_a_second}})


def test_a_consumer_above_its_quota_gets_an_empty_response_and_waits(rig):
    for _ in range(6):
        rig.answer(produce(batch(bytes(1000))), 9)
    limited(rig, 200)
    first = rig.answer(fetch(0, max_bytes=1500), 12)
    assert first.throttle_time_ms == 0
    assert len(bytes_of(first.responses[0].partitions[0])) > 1000
    second = rig.answer(fetch(1, max_bytes=1500), 12)
    assert (second.error_code, second.session_id, second.responses) == (0, 0, [])
    assert second.throttle_time_ms > 0
    rig.clock.advance_ms(12_000)
    assert bytes_of(rig.answer(fetch(1, max_bytes=1500), 12).responses[0].partitions[0]), "nothing was lost"


def test_a_throttled_fetch_leaves_its_session_as_it_was(rig):
    rig.answer(produce(batch(b"a")), 9)
    session = rig.answer(fetch(0, session_epoch=0, session_id=0), 12).session_id
    assert session
    rig.answer(produce(batch(b"b")), 9)
    limited(rig, 1)
    throttled = rig.answer(fetch(1, session_epoch=1, session_id=session), 12)
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, session, [])
    assert throttled.throttle_time_ms > 0
    rig.services.quotas.update({})
    assert b"b" in bytes_of(fetched(rig, fetch(1, session_epoch=2, session_id=session)))


def test_followers_are_not_throttled(rig):
    rig.push({"r": [state(1, (1, 2))]})
    rig.answer(produce(batch(bytes(5000)), topic="r", acks=1), 9)
    limited(rig, 1)
    for _ in range(2):
        response = rig.answer(fetch(0, topic="r", replica_id=2), 12)
        assert response.throttle_time_ms == 0
        assert bytes_of(response.responses[0].partitions[0])


def of_partitions(count, **about):
    """A fetch of the first partitions of "t", from their start."""
    request = fetch(0, **about)
    for partition in range(1, count):
        request.topics[0].partitions.append(fetch(0, partition=partition, **about).topics[0].partitions[0])
    return request


def open_files_below(directory):
    paths = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            paths.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in paths if path.startswith(str(directory))]


def test_fetches_that_wait_hold_no_files_open(tmp_path):
    fs = OsFileSystem()
    fs.open_files.limit = 4
    rig = BrokerRig(fs=fs, log_dirs=str(tmp_path))
    rig.push({"t": [state(1)] * 20})
    for partition in range(20):
        rig.answer(produce(batch(bytes(500)), partition=partition), 9)
    before = len(open_files_below(tmp_path))
    waiting = [rig.answer(of_partitions(20, max_wait_ms=2**31 - 1, min_bytes=100_000), 12) for _ in range(3)]
    assert [request.response for request in waiting] == [None] * 3
    assert len(open_files_below(tmp_path)) <= before
    rig.close()


def test_a_fetch_that_completes_while_it_is_watched_is_not_listed(rig):
    rig.answer(produce(batch(b"first")), 9)
    rig.manager.find(TopicPartition("t", 0)).log.roll()
    rig.answer(produce(batch(b"second")), 9)
    answered = rig.answer(fetch(0, max_wait_ms=500, min_bytes=10_000), 12)  # the end of a segment: case C
    assert answered.responses
    assert rig.purgatories.fetch.watched() == 0
