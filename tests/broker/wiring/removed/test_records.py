"""Removed versions of Produce, Fetch and ListOffsets on real logs: produce.py, fetch.py, list_offsets.py.

Every request and response goes over the wire, in its version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import NO_REPLY, Close, Reply
from barnabas.broker.requests.error_codes import error_codes_of
from barnabas.broker.requests.parking import Park
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.broker.wiring.older_release import table_of_release
from barnabas.broker.wiring.removed import fetch as fetch_v0
from barnabas.broker.wiring.removed import list_offsets
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode as E
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k00_produce import PartitionProduceData, TopicProduceData
from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchTopic
from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.message_set import (
    MAGIC_V0,
    MAGIC_V1,
    encode_message,
    encode_wrapper,
    iter_messages,
    iter_unwrapped,
    unwrap,
)
from barnabas.protocol.removed import k02_list_offsets as offsets_wire
from barnabas.protocol.removed import removed_request, removed_response
from barnabas.protocol.schema import Message
from tests.broker.authorization.kit import ALICE, lacking
from tests.support.broker.broker_rig import BrokerRig, batch, produce, state
from tests.support.broker.parked import Waiting

TABLE_0_10 = table_of_release(TABLE, "0.10")
CLIENT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1", is_for_clients=True)
LATEST, EARLIEST = -1, -2


@pytest.fixture
def rig() -> Iterator[BrokerRig]:
    made = BrokerRig()
    made.push({"t": [state(1), state(1), state(2, (2, 3))]})
    yield made
    made.close()


def send(rig: BrokerRig, message: Message, version: int, context: RequestContext = CLIENT) -> tuple[Request, Any]:
    """Carry a request out; return it and its response in its version, a `Waiting`, a NoReply or a Close."""
    key = message.API_KEY
    request = Request.for_message(
        RequestHeader(key, version, 7, "old"), TABLE_0_10[key].decoder(version)(message.encode(version), 0)[0], context
    )
    answer = TABLE_0_10[key].handle(rig.services, request)
    moved, request.moved = request.moved, []
    if isinstance(answer, Park):
        waiting = Waiting(request, rig.manager.complete_delayed)
        waiting.wait(answer)
        return request, waiting
    for each in moved:
        rig.manager.complete_delayed(each)
    assert request.header.api_version == version, "it has its own header again"
    return request, decoded(answer.message, version) if isinstance(answer, Reply) else answer


def decoded(message: Message, version: int) -> Any:
    return removed_response(message.API_KEY).decode(message.encode(version), version)


def produced(*parts: tuple[int, bytes | None], acks: int = 1, topic: str = "t") -> Message:
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    message: Any = removed_request(0)(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return message  # type: ignore[no-any-return]


def outcomes(rig: BrokerRig, *parts: tuple[int, bytes | None], version: int = 2) -> list[tuple[int, int, int]]:
    _, answer = send(rig, produced(*parts), version)
    rows = answer.responses[0].partition_responses
    return [(row.index, row.error_code, row.base_offset) for row in rows]


def fetched(*offsets: int, wait_ms: int = 0, max_bytes: int = 1 << 20) -> Message:
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index, offset in enumerate(offsets)
    ]
    message: Any = removed_request(1)(
        max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)]
    )
    return message  # type: ignore[no-any-return]


def values(rows: Any) -> list[tuple[int, int, bytes]]:
    """(offset, magic, value) of the messages in a partition's response."""
    found = []
    for message in iter_messages(rows.records):
        inner = list(iter_unwrapped(message, unwrap(message, 1 << 20))) if message.compression else [message]
        base = message.offset - inner[-1].offset if message.compression and message.magic else 0
        found += [(base + each.offset, each.magic, bytes(each.value or b"")) for each in inner]
    return found


def fetch(rig: BrokerRig, *offsets: int, version: int = 2, **about: int) -> list[Any]:
    _, answer = send(rig, fetched(*offsets, **about), version)
    return [row for topic in answer.responses for row in topic.partitions]


