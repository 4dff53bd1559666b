"""A broker that answers as an older release: what it lists, what it refuses, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.requests.answers import Close, Reply
from barnabas.broker.requests.api import Api, Table, make_table
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.wiring.older_release import table_of_release
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.data.releases import RELEASES, has_removed_versions, highest_version
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.k03_metadata import MetadataResponse
from barnabas.protocol.messages.k18_api_versions import ApiVersionsResponse
from barnabas.protocol.removed import REMOVED

CLIENT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1", is_for_clients=True)
NODE = RequestContext("INTERNAL", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-2")
ANSWERED = Reply(MetadataResponse())


class Cache:
    """The part of the metadata cache that ApiVersions reads."""

    finalized_features = FinalizedFeatures(
        {
            "eligible.leader.replicas.version": 1,
            "metadata.version": 30,
            "share.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
        },
        7,
    )


class Services:
    """The part of a broker's services that ApiVersions reads."""

    table = TABLE
    metadata_cache = Cache()


def send(table: Table, key: int, version: int, context: RequestContext = CLIENT) -> Any:
    message = request_class(key)()
    if key == ApiKey.API_VERSIONS:
        message = request_class(key)(client_software_name="c", client_software_version="1")
    request = Request.for_message(RequestHeader(key, version, 1, "c"), message, context)
    return table[key].handle(Services(), request)


def listed(release: str, version: int = 0, context: RequestContext = CLIENT) -> ApiVersionsResponse:
    answer = send(table_of_release(TABLE, release), ApiKey.API_VERSIONS, version, context)
    message = answer.message
    assert isinstance(message, ApiVersionsResponse)
    return message


def ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


def test_without_a_release_the_table_is_the_same() -> None:
    assert table_of_release(TABLE, "") is TABLE


@pytest.mark.parametrize("release", RELEASES)
def test_the_apis_of_a_release_are_listed(release: str) -> None:
    found = ranges(listed(release))
    for key, api in TABLE.items():
        highest = highest_version(key, release)
        if api.advertised and highest is not None:
            # Kafka 4 lists Produce from 0 on, too (KAFKA-18659).
            lowest = 0 if has_removed_versions(release) or key == ApiKey.PRODUCE else api.versions[0]
            assert found[key] == (lowest, highest)
        else:
            assert key not in found
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.JOIN_GROUP} <= found.keys()


def test_every_release_before_4_0_has_the_versions_that_it_removed() -> None:
    assert [release for release in RELEASES if not has_removed_versions(release)] == ["4.0", "4.1", "4.2"]
    assert ranges(listed("4.0"))[ApiKey.FETCH] == (4, 17)
    for key in REMOVED:
        assert ranges(listed("3.9"))[key][0] == 0


def test_a_release_without_its_last_number_is_the_newest_of_it() -> None:
    assert ranges(listed("0.10")) == ranges(listed("0.10.2")) != ranges(listed("0.10.1"))


def test_nodes_see_todays_versions_only() -> None:
    assert ranges(listed("0.10", context=NODE))[ApiKey.FETCH] == TABLE[ApiKey.FETCH].versions


@pytest.fixture
def table() -> Table:
    """Kafka 2.8, with APIs that answer the same to everything."""
    rows = (
        Api(3, "Metadata", (0, 13), lambda *_: ANSWERED),
        Api(6, "UpdateMetadata", (8, 8), lambda *_: ANSWERED, advertised=False),
        Api(12, "Heartbeat", (0, 4), lambda *_: ANSWERED),
        TABLE[18],
        Api(75, "DescribeTopicPartitions", (0, 0), lambda *_: ANSWERED),
    )
    return table_of_release(make_table(*rows), "2.8")


def test_a_later_version_closes_the_connection(table: Table) -> None:
    assert send(table, 3, 11) is ANSWERED
    closed = send(table, 3, 12)
    assert isinstance(closed, Close)
    assert closed.reason == "Kafka 2.8 has no Metadata v12 (barnabas.compat.release)"
    assert isinstance(send(table, 75, 0), Close)


def test_nodes_use_every_version(table: Table) -> None:
    assert send(table, 3, 12, NODE) is ANSWERED
    assert send(table, 6, 8, NODE) is ANSWERED
    assert ranges(listed("2.8", context=NODE))[3] == (0, 13)


def test_rows_that_the_release_has_whole_are_the_same(table: Table) -> None:
    assert table[12].handle(None, None) is ANSWERED  # type: ignore[arg-type]


@pytest.mark.parametrize(("release", "own"), [("0.11", {}), ("2.3", {}), ("2.4", {18: (0, 3)}), ("2.8", {18: (0, 3)})])
def test_an_unknown_version_of_apiversions_is_answered_as_the_release_did(release: str, own: object) -> None:
    """Since KIP-511 (2.4) with the versions of ApiVersions."""
    response = listed(release, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ranges(response) == own


def test_features_are_those_of_the_release() -> None:
    assert not listed("2.8", 3).supported_features
    assert listed("2.8", 3).finalized_features_epoch == -1
    old = listed("3.9", 4)
    supported = {f.name: (f.min_version, f.max_version) for f in old.supported_features}
    assert supported == {"metadata.version": (7, 21), "kraft.version": (0, 1)}
    assert [(f.name, f.max_version_level) for f in old.finalized_features] == [("metadata.version", 21)]
    assert old.finalized_features_epoch == 7
    assert {f.name for f in listed("4.0", 4).finalized_features} == {"metadata.version", "transaction.version"}


def test_a_feature_is_supported_before_new_clusters_have_it() -> None:
    elr, share, streams = "eligible.leader.replicas.version", "share.version", "streams.version"
    assert {f.name for f in listed("4.0", 4).supported_features} & {elr, share, streams} == {elr}
    assert {f.name for f in listed("4.1", 4).supported_features} >= {elr, share, streams}
    assert {f.name for f in listed("4.1", 4).finalized_features} & {elr, share, streams} == {elr}
    assert {f.name for f in listed("4.2", 4).finalized_features} >= {elr, share, streams}
