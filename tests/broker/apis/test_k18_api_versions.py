"""ApiVersions: the advertised table, features, client software, and versions that are too new."""

from __future__ import annotations

import pytest

from barnabas.broker.apis.k18_api_versions import answer
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api, make_table
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1")


def _never(*_: object) -> Reply:
    raise AssertionError("not called")


TABLE = make_table(
    Api(18, "ApiVersions", (0, 4), _never),
    Api(0, "Produce", (3, 13), _never),
    Api(4, "LeaderAndIsr", (0, 7), _never, advertised=False),
)


def ask(version: int, name: str = "client", software_version: str = "1.0") -> tuple[Request, ApiVersionsResponse]:
    message = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    request = Request.for_message(RequestHeader(18, version, 1, "test"), message, CONTEXT)
    reply = answer(request, TABLE, FinalizedFeatures({"metadata.version": 25}, 77))
    assert isinstance(reply, Reply)
    sent = reply.message.encode(request.header.api_version)
    return request, ApiVersionsResponse.decode(sent, request.header.api_version)


@pytest.mark.parametrize("version", range(5))
def test_every_version_lists_the_advertised_table(version: int) -> None:
    """Produce is listed from v0, though it is served from v3 only (KAFKA-18659)."""
    _, response = ask(version)
    listed = [(key.api_key, key.min_version, key.max_version) for key in response.api_keys]
    assert listed == [(0, 0, 13), (18, 0, 4)], "Produce from v0, though served from v3"
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(0, 0, 13), (18, 0, 4)]


def test_features_are_listed_from_version_3() -> None:
    assert ask(2)[1].finalized_features_epoch == -1
    _, response = ask(3)
    assert response.finalized_features_epoch == 77
    assert [(f.name, f.max_version_level) for f in response.finalized_features] == [("metadata.version", 25)]
    assert [f.name for f in response.supported_features] == ["metadata.version"], "minimum version 0 only from v4"
    assert {f.name for f in ask(4)[1].supported_features} > {"transaction.version", "group.version"}


def test_the_software_is_remembered() -> None:
    request, _ = ask(3, "apache-kafka-java", "4.3.1")
    assert (request.client_software_name, request.client_software_version) == ("apache-kafka-java", "4.3.1")


@pytest.mark.parametrize("name", ["", "-x", "x y", "x-", "ä"])
def test_invalid_names_are_refused(name: str) -> None:
    assert ask(3, name)[1].error_code == ErrorCode.INVALID_REQUEST
    assert ask(4, "x", name)[1].error_code == ErrorCode.INVALID_REQUEST
    assert ask(0, name)[1].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    request, response = ask(version)
    assert request.header.api_version == 0
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)], "as KIP-511"
