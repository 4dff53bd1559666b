"""The batches that a leader refuses or changes: each rule with Kafka's error code."""

from __future__ import annotations

import random
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from barnabas.broker.storage.large_batches import LARGE_BATCH, RECORDS_MAX
from barnabas.broker.storage.log.log_types import AppendOrigin, RecordValidationError, append_settings
from barnabas.broker.storage.log.validator import RECORD_ERRORS_MAX, LeaderValidator, ValidBatch
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import (
    ATTRIBUTES_OFFSET,
    BASE_TIMESTAMP_OFFSET,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_OFFSET,
    MAX_TIMESTAMP_OFFSET,
    SimpleRecord,
    TimestampType,
    build_batch,
    iter_records,
    read_header,
    records_payload,
    update_crc,
    verify_crc,
)
from barnabas.protocol.records.compression import CompressionType
from tests.support.broker.storage_bench import Bench, Settings

NOW = 1_700_000_000_000
TP = TopicPartition("flights", 0)
COUNTS = [1, 40]
COUNT_OFFSET = 57


def made(count: int = 1, **options: Any) -> bytearray:
    timestamp = options.pop("timestamp", NOW)
    key = options.pop("key", b"k")
    return bytearray(build_batch([SimpleRecord(timestamp, key, b"value")] * count, **options))


def patched(position: int, layout: str, value: int, batch: bytearray | None = None) -> bytearray:
    batch = made(40) if batch is None else batch
    struct.pack_into(layout, batch, position, value)
    update_crc(batch, 0, len(batch))
    return batch


def check(
    batch: bytes | bytearray,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    full: bool = True,
    **settings: Any,
) -> ValidBatch:
    valid = LeaderValidator(TP, full=full).validate(
        memoryview(batch), append_settings(Settings(**settings)), origin, NOW
    )
    verify_crc(valid.data, 0, read_header(valid.data))
    return valid


def refused(code: ErrorCode, *args: Any, **kwargs: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check(*args, **kwargs)
    assert caught.value.code is code, caught.value
    return caught.value


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_good_batch_is_not_changed(count: int, kind: CompressionType) -> None:
    batch = made(count, compression=kind)
    before = bytes(batch)
    valid = check(batch)
    assert bytes(valid.data) == before
    assert valid.max_timestamp == NOW
    assert check(batch, full=False).header == read_header(before)


def test_no_batch_at_all() -> None:
    for data in (b"", b"x" * 5, made()[:-1], made()[:61]):
        refused(ErrorCode.INVALID_RECORD, data)


def test_exactly_one_batch() -> None:
    refused(ErrorCode.INVALID_RECORD, made() + made())
    assert len(check(made() + made()[:-1]).data) == len(made()), "a following cut batch is dropped"


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(magic: int) -> None:
    batch = made()
    batch[16] = magic
    refused(ErrorCode.INVALID_RECORD, batch)


@pytest.mark.parametrize("magic", [3, 255])
def test_wrong_magic(magic: int) -> None:
    batch = made()
    batch[16] = magic
    refused(ErrorCode.CORRUPT_MESSAGE, batch)


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_wrong_length(length: int) -> None:
    batch = made()
    struct.pack_into(">i", batch, 8, length)
    refused(ErrorCode.CORRUPT_MESSAGE, batch)


def test_bad_crc() -> None:
    for index in (17, 21, 30, 61, -1):
        batch = made()
        batch[index] ^= 1
        refused(ErrorCode.CORRUPT_MESSAGE, batch)


def test_base_offset_of_a_client_is_zero() -> None:
    refused(ErrorCode.INVALID_RECORD, made(base_offset=5))
    check(made(base_offset=5), origin=AppendOrigin.COORDINATOR)


def test_sizes() -> None:
    refused(ErrorCode.MESSAGE_TOO_LARGE, made(), max_message_bytes=len(made()) - 1)
    check(made(), max_message_bytes=len(made()))


@pytest.mark.parametrize("delta", [-1, -(2**31), 38, 40, 2**31 - 1])
def test_offset_range_and_count_agree(delta: int) -> None:
    refused(ErrorCode.INVALID_RECORD, patched(LAST_OFFSET_DELTA_OFFSET, ">i", delta))


@pytest.mark.parametrize("count", [-1, 0, 39, 41])
def test_header_count(count: int) -> None:
    refused(ErrorCode.INVALID_RECORD, patched(57, ">i", count))


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("claimed", [1, 39, 41, 1000])
def test_record_counts_that_the_records_contradict(kind: CompressionType, claimed: int) -> None:
    batch = patched(57, ">i", claimed, made(40, compression=kind))
    refused(ErrorCode.INVALID_RECORD, patched(LAST_OFFSET_DELTA_OFFSET, ">i", claimed - 1, batch))


def test_control_batches_of_clients() -> None:
    refused(ErrorCode.INVALID_RECORD, made(is_control=True))
    check(made(is_control=True), origin=AppendOrigin.COORDINATOR)


def test_idempotent_batches_have_a_sequence() -> None:
    refused(ErrorCode.INVALID_RECORD, made(producer_id=1, producer_epoch=0, base_sequence=-1))


def test_compression_types() -> None:
    refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, patched(ATTRIBUTES_OFFSET, ">h", 5))
    check(made(compression=CompressionType.ZSTD))


