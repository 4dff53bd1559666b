"""APIs that are only forwarded: the frame goes to the controller unchanged, and its response to the client.

Covers `apis/k43_elect_leaders.py`, `apis/k45_alter_partition_reassignments.py`,
`apis/k46_list_partition_reassignments.py`, `apis/k55_describe_quorum.py`, `apis/k57_update_features.py`,
`apis/k64_unregister_broker.py`, `apis/k80_add_raft_voter.py` and `apis/k81_remove_raft_voter.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.requests.parking import Park
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import encode_request, response_parts
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.messages.k58_envelope import EnvelopeResponse
from tests.broker.apis.config_rig import make_request, make_services

SIZE_BYTES = 4
FORWARDED = (
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)


@pytest.mark.parametrize("key", FORWARDED)
def test_the_frame_and_the_response_are_passed_on(key: ApiKey) -> None:
    services = make_services()
    message = request_class(key)()
    request = make_request(TABLE[key], message)
    frame = encode_request(request.header, message)[SIZE_BYTES:]
    request.buffer = memoryview(frame)
    parked = TABLE[key].handle(services, request)
    assert isinstance(parked, Park)
    ((envelope, on_done),) = services.channel.sent
    assert envelope.request_data == frame
    response: Any = response_class(key)(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    parts = b"".join(bytes(part) for part in response_parts(request.header, response))
    on_done(EnvelopeResponse(response_data=parts[SIZE_BYTES:]))
    answer: Any = parked.answer()
    assert answer.message == response
