"""Produce: v3-v13

Behaviour
- Each partition gets exactly one record batch (magic 2). Its leader validates, deduplicates and appends it whole.
- acks=0: no response; an error closes the connection, the only signal such a client can get.
- acks=1: the response is sent once the leader has written.
- acks=-1: the response is sent when all in-sync replicas have the batch (`DelayedProduce`). That is at once for a
  partition with one replica. After timeout_ms the partition gets REQUEST_TIMED_OUT; a negative value times out at once.
- Only Kafka's own admin client id may write to internal topics.
- Before the first batch of a transaction in a partition, the transaction's coordinator is asked whether the partition
  is part of the transaction (KIP-890). From v12 on it adds the partition, since the client no longer does
  (`verified.py`).

Version notes
- v7: zstd. v8 (KIP-467): record_errors, error_message. v10 (KIP-951): current_leader, node_endpoints. v11 (KIP-890):
  the client knows TRANSACTION_ABORTABLE. v12 (KIP-890): the broker adds partitions. v13 (KIP-516): topic ids.

Errors: INVALID_REQUIRED_ACKS, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, INVALID_RECORD,
CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP,
OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TOPIC_EXCEPTION, NOT_ENOUGH_REPLICAS,
NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR, TRANSACTIONAL_ID_AUTHORIZATION_FAILED for all
partitions of a request with a transactional batch and without a transactional id; INVALID_TXN_STATE,
INVALID_PRODUCER_ID_MAPPING, TRANSACTION_ABORTABLE (v11), CONCURRENT_TRANSACTIONS (v12) for a batch that its transaction
does not expect.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.apis.redirect import current_leader
from barnabas.broker.apis.verified import NOTHING_TO_VERIFY, Verdict, draw_guards, produce_error, producer_of, verify
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.transactions.verification import Operation
from barnabas.broker.metadata.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.replication.delayed.delayed_produce import DelayedProduce, Errors
from barnabas.broker.replication.replica_manager import FailedAppend
from barnabas.broker.requests.answers import NO_REPLY, Close, Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer, Park
from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.broker.storage.log.validator import RECORD_ERRORS_MAX
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LEGACY_BATCH_SIZE_MIN,
    LOG_OVERHEAD,
    MAGIC_END,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    peek_attributes,
    peek_magic,
    peek_size,
)
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.plain import peek_one

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.requests.request import Request
    from barnabas.broker.storage.log.log_types import LogAppendInfo
    from barnabas.protocol.schema import Message

ADMIN_CLIENT_ID: Final = "__admin_client"
ERRORS_SHOWN: Final = 5  # in the log, of a request whose client wants no response
TOPIC_IDS_FROM: Final = 13
REDIRECTS_FROM: Final = 10
ZSTD_FROM: Final = 7
ABORTABLE_FROM: Final = 11
ADDS_FROM: Final = 12

_MIN_BATCH_SIZE: Final = LOG_OVERHEAD + LEGACY_BATCH_SIZE_MIN  # the smallest that any format ever had
_ZSTD: Final = int(CompressionType.ZSTD)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
# Why: looked up for every batch
_INTERNAL_TOPICS: Final = INTERNAL_TOPICS
_CLIENT: Final = AppendOrigin.CLIENT

Awaited = tuple[TopicPartition, "PartitionProduceResponse", "Partition", "LogAppendInfo"]


def handle(services: Services, request: Request) -> Answer:
    """Append each partition's batch, then answer, or wait for the replicas, as `acks` demands."""
    message: ProduceRequest = request.message
    if (refusal := _refuse_transaction(request, message)) is not None:
        return refusal
    if message.acks not in (-1, 0, 1):
        if services.quotas.is_active:
            request.throttle = services.quotas.charge_produce(request, is_silent=False)
        return Reply(_refuse_all(message, ErrorCode.INVALID_REQUIRED_ACKS))
    if message.transactional_id is not None:
        return _produce_verified(services, request, message, message.transactional_id)
    return _produce(services, request, NOTHING_TO_VERIFY)