@pytest.mark.parametrize("kind", [kind for kind in CompressionType if kind])
def test_compressed_garbage(kind: CompressionType) -> None:
    batch = made(40, compression=kind)
    batch[HEADER_SIZE:] = b"\x55" * (len(batch) - HEADER_SIZE)
    update_crc(batch, 0, len(batch))
    refused(ErrorCode.INVALID_RECORD, batch)


def test_damage_inside_records_of_small_batches() -> None:
    batch = made(1)
    batch[HEADER_SIZE + 4] = 0x7E  # key length
    update_crc(batch, 0, len(batch))
    refused(ErrorCode.INVALID_RECORD, batch)


def test_compacted_topics_require_keys() -> None:
    error = refused(ErrorCode.INVALID_RECORD, made(40, key=None), compact=True)
    assert isinstance(error, RecordValidationError)
    assert [found.batch_index for found in error.record_errors] == list(range(40))
    check(made(40), compact=True)
    check(made(40, key=None))


@pytest.mark.parametrize(
    ("keyed", "keyless", "code"),
    [
        (NOW, NOW, ErrorCode.INVALID_RECORD),
        (NOW, NOW + 3_600_001, ErrorCode.INVALID_RECORD),
        (NOW + 3_600_001, NOW, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_the_timestamp_of_a_record_with_a_key_comes_before_a_missing_key(
    keyed: int, keyless: int, code: ErrorCode
) -> None:
    batch = bytearray(build_batch([SimpleRecord(keyed, b"k", b"v"), SimpleRecord(keyless, None, b"v")]))
    error = refused(code, batch, compact=True)
    assert isinstance(error, RecordValidationError)
    assert [found.batch_index for found in error.record_errors] == ([1] if code is ErrorCode.INVALID_RECORD else [0, 1])
    refused(ErrorCode.INVALID_RECORD, batch, compact=True, message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize("count", COUNTS)
def test_timestamp_bounds(count: int) -> None:
    hour = 3_600_000
    check(made(count, timestamp=NOW + hour))
    error = refused(ErrorCode.INVALID_TIMESTAMP, made(count, timestamp=NOW + hour + 1))
    assert isinstance(error, RecordValidationError)
    check(made(count, timestamp=NOW - hour), message_timestamp_before_max_ms=hour)
    refused(ErrorCode.INVALID_TIMESTAMP, made(count, timestamp=NOW - hour - 1), message_timestamp_before_max_ms=hour)
    check(made(count, timestamp=-1), message_timestamp_before_max_ms=hour)
    check(made(count, timestamp=NOW + 10 * hour), message_timestamp_type="LogAppendTime")


def test_a_wrong_greatest_timestamp_is_corrected() -> None:
    batch = patched(MAX_TIMESTAMP_OFFSET, ">q", NOW - 77, made(2))
    assert read_header(check(batch).data).max_timestamp == NOW


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", [CompressionType.NONE, CompressionType.LZ4])
def test_log_append_time(count: int, kind: CompressionType) -> None:
    valid = check(made(count, timestamp=5, compression=kind), message_timestamp_type="LogAppendTime")
    header = read_header(valid.data)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == valid.max_timestamp == NOW
    assert {record.timestamp for record in iter_records(valid.data)} == {NOW}


def test_clients_must_not_claim_log_append_time() -> None:
    stamped = made(2, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW)
    refusal = refused(ErrorCode.INVALID_TIMESTAMP, stamped, message_timestamp_type="LogAppendTime")
    assert isinstance(refusal, RecordValidationError)
    assert [error.batch_index for error in refusal.record_errors] == [0]
    assert read_header(check(stamped).data).timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("source", list(CompressionType))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_compression(source: CompressionType, target: str) -> None:
    batch = made(40, compression=source, producer_id=3, producer_epoch=1, base_sequence=7)
    before = list(iter_records(batch))
    valid = check(batch, compression_type=target)
    header = read_header(valid.data)
    wanted = CompressionType.NONE if target == "uncompressed" else CompressionType[target.upper()]
    assert header.compression_type is wanted
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (3, 1, 7, 40)
    assert list(iter_records(valid.data)) == before


def test_recompression_may_exceed_the_size() -> None:
    batch = made(200, compression=CompressionType.ZSTD)
    refused(ErrorCode.MESSAGE_TOO_LARGE, batch, compression_type="uncompressed", max_message_bytes=len(batch) + 10)


def test_gaps_in_offsets_are_closed() -> None:
    batch = made(2)
    second = HEADER_SIZE + (len(batch) - HEADER_SIZE) // 2
    batch[second + 3] = 9 << 1
    update_crc(batch, 0, len(batch))
    assert [record.offset for record in iter_records(check(batch).data)] == [0, 1]


def test_each_timestamp_is_checked() -> None:
    hour = 3_600_000
    records = [SimpleRecord(-1, b"k", b"v"), SimpleRecord(NOW - 2 * hour, b"k", b"v"), SimpleRecord(NOW, b"k", b"v")]
    error = refused(ErrorCode.INVALID_TIMESTAMP, build_batch(records), message_timestamp_before_max_ms=hour)
    assert isinstance(error, RecordValidationError)
    assert [found.batch_index for found in error.record_errors] == [1]
    check(build_batch([records[0], records[2]]), message_timestamp_before_max_ms=hour)


def test_timestamps_beyond_an_int64() -> None:
    batch = patched(BASE_TIMESTAMP_OFFSET, ">q", 2**63 - 5, bytearray(build_batch([record(NOW), record(NOW + 10)])))
    refused(ErrorCode.INVALID_TIMESTAMP, batch, message_timestamp_after_max_ms=2**63 - 1)


def test_a_client_that_claims_log_append_time_cannot_hide_timestamps() -> None:
    batch = build_batch(
        [record(NOW), record(NOW + 10**9)], timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW
    )
    refused(ErrorCode.INVALID_TIMESTAMP, batch)


def record(timestamp: int) -> SimpleRecord:
    return SimpleRecord(timestamp, b"k", b"value")


def test_what_the_header_alone_proves() -> None:
    """`barnabas.record.validation=header`: records are read only if the topic needs them."""
    batch = made(40, compression=CompressionType.LZ4)
    batch[HEADER_SIZE:] = b"\x55" * (len(batch) - HEADER_SIZE)
    update_crc(batch, 0, len(batch))
    assert check(batch, full=False).max_timestamp == NOW
    for settings in ({"compact": True}, {"message_timestamp_before_max_ms": 5}, {"compression_type": "gzip"}):
        refused(ErrorCode.INVALID_RECORD, batch, full=False, **settings)
    refused(ErrorCode.INVALID_RECORD, batch)
    refused(ErrorCode.INVALID_RECORD, patched(57, ">i", 41), full=False)
    refused(ErrorCode.INVALID_TIMESTAMP, made(40, timestamp=NOW + 10**9), full=False)


@pytest.mark.parametrize("seed", range(12))
def test_every_accepted_batch_can_be_read(seed: int) -> None:
    """Fuzz: damaged batches with a right CRC, for topics of every kind; consumers can read every accepted one."""
    chance = random.Random(seed)
    accepted = 0
    refusals = set()
    for _ in range(300):
        kind = chance.choice(list(CompressionType))
        count = chance.randint(1, 5)
        records = [
            SimpleRecord(NOW + chance.randint(-9, 9), chance.choice([None, b"k"]), b"v" * chance.randint(0, 60))
            for _ in range(count)
        ]
        batch = bytearray(build_batch(records, compression=kind))
        for _ in range(chance.randint(0, 2)):
            start = chance.choice([ATTRIBUTES_OFFSET, HEADER_SIZE])
            batch[chance.randrange(start, len(batch))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        update_crc(batch, 0, len(batch))
        settings = {
            "compact": chance.random() < 0.3,
            "compression_type": chance.choice(["producer", "producer", "uncompressed", "zstd", "lz4"]),
            "message_timestamp_type": chance.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
            "message_timestamp_after_max_ms": chance.choice([10, 2**63 - 1]),
            "message_timestamp_before_max_ms": chance.choice([10, 2**63 - 1]),
        }
        try:
            valid = check(batch, **settings)
        except ApiError as error:
            refusals.add(error.code)
            continue
        accepted += 1
        header = read_header(valid.data)
        found = list(iter_records(valid.data))
        assert [r.offset for r in found] == list(range(header.record_count))
        assert header.last_offset_delta == header.record_count - 1
        assert valid.max_timestamp == header.max_timestamp == max(-1, *(r.timestamp for r in found))
        assert not settings["compact"] or all(r.key is not None for r in found)
    assert accepted > 50
    assert refusals <= REFUSALS


REFUSALS = {
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


# Records that are many bytes once they are decompressed

PACKED = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
LARGEST = 300_000


def packed(size: int, kind: CompressionType = CompressionType.ZSTD) -> bytearray:
    """Build a batch of one record with a value of `size` bytes."""
    return bytearray(build_batch([SimpleRecord(NOW, b"k", bytes(size))], compression=kind))


def bounded(batch: bytearray, **settings: Any) -> ValidBatch:
    bounds = LeaderValidator(TP, decompressed_max=LARGEST, ordinary_max=100_000)
    return bounds.validate(memoryview(batch), append_settings(Settings(**settings)), AppendOrigin.CLIENT, NOW)


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("size", [90_000, 110_000, 290_000])
def test_batches_of_more_than_ordinary_size_are_valid(kind: CompressionType, size: int) -> None:
    batch = packed(size, kind)
    before = bytes(batch)
    assert bytes(bounded(batch).data) == before
    assert not LARGE_BATCH.locked()


@pytest.mark.parametrize("kind", PACKED)
def test_a_decompression_bomb_is_refused_with_the_name_of_the_setting(kind: CompressionType) -> None:
    bound = r"more than 300000 bytes .* barnabas\.record\.decompressed\.max\.bytes"
    with pytest.raises(ApiError, match=bound) as refused:
        bounded(packed(310_000, kind))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert not LARGE_BATCH.locked()


def test_large_records_are_converted_and_stamped_like_others() -> None:
    batch = packed(200_000)
    _, attributes = batch[ATTRIBUTES_OFFSET : ATTRIBUTES_OFFSET + 2]
    batch = patched(ATTRIBUTES_OFFSET, ">h", attributes | 8, batch)  # as if a broker had stamped it
    converted = bounded(batch, compression_type="gzip")
    header = read_header(converted.data)
    assert header.compression_type is CompressionType.GZIP
    assert bytes(records_payload(converted.data, 0, header))[-200_001:-1] == bytes(200_000)
    verify_crc(converted.data, 0, header)


def test_one_large_batch_at_a_time() -> None:
    with LARGE_BATCH, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bounded, packed(200_000))
        bounded(packed(90_000))  # an ordinary one does not wait
        assert not waiting.done()
        LARGE_BATCH.release()
        try:
            assert waiting.result(30).header.record_count == 1
        finally:
            LARGE_BATCH.acquire()


def test_a_batch_of_more_than_64_mib_is_appended_by_default() -> None:
    log = Bench().open(decompressed_max=1 << 28)
    info = log.append_as_leader(memoryview(packed(65 << 20)), leader_epoch=0)
    assert (info.first_offset, info.last_offset) == (0, 0)


def test_a_compressed_batch_of_too_many_records_is_refused_before_it_is_decompressed() -> None:
    batch = made(compression=CompressionType.ZSTD)
    for position, value in ((LAST_OFFSET_DELTA_OFFSET, RECORDS_MAX), (COUNT_OFFSET, RECORDS_MAX + 1)):
        patched(position, ">i", value, batch)
    with pytest.raises(ApiError, match="1000001 records, more than 1000000") as refused:
        check(batch)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("settings", [{"message_timestamp_after_max_ms": 10}, {"compact": True}])
def test_so_many_invalid_records_are_told_and_no_more(settings: dict[str, Any]) -> None:
    batch = made(RECORD_ERRORS_MAX + 1, timestamp=NOW + 100, key=None, compression=CompressionType.ZSTD)
    with pytest.raises(RecordValidationError) as refused:
        check(batch, **settings)
    assert [error.batch_index for error in refused.value.record_errors] == list(range(RECORD_ERRORS_MAX))
    if settings.get("compact"):
        assert "due to at least 1000 record errors in total" in refused.value.message
