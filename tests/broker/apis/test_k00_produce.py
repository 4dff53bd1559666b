"""Produce on real logs, and the current leader in a response (`apis/redirect.py`)."""

from __future__ import annotations

import gc
import struct
import weakref

import pytest

from barnabas.broker.apis.k00_produce import ERRORS_SHOWN
from barnabas.broker.apis.table import TABLE
from barnabas.broker.requests.answers import Close, NoReply
from barnabas.broker.requests.parking import Park
from barnabas.common.logs import LINES_MAX
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.page.exposition import Exposition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import decode_request_header, encode_request
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.records.compression import CompressionType
from barnabas.security.values import QuotaEntity
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state, topic_id

TP = TopicPartition("t", 0)


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"t": [state(1), state(2, (2, 3))], "__consumer_offsets": [state(1)]})
    yield made
    made.close()


def answered(rig, request, version=9, **about):
    return rig.answer(request, version, **about).responses[0].partition_responses[0]


@pytest.mark.parametrize("acks", [1, -1])
def test_offsets_increase(rig, acks):
    first = answered(rig, produce(batch(b"a", b"b"), acks=acks))
    second = answered(rig, produce(batch(b"c"), acks=acks))
    assert [(p.error_code, p.base_offset) for p in (first, second)] == [(0, 0), (0, 2)]
    assert (first.log_append_time_ms, first.log_start_offset) == (-1, 0)


def test_topics_are_named_by_id_since_v13(rig):
    assert answered(rig, produce(batch(b"a")), 13).error_code == 0
    unknown = rig.answer(produce(batch(b"a"), topic="nowhere"), 13).responses[0]
    assert (unknown.topic_id, unknown.partition_responses[0].error_code) == (
        topic_id("nowhere"),
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60])
def test_a_part_of_a_second_batch_is_left_out(rig, size):
    one = batch(b"a")
    assert answered(rig, produce(one + batch(b"b")[:size])).error_code == 0
    assert answered(rig, produce(one)).base_offset == 1


def corrupted():
    data = bytearray(batch(b"a"))
    data[-1] ^= 1
    return bytes(data)


def with_magic(magic):
    data = bytearray(batch(b"a"))
    data[16] = magic
    return bytes(data)


def with_count(count):
    import crc32c

    data = bytearray(batch(b"a"))
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c.crc32c(data[21:]))
    return bytes(data)


