"""Produce v0-v2: messages of the formats v0 and v1, which are converted to record batches before they are appended.

Behaviour
- The messages of a partition become one batch, so that all of them together are bound by `max.message.bytes`.
- A partition without a whole message gets offset -1 and no error, as in Kafka.
- A request has at most `RECORDS_MAX` records, and its wrappers decompress to `BYTES_MAX` bytes; partitions beyond get
  MESSAGE_TOO_LARGE.
- An error of one partition leaves the others alone; with acks=0 it closes the connection.

Errors of the conversion: CORRUPT_MESSAGE (CRC, sizes, magic, a wrapper in a wrapper), MESSAGE_TOO_LARGE,
INVALID_TIMESTAMP (LogAppendTime, which a producer must not claim). INVALID_RECORD, which came with 2.4, is
CORRUPT_MESSAGE for these clients, and KAFKA_STORAGE_ERROR is NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Close, Ending, NoReply, Reply
from barnabas.broker.storage.large_batches import ORDINARY_BYTES
from barnabas.broker.wiring.removed.raising import carry_out, to_removed
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.records.compression import DecompressedTooLargeError
from barnabas.protocol.records.up_conversion import RecordBudget, SetTooLargeError, StampedMessageError, to_batch

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request

#: Codes that clients of these versions do not know, and what they get instead.
LOWERED: Final = {
    ErrorCode.INVALID_RECORD: ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
_ACKS: Final = (-1, 0, 1)

#: Per topic and partition of a request: the answer that is known already, or None.
Known = list[list[PartitionProduceResponse | None]]


def handle(api: Api, services: Services, request: Request) -> Answer:
    """Convert each partition's messages, and produce those that can be converted."""
    message: ProduceRequest = request.message
    known: Known = []
    topics = []
    budget = RecordBudget()
    for topic in message.topic_data:
        answers, good = _converted(services, request, topic, budget)
        known.append(answers)
        topics.append(TopicProduceData(name=topic.name, partition_data=good))
    raised = ProduceRequest(acks=message.acks, timeout_ms=message.timeout_ms, topic_data=topics)
    return carry_out(api, services, request, raised, lambda given: _lowered(request, given, known), needs_frame=False)


def _converted(
    services: Services, request: Request, topic: TopicProduceData, budget: RecordBudget
) -> tuple[list[PartitionProduceResponse | None], list[PartitionProduceData]]:
    """Return the answers that are known of a topic's partitions, and the others with record batches."""
    access = request.access
    # Why not converted: the API refuses them anyway, before it looks at their records.
    is_refused = request.message.acks not in _ACKS or not (
        access is None or access.allows(rights.PRODUCE_TOPIC, topic.name)
    )
    answers: list[PartitionProduceResponse | None] = []
    good = []
    for data in topic.partition_data:
        records: Any = None
        code = ErrorCode.NONE
        if not is_refused:
            try:
                records = _batch(services, TopicPartition(topic.name, data.index), data.records, budget)
            except ApiError as error:
                code = error.code
        if records is None and not is_refused:
            answers.append(PartitionProduceResponse(index=data.index, error_code=_lower(code), base_offset=-1))
        else:
            answers.append(None)
            good.append(PartitionProduceData(index=data.index, records=records))
    return answers, good


def _batch(services: Services, tp: TopicPartition, records: Any, budget: RecordBudget) -> memoryview | None:
    """Return a partition's messages as a record batch; None if there is no whole one. Raises ApiError."""
    log = services.replica_manager.partition(tp).log
    if log is None:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # Why no more than the ordinary bound: a larger set waits for its turn where batches of today do, and this does not.
    decompressed_max = min(services.config.barnabas_record_decompressed_max_bytes, ORDINARY_BYTES)
    try:
        converted = to_batch(
            b"" if records is None else records,
            batch_max=log.config.max_message_bytes,
            decompressed_max=decompressed_max,
            budget=budget,
        )
    except (SetTooLargeError, DecompressedTooLargeError) as error:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except StampedMessageError as error:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, str(error)) from None
    except MalformedMessageError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return None if converted is None else memoryview(converted.batch)


def _lower(code: int) -> int:
    return LOWERED.get(ErrorCode(code), code)


def _lowered(request: Request, given: Ending, known: Known) -> Ending:
    """Add the answers that were known, in the order of the request."""
    if isinstance(given, NoReply):
        failed = [
            answer.error_code for answers in known for answer in answers if answer is not None and answer.error_code
        ]
        return Close("produce with acks=0 failed", error_codes=failed) if failed else given
    if not isinstance(given, Reply):
        return given
    message: Any = given.message
    assert isinstance(message, ProduceResponse), message
    for topic, answers in zip(message.responses, known, strict=True):
        produced = iter(topic.partition_responses)
        topic.partition_responses = [next(produced) if answer is None else answer for answer in answers]
        for partition in topic.partition_responses:
            partition.error_code = _lower(partition.error_code)
    request.error_codes = None  # the codes that the API noted are not all of the answer's
    return Reply(to_removed(message), given.throttle_time_ms, given.close_after)
