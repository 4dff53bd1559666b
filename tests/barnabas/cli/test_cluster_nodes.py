"""A request is sent in a version that the cluster knows, or refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.cluster_nodes import OldReleaseError, ask
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.k29_describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.k55_describe_quorum import DescribeQuorumRequest
from barnabas.protocol.schema import Request


class OldBroker:
    """A connection to a broker that knows Metadata, ListGroups and DescribeAcls."""

    host, port = "h", 9092

    def send(self, message: Request, version: int) -> Any:
        if isinstance(message, ApiVersionsRequest):
            ranges = {3: 9, 16: 3, 29: 0}
            keys = [ApiVersion(api_key=key, min_version=0, max_version=most) for key, most in ranges.items()]
            return ApiVersionsResponse(api_keys=keys)
        message.encode(version)
        return version


def asked(message: Request, version: int) -> Any:
    return ask(OldBroker(), message, version)  # type: ignore[arg-type]


def test_the_highest_version_that_both_know_is_sent() -> None:
    assert asked(MetadataRequest(topics=[]), 12) == 9
    assert asked(MetadataRequest(topics=[]), 7) == 7


@pytest.mark.parametrize(
    ("message", "version", "words"),
    [
        (DescribeQuorumRequest(), 2, "which does not know DescribeQuorum"),
        (DescribeAclsRequest(), 3, "whose DescribeAcls has version 0 at most"),
        (ListGroupsRequest(types_filter=["share"]), 5, "which does not know all of this request"),
    ],
)
def test_what_an_older_release_does_not_know_is_named(message: Request, version: int, words: str) -> None:
    with pytest.raises(OldReleaseError, match=rf"^h:9092 answers as an older release of Kafka, {words}"):
        asked(message, version)