def _refuse_transaction(request: Request, message: ProduceRequest) -> Answer | None:
    """Return the answer to transactional records that name no transaction, or one in which the client may not write.

    All partitions are refused, also those with other records.
    """
    access, transactional_id = request.access, message.transactional_id
    if (access is None and transactional_id is not None) or not _is_transactional(message):
        return None
    if (
        access is not None
        and transactional_id is not None
        and access.allows(rights.PRODUCE_TRANSACTION, transactional_id)
    ):
        return None
    if message.acks == 0:
        error = rights.PRODUCE_TRANSACTION.error
        codes = [int(error) for topic in message.topic_data for _ in topic.partition_data]
        return Close(f"produce with acks=0 failed: {error.name}", error_codes=codes)
    return Reply(_refuse_all(message, rights.PRODUCE_TRANSACTION.error))


def _is_transactional(message: ProduceRequest) -> bool:
    """Return whether a request has transactional records."""
    for topic in message.topic_data:  # Why not any(): a generator takes longer, and nearly every request is small
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) >= HEADER_SIZE
                and peek_attributes(records) & TRANSACTIONAL_BIT
                and producer_of(records) is not None
            ):
                return True
    return False


def _produce_verified(services: Services, request: Request, message: ProduceRequest, transactional_id: str) -> Answer:
    """Produce once the coordinator has confirmed that the partitions are part of the transaction."""
    names = services.metadata_cache.snapshot.topic_names if request.version >= TOPIC_IDS_FROM else None
    batches = {
        TopicPartition(topic.name if names is None else names.get(topic.topic_id, ""), data.index): producer
        for topic in message.topic_data
        for data in topic.partition_data
        if (producer := producer_of(data.records)) is not None
    }
    if (access := request.access) is not None:  # Why: a partition that is refused must not join the transaction
        batches = {tp: producer for tp, producer in batches.items() if access.has(rights.PRODUCE_TOPIC, tp.topic)}
    producers = {producer for producer, _ in batches.values()}
    if len(producers) > 1:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
    operation = operation_of(request.version)
    draw = partial(draw_guards, services, batches, operation)
    guards = draw()
    if not guards:
        return _produce(services, request, NOTHING_TO_VERIFY)
    carry_out = partial(_produce, services, request)
    return verify(services, transactional_id, producers.pop(), guards, draw, operation, carry_out)


def operation_of(version: int) -> Operation:
    """How a broker ensures, for a client of this version, that a partition is part of the transaction."""
    if version >= ADDS_FROM:
        return Operation.ADD
    return Operation.VERIFY if version >= ABORTABLE_FROM else Operation.VERIFY_OLD


