"""The requests that a fault matches; more in actions/test_wire.py."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.faults.matching import groups_of
from barnabas.protocol.messages import k09_offset_fetch as fetch_wire
from barnabas.protocol.messages.k08_offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest


@pytest.mark.parametrize(
    ("message", "groups"),
    [
        (OffsetCommitRequest(group_id="g"), ["g"]),
        (fetch_wire.OffsetFetchRequest(group_id="g"), ["g"]),
        (
            fetch_wire.OffsetFetchRequest(
                groups=[fetch_wire.OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "h")]
            ),
            ["g", "h"],
        ),
        (DescribeGroupsRequest(groups=["g", "h"]), ["g", "h"]),
        (ConsumerGroupDescribeRequest(group_ids=["g"]), ["g"]),
        (DeleteGroupsRequest(groups_names=["g"]), ["g"]),
        (ApiVersionsRequest(), []),
        (None, []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_groups_of_a_request(message: Any, groups: list[str]) -> None:
    assert groups_of(message) == groups