@pytest.mark.parametrize(
    ("request_", "version", "error"),
    [
        (produce(batch(b"a"), acks=7), 9, ErrorCode.INVALID_REQUIRED_ACKS),
        (produce(batch(b"a"), topic="nowhere"), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(corrupted(), topic="nowhere"), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch(b"a"), topic="__transaction_state"), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch(b"a"), partition=9), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch(b"a"), partition=1), 9, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (produce(None), 9, ErrorCode.INVALID_RECORD),
        (produce(b""), 9, ErrorCode.INVALID_RECORD),
        (produce(batch(b"a")[:-1]), 9, ErrorCode.INVALID_RECORD),
        (produce(batch(b"a") + batch(b"b")), 9, ErrorCode.INVALID_RECORD),
        (produce(batch(b"a") + bytes(12)), 9, ErrorCode.CORRUPT_MESSAGE),
        (produce(batch(b"a") + bytes(16)), 9, ErrorCode.CORRUPT_MESSAGE),
        (produce(batch(b"a") + bytes(61)), 9, ErrorCode.CORRUPT_MESSAGE),
        (produce(batch(b"a") + with_magic(3)), 9, ErrorCode.CORRUPT_MESSAGE),
        (produce(batch(b"a") + with_magic(1)), 9, ErrorCode.INVALID_RECORD),
        (produce(bytes(12)), 9, ErrorCode.CORRUPT_MESSAGE),
        (produce(with_magic(1)), 9, ErrorCode.INVALID_RECORD),
        (produce(corrupted()), 9, ErrorCode.CORRUPT_MESSAGE),
        (produce(bytes(8) + struct.pack(">i", 3) + bytes(60)), 9, ErrorCode.CORRUPT_MESSAGE),
        (produce(with_count(5)), 9, ErrorCode.INVALID_RECORD),
        (produce(batch(bytes(2_000_000))), 9, ErrorCode.MESSAGE_TOO_LARGE),
        (produce(batch(b"a", compression=CompressionType.ZSTD)), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (produce(batch(b"a"), topic="__consumer_offsets"), 9, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (
            produce(batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)),
            9,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_errors(rig, request_, version, error):
    refused = answered(rig, request_, version)
    assert (ErrorCode(refused.error_code), refused.base_offset) == (error, -1)
    assert answered(rig, produce(batch(b"a"))).base_offset == 0  # the refused batch left no trace


@pytest.mark.parametrize("acks", [1, 0, 7])
def test_a_transactional_batch_without_a_transactional_id_has_all_partitions_refused(rig, acks):
    request = produce(batch(b"a"), acks=acks)
    transactional = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    (topic,) = request.topic_data
    topic.partition_data.append(PartitionProduceData(index=1, records=memoryview(bytearray(transactional))))
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    answer = rig.answer(request, 9)
    if acks == 0:
        assert isinstance(answer, Close)
        assert answer.error_codes == [error, error]
    else:
        assert [p.error_code for p in answer.responses[0].partition_responses] == [error, error]
    assert answered(rig, produce(batch(b"a"))).base_offset == 0


def test_only_the_admin_client_writes_to_internal_topics(rig):
    about = {"client_id": "__admin_client"}
    assert answered(rig, produce(batch(b"a"), topic="__consumer_offsets"), **about).error_code == 0


def test_idempotent_batches_are_appended_once_and_in_order(rig):
    def numbered(sequence, epoch=0):
        return produce(batch(b"a", producer_id=5, producer_epoch=epoch, base_sequence=sequence))

    assert answered(rig, numbered(0)).base_offset == 0
    again = answered(rig, numbered(0))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert answered(rig, numbered(7)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answered(rig, numbered(1)).base_offset == 1


def test_batches_out_of_order_do_not_fill_the_log(rig, caplog):
    caplog.set_level("INFO")
    late = produce(batch(b"a", producer_id=5, producer_epoch=0, base_sequence=7))
    for _ in range(LINES_MAX + 20):
        assert answered(rig, produce(batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0))).error_code == 0
        assert answered(rig, late).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert caplog.text.count("Out of order sequence number") == LINES_MAX


def test_acks_0_gets_no_response_and_an_error_closes_the_connection(rig):
    assert isinstance(rig.answer(produce(batch(b"a"), acks=0), 9), NoReply)
    closing = rig.answer(produce(batch(b"a"), acks=0, partition=9), 9)
    assert isinstance(closing, Close)
    assert closing.error_codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert closing.reason == (
        "error during produce request with correlation id 7 from client id tester with ack=0: "
        "t-9 -> UNKNOWN_TOPIC_OR_PARTITION"
    )


def test_few_errors_of_a_request_with_acks_0_are_written_to_the_log(rig):
    message = produce(batch(b"a"), acks=0)
    message.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=batch(b"a")) for index in range(9, 1_009)
    ]
    closing = rig.answer(message, 9)
    assert closing.reason.count("UNKNOWN_TOPIC_OR_PARTITION") == ERRORS_SHOWN
    assert closing.reason.endswith("t-13 -> UNKNOWN_TOPIC_OR_PARTITION and 995 more")