def _produce(services: Services, request: Request, verdict: Verdict) -> Answer:
    message: ProduceRequest = request.message
    acks = message.acks
    names = services.metadata_cache.snapshot.topic_names if request.version >= TOPIC_IDS_FROM else None
    responses: list[TopicProduceResponse] = []
    appends = _Appends(services, request, message, verdict)
    answered, awaited = appends.answered, appends.awaited
    access = request.access
    for topic in message.topic_data:
        name = topic.name if names is None else names.get(topic.topic_id)
        partition_responses = []
        is_allowed = access is None or name is None or access.allows(rights.PRODUCE_TOPIC, name)
        for data in topic.partition_data:
            if not is_allowed:
                response = appends.refuse(data.index, rights.PRODUCE_TOPIC.error)
            elif name is None:
                response = appends.refuse(data.index, ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                response = appends.append(name, data.index, data.records)
            partition_responses.append(response)
        responses.append(
            TopicProduceResponse(name=name or "", topic_id=topic.topic_id, partition_responses=partition_responses)
        )
    reply = ProduceResponse(responses=responses)
    if acks == 0:
        if services.quotas.is_active:
            request.throttle = services.quotas.charge_produce(request, is_silent=True)
        return _answer_silently(request, reply)
    if acks == -1 and not _all_safe(awaited):
        return _park(services, request, message, reply, answered, awaited)
    codes = appends.codes if acks == 1 else _codes_of(reply)
    return Reply(_finish(services, request, reply, codes, answered))


def _codes_of(reply: ProduceResponse) -> list[int]:
    return [p.error_code for topic in reply.responses for p in topic.partition_responses]


def _all_safe(awaited: list[Awaited]) -> bool:
    """Whether every batch is on all in-sync replicas already. Notes an ISR that became too small."""
    for _, response, partition, info in awaited:
        is_reached, error = partition.has_reached(info.last_offset + 1)
        if not is_reached:
            return False
        response.error_code = error
    return True


class _Appends:
    """The appends of one request: what they have in common, and what became of them."""

    __slots__ = (
        "acks",
        "answered",
        "awaited",
        "codes",
        "errors",
        "errors_left",
        "guards",
        "manager",
        "request",
        "version",
    )

    def __init__(self, services: Services, request: Request, message: ProduceRequest, verdict: Verdict) -> None:
        self.manager = services.replica_manager
        self.request = request
        self.version = request.version
        self.acks = message.acks
        self.guards = verdict.guards
        self.errors = verdict.errors
        self.answered: list[tuple[TopicPartition, PartitionProduceResponse]] = []
        self.awaited: list[Awaited] = []
        self.codes: list[int] = []  # of the responses so far; the wait for replicas may change them
        self.errors_left = RECORD_ERRORS_MAX  # of single records, that the response may still name

    def refuse(self, index: int, error: ErrorCode) -> PartitionProduceResponse:
        """Return the response of a partition whose topic the client may not write, or nobody knows."""
        self.codes.append(error)
        return PartitionProduceResponse(index=index, error_code=error, base_offset=-1)

    def append(self, topic: str, index: int, records: memoryview | None) -> PartitionProduceResponse:
        """Append a partition's batch; return its response."""
        tp = self.manager.hosted.name_of(topic, index)
        response = self._append(tp, topic, records)
        self.answered.append((tp, response))
        return response

    def _append(self, tp: TopicPartition, topic: str, records: memoryview | None) -> PartitionProduceResponse:
        manager, request = self.manager, self.request
        try:
            if topic in _INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
            checked = _check_batch(records, self.version)
            if self.errors and tp in self.errors:
                raise produce_error(self.errors[tp], operation_of(self.version))
        except ApiError as error:
            if manager.hosted.metadata_cache.snapshot.partition(tp) is None:  # Why only now: it is there, as a rule
                return self._failed(tp, FailedAppend(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return self._failed(tp, FailedAppend(error.code, error_message=error.message))
        guard = self.guards.get(tp) if self.guards else None
        try:
            info, partition = manager.append_one(tp, checked, required_acks=self.acks, origin=_CLIENT, guard=guard)
        except ApiError as error:
            failed = manager.failed_append(tp, error)
            # Why a bound for all together: small requests may have very many batches with very many invalid records.
            failed.record_errors = told = list(failed.record_errors)[: max(1, self.errors_left)]
            self.errors_left -= len(told)
            return self._failed(tp, failed)
        request.moved.append(tp)
        self.codes.append(0)
        response = PartitionProduceResponse(
            index=tp.partition,
            error_code=0,
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )
        if self.acks == -1:
            self.awaited.append((tp, response, partition, info))
        return response

    def _failed(self, tp: TopicPartition, result: FailedAppend) -> PartitionProduceResponse:
        self.codes.append(result.error)
        return PartitionProduceResponse(
            index=tp.partition,
            error_code=result.error,
            base_offset=-1,
            log_start_offset=result.log_start_offset,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=e.batch_index, batch_index_error_message=e.message)
                for e in result.record_errors
            ],
            error_message=result.error_message,
        )


def _check_batch(records: memoryview | None, version: int) -> memoryview:
    """Require exactly one whole batch of magic 2, in a compression this version may use; a part may follow it."""
    if records is not None and version >= ZSTD_FROM and peek_one(records) >= 0:
        return records  # nearly every batch
    size = 0 if records is None else len(records)
    batch_size = -1 if records is None else _size_of_batch(records, 0, size)
    if records is None or batch_size < 0:
        raise ApiError(ErrorCode.INVALID_RECORD, "there must be at least one record batch per partition")
    if peek_magic(records) < MAGIC_V2:
        raise ApiError(ErrorCode.INVALID_RECORD, "only record batches of magic 2 are allowed")
    if size > batch_size and _size_of_batch(records, batch_size, size) >= 0:
        raise ApiError(ErrorCode.INVALID_RECORD, "there must be exactly one record batch per partition")
    if version < ZSTD_FROM and peek_attributes(records) & COMPRESSION_MASK >= _ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return records if batch_size == size else records[:batch_size]


def _size_of_batch(records: memoryview, position: int, end: int) -> int:
    """Return the size of the batch at `position`; -1 if it is not whole. Raises ApiError(CORRUPT_MESSAGE)."""
    left = end - position
    if left < LOG_OVERHEAD:
        return -1
    size = peek_size(records, position)
    if size < _MIN_BATCH_SIZE:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE)
    if left < MAGIC_END:
        return -1
    if peek_magic(records, position) > MAGIC_V2:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE)
    return size if size <= left else -1


