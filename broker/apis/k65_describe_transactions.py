"""DescribeTransactions: v0

Behaviour: returns the state of transactional ids that this broker coordinates, with the partitions of their
transactions (KIP-664).

Errors (each on an id): INVALID_REQUEST (empty), TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS.

Different from Apache Kafka: an id that is named twice is described once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.common.topic_partition import partitions_by_topic
from barnabas.protocol.errors import ApiError
from barnabas.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Reply:
    """Reply at once."""
    message: DescribeTransactionsRequest = request.message
    states = [
        _describe(services, request, transactional_id) for transactional_id in dict.fromkeys(message.transactional_ids)
    ]
    return Reply(DescribeTransactionsResponse(transaction_states=states))


def _describe(services: Services, request: Request, transactional_id: str) -> TransactionState:
    access = request.access
    try:
        if access is not None:
            access.require(rights.DESCRIBE_TRANSACTION, transactional_id)
        data = services.transaction_coordinator.describe(transactional_id)
    except ApiError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    topics = partitions_by_topic(sorted(data.partitions))
    if access is not None:
        allowed = access.allowed(rights.DESCRIBE_TRANSACTION_TOPIC, topics)
        topics = {topic: ids for topic, ids in topics.items() if topic in allowed}
    return TransactionState(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=data.state.value,
        transaction_timeout_ms=data.timeout_ms,
        transaction_start_time_ms=data.start_ms,
        producer_id=data.producer_id,
        producer_epoch=data.producer_epoch,
        topics=[TopicData(topic=topic, partitions=ids) for topic, ids in topics.items()],
    )


API = Api(65, "DescribeTransactions", (0, 0), handle)