def test_the_wrong_broker_names_the_leader(rig):
    response = rig.answer(produce(batch(b"a"), partition=1), 10)
    leader = response.responses[0].partition_responses[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, 0)
    assert [(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints] == [(2, "b2", 9092, "r2")]
    assert not rig.answer(produce(batch(b"a"), partition=1), 9).node_endpoints


def test_records_are_counted(rig):
    answered(rig, produce(batch(b"a", b"b")))
    assert rig.manager.stats.topic("t").messages_in() == 2
    assert rig.answer(MetadataRequest(topics=[]), 12).topics == []


def numbered(sequence):
    return batch(b"a", producer_id=1, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize(
    ("policy", "data", "counted"),
    [
        ("delete", corrupted(), {"invalidmessagecrcrecords": 1}),
        ("delete", with_count(5), {"invalidoffsetorsequencerecords": 1}),
        ("delete", numbered(-5), {"invalidoffsetorsequencerecords": 1}),
        ("delete", numbered(7), {}),
        ("compact", batch(b"a", b"b", b"c"), {"nokeycompactedtopicrecords": 3}),
    ],
)
def test_invalid_records_are_counted_for_the_broker_alone(rig, policy, data, counted):
    """As in Kafka, where OUT_OF_ORDER_SEQUENCE_NUMBER is not among them."""
    assert answered(rig, produce(numbered(0))).error_code == 0
    rig.manager.partition(TP).log.update_config(rig.config.topic_config({"cleanup.policy": policy}))
    assert answered(rig, produce(data)).error_code != 0
    start = "kafka_server_brokertopicmetrics_"
    found = [line.split(" ") for line in series_of_topics(rig) if line.startswith((f"{start}invalid", f"{start}nokey"))]
    totals = {name.removeprefix(start): float(count) for name, count in found if "persec" not in name}
    assert {name: count for name, count in totals.items() if count} == {f"{k}_total": n for k, n in counted.items()}


@pytest.mark.parametrize(("topic", "partition"), [("nowhere", 0), ("t", 9)])
def test_a_partition_that_metadata_does_not_know_is_counted_nowhere(rig, topic, partition):
    """As in Kafka. A client may invent names for ever, so they must make no series."""
    before = series_of_topics(rig)
    refused = answered(rig, produce(batch(b"a"), topic=topic, partition=partition))
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.answer(fetch(0, topic=topic, partition=partition), 12)
    assert series_of_topics(rig) == before


def series_of_topics(rig):
    page = Exposition(rig.registry).render().decode()
    return [line for line in page.splitlines() if line.startswith("kafka_server_brokertopicmetrics_")]


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_a_produce_without_a_timeout_expires_at_once(rig, timeout_ms):
    """As in Kafka: the records are in the log; whether they become safe is unknown."""
    rig.push({"t": [state(1, (1, 2))]})
    request = produce(batch(b"a"), acks=-1)
    request.timeout_ms = timeout_ms
    assert answered(rig, request).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_produce_that_waits_for_replicas_frees_its_frame(rig):
    """The log has the records, so the frames of hundreds of waiting connections need not stay in memory."""

    class Frame(bytearray):
        pass

    rig.push({"t": [state(1, (1, 2))]})
    request = rig.request(produce(batch(b"a"), acks=-1), 9)
    frame = Frame(encode_request(request.header, request.message)[4:])
    request.buffer = memoryview(frame)
    _, offset = decode_request_header(request.buffer)
    request.message = ProduceRequest.decode(request.buffer, 9, offset)
    there = weakref.ref(frame)
    del frame
    answer = TABLE[0].handle(rig.services, request)
    assert isinstance(answer, Park)
    gc.collect()
    assert there() is None


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_client_above_its_quota_waits_and_its_records_are_kept(rig, acks):
    rig.services.quotas.update({QuotaEntity.of({"user": None}): {"producer_byte_rate": 100}})
    for expected_ms in (0, 5_000):
        request = rig.request(produce(batch(b"a"), acks=acks), 9)
        request.size_bytes = 750
        answer = TABLE[0].handle(rig.services, request)
        assert not isinstance(answer, Close | Park)
        assert request.throttle is not None
        assert request.throttle.ms == expected_ms
    assert answered(rig, produce(batch(b"a"))).base_offset == 2


def test_a_parked_produce_is_charged_when_it_is_answered(rig):
    rig.push({"r": [state(1, (1, 2))]})
    rig.services.quotas.update({QuotaEntity.of({"user": None}): {"producer_byte_rate": 1}})
    request = rig.request(produce(batch(b"a"), topic="r", acks=-1), 9)
    request.size_bytes = 100
    parked = TABLE[0].handle(rig.services, request)
    assert isinstance(parked, Park)
    assert request.throttle is None
    parked.answer()
    assert request.throttle is not None
    assert request.throttle.ms > 0


def test_a_response_names_so_many_invalid_records_whatever_their_batches(rig):
    """Batches of records that compress to nothing would make it a thousand times as large as the request."""
    late = batch(*[b""] * 600, timestamp_ms=2**52, compression=CompressionType.ZSTD)
    request = produce(late)
    request.topic_data[0].partition_data *= 4
    told = [len(p.record_errors) for p in rig.answer(request, 9).responses[0].partition_responses]
    assert told == [600, 400, 1, 1]