def message_set(*contents: bytes, magic: int = MAGIC_V1, kind: CompressionType = CompressionType.NONE) -> bytes:
    messages = b"".join(encode_message(magic, i, 5, b"k", value) for i, value in enumerate(contents))
    return encode_wrapper(kind, magic, len(contents) - 1, 5, messages) if kind else messages


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "kind", [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
)
def test_messages_are_stored_as_batches_and_come_back_as_messages(
    rig: BrokerRig, version: int, kind: CompressionType
) -> None:
    magic = MAGIC_V1 if version == 2 else MAGIC_V0
    assert outcomes(rig, (0, message_set(b"a", b"b", magic=magic, kind=kind)), version=version) == [(0, 0, 0)]
    assert outcomes(rig, (0, message_set(b"c", magic=magic, kind=kind)), version=version) == [(0, 0, 2)]
    for wanted in range(4):
        back = MAGIC_V1 if wanted >= 2 else MAGIC_V0
        (row,) = fetch(rig, 0, version=wanted)
        assert (row.error_code, row.high_watermark) == (0, 3)
        assert values(row) == [(0, back, b"a"), (1, back, b"b"), (2, back, b"c")]
    assert rig.answer(produce(batch(b"d")), 9).responses[0].partition_responses[0].base_offset == 3


