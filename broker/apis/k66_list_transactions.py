"""ListTransactions: v0-v2

Behaviour: lists the transactional ids that this broker coordinates, filtered by state, producer id, duration and a
regular expression for the whole id, in RE2's syntax (KIP-664). Unknown state names are returned, and match nothing.

Version notes: v1 (KIP-994) duration; v2 (KIP-1152) pattern.

Errors: COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION.

Different from Apache Kafka: a pattern that takes too long is invalid too (`common/regex/pattern.py` has the
limits).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.transactions.coordinator import Filters
from barnabas.broker.coordinators.transactions.transaction import TxnState
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.errors import ApiError
from barnabas.protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

STATES = frozenset(state.value for state in TxnState)


def handle(services: Services, request: Request) -> Reply:
    """Reply at once."""
    message: ListTransactionsRequest = request.message
    filters = Filters(
        frozenset(message.state_filters), frozenset(message.producer_id_filters), message.duration_filter,
        message.transactional_id_pattern,
    )  # fmt: skip
    try:
        found = services.transaction_coordinator.list(filters)
    except ApiError as error:
        return Reply(ListTransactionsResponse(error_code=error.code))
    return Reply(
        ListTransactionsResponse(
            error_code=0,
            unknown_state_filters=[name for name in message.state_filters if name not in STATES],
            transaction_states=[
                TransactionState(
                    transactional_id=transactional_id, producer_id=data.producer_id, transaction_state=data.state.value
                )
                for transactional_id, data in found
                if request.access is None or request.access.allows(rights.LIST_TRANSACTION, transactional_id)
            ],
        )
    )


API = Api(66, "ListTransactions", (0, 2), handle)