def _refuse_all(message: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
    )


def _answer_silently(request: Request, reply: ProduceResponse) -> Answer:
    errors = {
        f"{topic.name}-{p.index}": ErrorCode(p.error_code).name
        for topic in reply.responses
        for p in topic.partition_responses
        if p.error_code
    }
    if not errors:
        return NO_REPLY
    codes = [int(p.error_code) for topic in reply.responses for p in topic.partition_responses]
    shown = ", ".join(f"{name} -> {error}" for name, error in list(errors.items())[:ERRORS_SHOWN])
    more = f" and {len(errors) - ERRORS_SHOWN} more" if len(errors) > ERRORS_SHOWN else ""
    return Close(
        f"error during produce request with correlation id {request.header.correlation_id} "
        f"from client id {request.client_id} with ack=0: {shown}{more}",
        error_codes=codes,
    )


def _park(
    services: Services,
    request: Request,
    message: ProduceRequest,
    reply: ProduceResponse,
    answered: list[tuple[TopicPartition, PartitionProduceResponse]],
    awaited: list[Awaited],
) -> Answer:
    responses = {tp: response for tp, response, _, _ in awaited}

    def respond(errors: Errors) -> Message:
        for tp, error in errors.items():
            responses[tp].error_code = error
        return _finish(services, request, reply, _codes_of(reply), answered)

    pending = [(tp, info.last_offset + 1) for tp, _, _, info in awaited]
    manager = services.replica_manager
    operation = DelayedProduce(manager.hosted, manager.expirations, pending, message.timeout_ms, respond)
    request.buffer = None  # the log has the records: free the frame while the request waits
    for topic in message.topic_data:
        for data in topic.partition_data:
            data.records = None
    return Park(operation, services.purgatories.produce, list(responses))


def _finish(
    services: Services,
    request: Request,
    reply: ProduceResponse,
    codes: list[int],
    answered: list[tuple[TopicPartition, PartitionProduceResponse]],
) -> ProduceResponse:
    """Charge the request, note the error codes; add the current leader to partitions that are led elsewhere."""
    if services.quotas.is_active:
        request.throttle = services.quotas.charge_produce(request, is_silent=False)
    request.error_codes = codes
    if request.version < REDIRECTS_FROM or _NOT_LEADER not in codes:
        return reply
    nodes: dict[int, NodeEndpoint] = {}
    for tp, response in answered:
        if response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader_id, leader_epoch, node = current_leader(services, request, tp)
            response.current_leader.leader_id = leader_id
            response.current_leader.leader_epoch = leader_epoch
            if node is not None:
                nodes[node.id] = NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
    if nodes:
        reply.node_endpoints = list(nodes.values())
    return reply


API: Final = Api(0, "Produce", (3, 13), handle)
