"""Fetch v0-v3: record batches are converted to messages of format v0 (v0, v1) or v1 (v2, v3).

Behaviour
- What is read is what a Fetch v4 with read_uncommitted reads: at most `fetch.max.bytes`, and before v3 nothing lower.
- A request waits only while there is nothing to read, whatever its min_bytes. Why: when its time is up, it is answered
  by the thread that ends the waits of all requests, which then has nothing to convert.
- Each partition's whole batches are converted, up to their own size in bytes, and at least the first.
- A response ends when its messages take `WORK_MAX` bytes before compression: the partitions after that have no records,
  and are there in a later response. Why a bound: small batches can hold very many records.
- A consumer at a control batch at the end of a partition gets no records and no wait, as in Kafka.

Errors of the conversion: UNSUPPORTED_COMPRESSION_TYPE (zstd), MESSAGE_TOO_LARGE (`WRAPPED_MAX`), CORRUPT_MESSAGE.

Threads: the conversion runs on the thread that answers: a handler, or the one that completes a parked request, which
is a handler that appended records or moved the high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.requests.answers import Ending, Reply
from barnabas.broker.wiring.removed.raising import carry_out, to_current, to_removed
from barnabas.protocol.errors import ErrorCode, MalformedMessageError
from barnabas.protocol.messages.k01_fetch import FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.records.down_conversion import WRAPPED_MAX, WrapperTooLargeError, ZstdError, to_message_set
from barnabas.protocol.records.message_set import MAGIC_V0, MAGIC_V1

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request

#: The first version whose consumers know format v1.
V1_FROM: Final = 2

#: About ten seconds of a thread.
WORK_MAX: Final = WRAPPED_MAX

Offsets = dict[tuple[str, int], int]


def handle(api: Api, services: Services, request: Request) -> Answer:
    """Fetch as today, then convert what was read."""
    message: FetchRequest = request.message
    magic = MAGIC_V1 if request.version >= V1_FROM else MAGIC_V0
    offsets = {(t.topic, p.partition): p.fetch_offset for t in message.topics for p in t.partitions}
    raised: Any = to_current(message)
    raised.min_bytes = min(message.min_bytes, 1)
    return carry_out(api, services, request, raised, lambda given: _lowered(given, magic, offsets), needs_frame=False)


def _lowered(given: Ending, magic: int, offsets: Offsets) -> Ending:
    if not isinstance(given, Reply):
        return given
    message: Any = given.message
    assert isinstance(message, FetchResponse), message
    left = WORK_MAX
    for topic in message.responses:
        converted = []
        for data in topic.partitions:
            first_offset = offsets.get((topic.topic, data.partition_index), 0)
            changed, work = _converted(data, magic, first_offset, left)
            converted.append(changed)
            left -= work
        topic.partitions = converted
    return Reply(to_removed(message), given.throttle_time_ms, given.close_after)


def _converted(data: PartitionData, magic: int, first_offset: int, work_max: int) -> tuple[PartitionData, int]:
    """Return a partition's data with messages, and the bytes of these; `data` stays as it is."""
    records: Any = data.records
    if not records:
        return data, 0
    messages, work = b"", 0
    try:
        if work_max > 0:
            batches = records if isinstance(records, (bytes, memoryview)) else records.read()
            messages, work = to_message_set(batches, magic, first_offset, len(batches), work_max)
    except ZstdError:
        return _failed(data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), 0
    except WrapperTooLargeError:
        return _failed(data, ErrorCode.MESSAGE_TOO_LARGE), WRAPPED_MAX
    except MalformedMessageError:
        return _failed(data, ErrorCode.CORRUPT_MESSAGE), 0
    except OSError:
        return _failed(data, ErrorCode.NOT_LEADER_OR_FOLLOWER), 0
    changed = PartitionData(
        partition_index=data.partition_index,
        error_code=data.error_code,
        high_watermark=data.high_watermark,
        records=messages,
    )
    return changed, work


def _failed(data: PartitionData, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=data.partition_index, error_code=code, high_watermark=-1, records=b"")
