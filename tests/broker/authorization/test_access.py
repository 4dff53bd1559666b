"""Access: what the client of one request may do (`authorization/access.py`, `authorization/nodes.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis.authorized import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOTHING,
    TOPIC_OPERATIONS,
    cluster_operations,
    operations,
)
from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.authorizer import Authorizer
from barnabas.broker.authorization.nodes import is_node_by_listener
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k02_list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k23_offset_for_leader_epoch import OffsetForLeaderEpochRequest
from barnabas.security.acls.rules import Reason
from barnabas.security.values import AclOperation, ResourceType
from tests.broker.authorization.kit import ALICE, ROOT, acl, allowed, authorizer, denied, lacking, make_request

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


def request_by(by: Authorizer | None, principal: str = ALICE) -> Any:
    request = make_request(MetadataRequest(topics=None), 12, principal)
    if by is not None:
        by.admit(TABLE[3], request)
    return request


def test_the_names_on_which_a_client_has_a_right() -> None:
    access = request_by(lacking(rights.PRODUCE_TOPIC, name="u")).access
    assert access.allowed(rights.PRODUCE_TOPIC, ["t", "u", "t"]) == {"t"}
    assert access.allows(rights.PRODUCE_TOPIC, "t")
    assert access.has(rights.PRODUCE_TOPIC, "t")
    assert not access.has(rights.PRODUCE_TOPIC, "u")


def test_a_decision_that_is_kept_is_one_of_its_right_and_name() -> None:
    access = request_by(lacking(rights.PRODUCE_TOPIC, name="u")).access
    for name, is_allowed in (("t", True), ("t", True), ("u", False), ("u", False), ("t", True)):
        assert access.allows(rights.PRODUCE_TOPIC, name) is is_allowed
        assert access.allows(rights.FETCH_TOPIC, name)
    access.allows(rights.PRODUCE_TOPIC, "v")
    access.allows(rights.PRODUCE_TOPIC, "x" * 300)
    assert access._name == "v"  # a name that no topic has is not kept


def test_a_required_right_that_is_missing_is_an_error() -> None:
    access = request_by(lacking(rights.DESCRIBE_GROUP)).access
    access.require(rights.PRODUCE_TOPIC, "t")
    with pytest.raises(ApiError) as refused:
        access.require(rights.DESCRIBE_GROUP, "g")
    assert refused.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_the_right_to_any_topic() -> None:
    assert request_by(authorizer([allowed(rights.PRODUCE_TOPIC, "t")], default=False)).access.allows_any(
        rights.INIT_ANY_TOPIC
    )
    assert not request_by(authorizer([], default=False)).access.allows_any(rights.INIT_ANY_TOPIC)


def test_super_users() -> None:
    assert request_by(authorizer(), ROOT).access.is_super_user
    assert not request_by(authorizer()).access.is_super_user


# -- authorized operations (`apis/authorized.py`)


def test_authorized_operations_are_those_that_are_allowed() -> None:
    given = [acl(AclOperation.READ, TOPIC, "t"), acl(AclOperation.ALTER_CONFIGS, TOPIC, "t")]
    found = operations(request_by(authorizer(given, default=False)), TOPIC, "t")
    names = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    assert found == sum(1 << AclOperation[name] for name in names)
    assert operations(request_by(authorizer(given, default=False)), TOPIC, "u") == 0


def test_without_an_authorizer_every_operation_is_authorized() -> None:
    request = request_by(None)
    assert operations(request, TOPIC, "t") == TOPIC_OPERATIONS
    assert operations(request, ResourceType.GROUP, "g") == GROUP_OPERATIONS
    assert cluster_operations(request, rights.DESCRIBE_CLUSTER) == CLUSTER_OPERATIONS
    assert operations(request_by(lacking()), TOPIC, "t") == TOPIC_OPERATIONS


def test_the_operations_of_the_cluster_are_for_who_may_describe_it() -> None:
    by = authorizer([acl(AclOperation.ALTER, CLUSTER)], default=False)
    assert cluster_operations(request_by(by), rights.DESCRIBE_CLUSTER) == sum(
        1 << AclOperation[name] for name in ("ALTER", "DESCRIBE")
    )
    by = authorizer([acl(AclOperation.CREATE, CLUSTER)], default=False)
    assert cluster_operations(request_by(by), rights.DESCRIBE_CLUSTER) == NOTHING


# -- nodes


@pytest.mark.parametrize(
    ("by", "reason", "by_listener"),
    [
        (authorizer(), Reason.DEFAULT_ALLOW, True),
        (authorizer(default=False), Reason.DEFAULT_DENY, False),
        (authorizer([allowed(rights.LEADER_AND_ISR)]), Reason.ACL, False),
        (authorizer([denied(rights.LEADER_AND_ISR)]), Reason.ACL, False),
        (authorizer(None), Reason.NOT_READY, True),
    ],
)
def test_a_right_to_be_a_node_that_nobody_gave_is_none(by: Authorizer, reason: Reason, by_listener: bool) -> None:
    request = request_by(by)
    assert request.access.reason_to_be_a_node is reason
    assert is_node_by_listener(request) == by_listener


def test_without_an_authorizer_the_listener_tells_who_is_a_node() -> None:
    assert is_node_by_listener(request_by(None))
    assert not is_node_by_listener(request_by(authorizer(), ROOT))


@pytest.mark.parametrize(
    ("message", "version", "is_a_nodes"),
    [
        (ListOffsetsRequest(replica_id=-1), 7, False),
        (ListOffsetsRequest(replica_id=-2), 7, False),
        (ListOffsetsRequest(replica_id=2), 7, True),
        (OffsetForLeaderEpochRequest(replica_id=-1), 4, False),
        (OffsetForLeaderEpochRequest(replica_id=2), 3, True),
        (OffsetForLeaderEpochRequest(), 2, False),
    ],
)
def test_a_query_in_the_name_of_a_replica_is_a_nodes(message: Any, version: int, is_a_nodes: bool) -> None:
    nodes_only = TABLE[message.API_KEY].nodes_only
    assert nodes_only is not None
    assert nodes_only(make_request(message, version)) == is_a_nodes


def test_an_acl_may_deny_to_be_a_node() -> None:
    for given, is_node in ((allowed, True), (denied, False)):
        access = request_by(authorizer([given(rights.FETCH_AS_REPLICA)])).access
        assert access.reason_to_be_a_node is Reason.ACL
        assert access.is_node is is_node
