"""ApiVersions: v0-v4

Behaviour
- Lists every advertised row of the process's API table, with its versions, in order of keys. The client learns from it
  what it may send. The table is the only source.
- Lists the features that this software supports and those that the cluster has finalized (v3+).
- From v3 the client sends its software's name and version, which its connection remembers.

Version notes
- v3 is flexible, but every response has header version 0, since a client does not know the versions yet (KIP-511).
- Too new a version is answered in v0 with UNSUPPORTED_VERSION and the versions of ApiVersions alone, so that the
  client can step down (KIP-511). Its body is not read.
- Produce is listed from v0, though v0-v2 are not served: otherwise older librdkafka does not compress (KAFKA-18659).
- v4 may list supported features with minimum version 0; earlier versions omit them (KIP-1022).

Errors
- UNSUPPORTED_VERSION: see above.
- INVALID_REQUEST: a software name or version that is empty or has characters outside [a-zA-Z0-9.-] (v3+).

Different from Apache Kafka: nothing known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from barnabas.broker.metadata.features import LISTED_FEATURES, FinalizedFeatures
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api, Table
from barnabas.broker.requests.parking import Answer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages import k18_api_versions as wire

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

KEY: Final = 18
VERSIONS: Final = (0, 4)

Ranges: TypeAlias = Mapping[str, tuple[int, int]]  # feature -> the lowest and the highest level

# API key -> the lowest version to list, where it differs from the lowest one served.
LISTED_FROM: Final = {0: 0}

#: The version with which KIP-511 came: a release without it answers an unknown version with an empty list.
LISTED_WITH_ERROR_SINCE: Final = 3

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ServesTable(Protocol):
    """What this API needs of a process's services."""

    table: Table  # every API of the process


def make_api(
    finalized: Callable[[Any], FinalizedFeatures], supported: Callable[[Any], Ranges] = lambda _: LISTED_FEATURES
) -> Api:
    """Make the row for a process; `finalized` and `supported` return features, given the process's services."""

    def handle(services: ServesTable, request: Request) -> Answer:
        return answer(request, services.table, finalized(services), supported(services))

    return Api(KEY, "ApiVersions", VERSIONS, handle)


def answer(request: Request, table: Table, finalized: FinalizedFeatures, supported: Ranges = LISTED_FEATURES) -> Reply:
    """Answer one request."""
    header = request.header
    version = header.api_version
    low, high = table[KEY].versions
    if not low <= version <= high:
        # Why: the response must be encoded, and counted, in the one version that every client reads.
        request.header = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id)
        own = [wire.ApiVersion(api_key=KEY, min_version=low, max_version=high)]
        listed = own if high >= LISTED_WITH_ERROR_SINCE else []
        return Reply(wire.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=listed))
    if version >= 3:
        name, software_version = request.message.client_software_name, request.message.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(software_version)):
            return Reply(wire.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
        request.client_software_name = name
        request.client_software_version = software_version
    return Reply(response_for(version, table, finalized, supported))


def response_for(
    version: int, table: Table, finalized: FinalizedFeatures, supported: Ranges = LISTED_FEATURES
) -> wire.ApiVersionsResponse:
    """Build the response that lists everything."""
    response = wire.ApiVersionsResponse(api_keys=api_keys(table))
    if version >= 3:
        response.supported_features = [
            wire.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in supported.items()
            if low > 0 or version >= 4
        ]
        response.finalized_features_epoch = finalized.epoch
        response.finalized_features = [
            wire.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.levels.items())
        ]
    return response


def api_keys(table: Table) -> list[wire.ApiVersion]:
    """List the advertised rows of a table."""
    return [
        wire.ApiVersion(
            api_key=api.key, min_version=LISTED_FROM.get(api.key, api.versions[0]), max_version=api.versions[1]
        )
        for api in table.values()
        if api.advertised
    ]


def _finalized_features(services: Services) -> FinalizedFeatures:
    return services.metadata_cache.finalized_features


API = make_api(_finalized_features)