def test_partitions_are_answered_in_their_order(rig: BrokerRig) -> None:
    good, bad = message_set(b"a"), message_set(b"b")[:-1] + b"?"
    assert outcomes(rig, (0, bad), (1, good), (2, good), (0, b""), (0, good), (9, good), (1, None)) == [
        (0, E.CORRUPT_MESSAGE, -1),
        (1, 0, 0),
        (2, E.NOT_LEADER_OR_FOLLOWER, -1),
        (0, 0, -1),
        (0, 0, 0),
        (9, E.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (1, 0, -1),
    ]


def test_errors_of_messages(rig: BrokerRig) -> None:
    wrapper = message_set(b"a", kind=CompressionType.GZIP)
    nested = encode_wrapper(CompressionType.GZIP, MAGIC_V1, 0, 5, wrapper)
    for records, error in (
        (nested, E.CORRUPT_MESSAGE),
        (batch(b"a"), E.CORRUPT_MESSAGE),
        (message_set(bytes(2_000_000)), E.MESSAGE_TOO_LARGE),
        (message_set(bytes(70 << 20), kind=CompressionType.GZIP), E.MESSAGE_TOO_LARGE),
        (encode_message(MAGIC_V1, 0, 5, None, b"a", 0x08), E.INVALID_TIMESTAMP),
        (encode_message(MAGIC_V1, 0, 2**62, None, b"a"), E.INVALID_TIMESTAMP),
    ):
        assert outcomes(rig, (0, records)) == [(0, error, -1)]
    assert outcomes(rig, (0, message_set(b"a"))) == [(0, 0, 0)], "nothing was written"


def test_the_error_codes_are_those_of_the_answer(rig: BrokerRig) -> None:
    """Errors are counted by what the API notes, if it does: that lacks the partitions that could not be converted."""
    good, bad = message_set(b"a"), message_set(b"b")[:-1] + b"?"
    for parts, wanted in (
        ([bad], [E.CORRUPT_MESSAGE]),
        ([good, bad], [E.NONE, E.CORRUPT_MESSAGE]),
        ([good], [E.NONE]),
    ):
        request, answer = send(rig, produced(*enumerate(parts)), 2)
        assert error_codes_of(answer) == wanted
        assert request.error_codes in (None, wanted)


def test_a_compacted_topic_takes_no_message_without_a_key() -> None:
    """INVALID_RECORD is newer than these clients."""
    rig = BrokerRig(log_cleanup_policy="compact")
    rig.push({"t": [state(1)]})
    assert outcomes(rig, (0, encode_message(MAGIC_V1, 0, 5, None, b"a"))) == [(0, E.CORRUPT_MESSAGE, -1)]
    assert outcomes(rig, (0, message_set(b"a"))) == [(0, 0, 0)]
    rig.close()


def test_without_acks_an_error_closes_the_connection(rig: BrokerRig) -> None:
    good, bad = message_set(b"a"), message_set(b"b")[:-1] + b"?"
    assert send(rig, produced((0, good), acks=0), 2)[1] is NO_REPLY
    assert isinstance(send(rig, produced((0, good), (1, bad), acks=0), 2)[1], Close)
    assert isinstance(send(rig, produced((9, good), acks=0), 2)[1], Close)
    assert outcomes(rig, (0, good)) == [(0, 0, 2)]
    _, answer = send(rig, produced((0, good), (1, bad), acks=7), 2)
    assert {row.error_code for row in answer.responses[0].partition_responses} == {E.INVALID_REQUIRED_ACKS}


def test_a_fetch_waits_and_is_converted_then(rig: BrokerRig) -> None:
    request, waiting = send(rig, fetched(0, wait_ms=1000), 1)
    assert waiting.response is None
    assert outcomes(rig, (0, message_set(b"a"))) == [(0, 0, 0)]
    answer = decoded(waiting.response, 1)
    assert values(answer.responses[0].partitions[0]) == [(0, MAGIC_V0, b"a")]
    assert request.header.api_version == 1
    _, waiting = send(rig, fetched(1, wait_ms=1000), 2)
    rig.advance_ms(2000)
    assert decoded(waiting.response, 2).responses[0].partitions[0].records == b""


def test_a_fetch_does_not_wait_for_more_than_there_is(rig: BrokerRig) -> None:
    """The reaper would convert it, and keep all other requests waiting."""
    assert outcomes(rig, (0, message_set(b"a"))) == [(0, 0, 0)]
    message: Any = fetched(0, wait_ms=1000)
    message.min_bytes = 1 << 20
    _, answer = send(rig, message, 2)
    assert not isinstance(answer, Waiting)
    assert values(answer.responses[0].partitions[0]) == [(0, MAGIC_V1, b"a")]
    message.topics[0].partitions[0].fetch_offset = 1
    _, waiting = send(rig, message, 2)
    assert waiting.response is None
    assert outcomes(rig, (0, message_set(b"b"))) == [(0, 0, 1)]
    assert values(decoded(waiting.response, 2).responses[0].partitions[0]) == [(1, MAGIC_V1, b"b")]


def test_a_partition_that_is_named_twice(rig: BrokerRig) -> None:
    """The last one counts, as in Kafka."""
    assert outcomes(rig, (0, message_set(b"a", b"b"))) == [(0, 0, 0)]
    for offsets_asked in ((0, 1), (1, 0)):
        message: Any = fetched(*offsets_asked)
        message.topics[0].partitions[1].partition = 0
        _, answer = send(rig, message, 2)
        (row,) = answer.responses[0].partitions
        assert [offset for offset, _, _ in values(row)] == [*range(offsets_asked[-1], 2)]


def test_errors_of_a_fetch(rig: BrokerRig) -> None:
    rig.answer(produce(batch(b"a", compression=CompressionType.ZSTD)), 9)
    rows = fetch(rig, 0, 5, 0)
    assert [row.error_code for row in rows] == [
        E.UNSUPPORTED_COMPRESSION_TYPE,
        E.OFFSET_OUT_OF_RANGE,
        E.NOT_LEADER_OR_FOLLOWER,
    ]


def test_control_batches_are_not_seen_but_aborted_records_are() -> None:
    rig = BrokerRig(transaction_partition_verification_enable="false")
    rig.push({"t": [state(1)]})
    aborted = build_batch(
        [SimpleRecord(5, None, b"a", [("h", b"x")])],
        producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True,
    )  # fmt: skip
    marker = end_txn_marker(ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=6)
    tp = TopicPartition("t", 0)
    for data, origin in ((aborted, AppendOrigin.CLIENT), (marker, AppendOrigin.COORDINATOR)):
        rig.manager.append_one(tp, memoryview(bytearray(data)), required_acks=1, origin=origin)
    assert outcomes(rig, (0, message_set(b"b"))) == [(0, 0, 2)]
    (row,) = fetch(rig, 0)
    assert values(row) == [(0, MAGIC_V1, b"a"), (2, MAGIC_V1, b"b")]
    rig.close()


def test_at_least_the_first_batch_is_there(rig: BrokerRig) -> None:
    for content in (b"a" * 500, b"b" * 500, b"c" * 500):
        assert outcomes(rig, (0, message_set(content)))[0][1] == 0
    (row,) = fetch(rig, 0, max_bytes=1)
    assert [offset for offset, _, _ in values(row)] == [0]
    (row,) = fetch(rig, 1, max_bytes=600)
    assert [offset for offset, _, _ in values(row)] == [1]


def test_the_conversion_of_a_response_is_bounded(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_v0, "WORK_MAX", 100)
    assert outcomes(rig, (0, message_set(b"a" * 500)), (1, message_set(b"b")))[1][1] == 0
    first, second, _ = fetch(rig, 0, 0, 0)
    assert (len(values(first)), second.records, second.error_code) == (1, b"", 0)
    first, second, _ = fetch(rig, 1, 0, 0)
    assert (first.records, len(values(second))) == (b"", 1)


def test_a_node_gets_no_removed_version(rig: BrokerRig) -> None:
    node = RequestContext("INTERNAL", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-2")
    assert isinstance(send(rig, produced((0, message_set(b"a"))), 2, node)[1], Close)


# ListOffsets


def asked(*times: tuple[int, int], replica_id: int = -1, count: int = 5) -> Message:
    rows = [
        offsets_wire.ListOffsetsPartition(partition_index=index, timestamp=timestamp, max_num_offsets=count)
        for index, timestamp in times
    ]
    return offsets_wire.ListOffsetsRequest(
        replica_id=replica_id, topics=[offsets_wire.ListOffsetsTopic(name="t", partitions=rows)]
    )


def offsets(rig: BrokerRig, *times: tuple[int, int], **about: int) -> list[tuple[int, list[int]]]:
    _, answer = send(rig, asked(*times, **about), 0)
    return [(row.error_code, row.old_style_offsets) for row in answer.topics[0].partitions]


def test_offsets_of_segments(rig: BrokerRig) -> None:
    log = rig.manager.partition(TopicPartition("t", 0)).log
    assert log is not None
    assert offsets(rig, (0, LATEST), (0, EARLIEST)) == [(0, [0]), (0, [0])]
    for _ in range(3):
        assert outcomes(rig, (0, message_set(b"a", b"b")))[0][1] == 0
        log.roll()
    assert outcomes(rig, (0, message_set(b"a")))[0][1] == 0
    assert offsets(rig, (0, LATEST), (0, EARLIEST)) == [(0, [7, 6, 4, 2, 0]), (0, [0])]
    assert offsets(rig, (0, LATEST), (0, EARLIEST), count=2) == [(0, [7, 6]), (0, [0])]
    assert offsets(rig, (0, LATEST), count=-1) == [(0, [])]
    written_ms, now_ms = 0, rig.clock.wall_ms()  # files in memory are as old as can be
    assert offsets(rig, (0, written_ms), (0, now_ms)) == [(0, [6, 4, 2, 0]), (0, [7, 6, 4, 2, 0])]
    assert offsets(rig, (0, -3), (2, LATEST), (9, LATEST)) == [
        (E.UNSUPPORTED_VERSION, []),
        (E.NOT_LEADER_OR_FOLLOWER, []),
        (E.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


def test_who_may_see_what_replicas_see(rig: BrokerRig) -> None:
    """As in later versions: beyond the high watermark, only nodes do."""
    node_only = lacking(rights.LIST_OFFSETS_AS_REPLICA)
    no_topic = lacking(rights.LIST_OFFSETS_TOPIC)
    refused = (E.TOPIC_AUTHORIZATION_FAILED, [])
    for by, replica_id, wanted in (
        (node_only, 1, refused),
        (node_only, -1, (0, [0])),
        (no_topic, -1, refused),
        (no_topic, 1, (0, [0])),
    ):
        message, alice = asked((0, LATEST), replica_id=replica_id), CLIENT.with_principal(ALICE)
        request = Request.for_message(RequestHeader(2, 0, 7, "old"), message, alice)
        assert by.admit(TABLE_0_10[2], request) is None
        (topic,) = TABLE_0_10[2].handle(rig.services, request).message.topics  # type: ignore[union-attr]
        assert [(row.error_code, row.old_style_offsets) for row in topic.partitions] == [wanted]


def test_a_segment_that_was_just_deleted(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file counts as very old, as in Kafka."""
    log = rig.manager.partition(TopicPartition("t", 0)).log
    assert log is not None
    assert outcomes(rig, (0, message_set(b"a")))[0][1] == 0

    def gone(_segment: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(LogSegment, "last_modified_ms", property(gone))
    assert offsets(rig, (0, LATEST), (0, 5)) == [(0, [1, 0]), (0, [0])]


def test_a_log_is_looked_at_once_for_a_request(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is named: a look costs a call of the system for each segment."""
    looks: list[object] = []
    monkeypatch.setattr(LogSegment, "last_modified_ms", property(lambda segment: len(looks.append(segment) or looks)))
    assert offsets(rig, *[(0, LATEST)] * 3, (1, LATEST), (0, LATEST)) == [(0, [0])] * 5
    assert len(looks) == 2


def test_all_offsets_of_an_answer_are_bounded(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_offsets, "OFFSETS_MAX", 2)
    assert offsets(rig, *[(0, LATEST)] * 3) == [(0, [0]), (0, [0]), (E.INVALID_REQUEST, [])]
