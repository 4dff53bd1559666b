"""The APIs of share groups (KIP-932) and of Kafka Streams' own groups (KIP-1071), which are not built.

Behaviour: ApiVersions does not list them, so a client that checks does not send them. A client that sends one all the
same gets UNSUPPORTED_VERSION, as from Apache Kafka while the feature is off, and keeps its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

KEYS: Final = (
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)


def handle(services: Services, request: Request) -> Reply:
    """Refuse with the API's own error response."""
    return Reply(error_response(request.message, request.version, ErrorCode.UNSUPPORTED_VERSION))


APIS: Final = tuple(
    Api(key, ROWS[key].name, (ROWS[key].min_version, ROWS[key].max_version), handle, advertised=False) for key in KEYS
)
