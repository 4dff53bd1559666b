"""ApiVersions: v0-v4

Behaviour: what this controller serves, from its table, and the features that the cluster has finalized. A version that is
too new is answered in version 0 with UNSUPPORTED_VERSION and the list, so that the client can step down (KIP-511).

Errors: UNSUPPORTED_VERSION, INVALID_REQUEST (a client name that is none).
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from broker.answers import Answer, Reply
from broker.apis.api import Api
from broker.request_channel import Request
from controller.apis.services import ControllerServices
from controller.quorum_controller import SUPPORTED_FEATURES

_FIRST_VERSION_WITH_SOFTWARE: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(services: ControllerServices, request: Request) -> Answer:
    """List the APIs."""
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[1])
            for api in services.table.values()
            if api.advertised
        ]
    )
    message = request.message
    if message is None:
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        response.api_keys = [key for key in response.api_keys if key.api_key == API.key]
        return Reply(response)
    if request.header.api_version >= _FIRST_VERSION_WITH_SOFTWARE and not _is_valid(message):
        return Reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
    image = services.controller.committed_image
    response.supported_features = [
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]
    response.finalized_features_epoch = image.offset
    response.finalized_features = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in image.features.items()
    ]
    return Reply(response)


def _is_valid(message: object) -> bool:
    name = getattr(message, "client_software_name", "")
    version = getattr(message, "client_software_version", "")
    return bool(_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version))


API = Api(18, "ApiVersions", (0, 4), handle)
