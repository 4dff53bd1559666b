"""CreateAcls and DeleteAcls, with Kafka's errors."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decision import MAX_RECORDS_PER_USER_OP
from barnabas.controller.decisions.security.acls import BROAD_FILTERS_MAX, create_acls, delete_acls
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k30_create_acls as create_wire
from barnabas.protocol.messages import k31_delete_acls as delete_wire
from barnabas.security.values import AclOperation, PatternType, PermissionType, ResourceType
from tests.controller.rig import Rig

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def make_rig() -> Rig:
    return Rig(authorizer_class_name=AUTHORIZER, allow_everyone_if_no_acl_found="true")


def creation(**fields: Any) -> create_wire.AclCreation:
    values = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": PermissionType.ALLOW,
    }
    return create_wire.AclCreation(**{**values, **fields})


def create(rig: Rig, *creations: create_wire.AclCreation) -> list[tuple[int, str | None]]:
    request = create_wire.CreateAclsRequest(creations=list(creations))
    response = rig.decide(lambda view: create_acls(view, request))
    return [(result.error_code, result.error_message) for result in response.results]


def chosen(**fields: Any) -> delete_wire.DeleteAclsFilter:
    values = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": PermissionType.ANY,
    }
    return delete_wire.DeleteAclsFilter(**{**values, **fields})


def exact(name: str) -> delete_wire.DeleteAclsFilter:
    """The filter of what `creation` creates for a topic."""
    return chosen(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter="User:alice",
        host_filter="*",
        operation=AclOperation.READ,
        permission_type=PermissionType.ALLOW,
    )


def delete(rig: Rig, *filters: delete_wire.DeleteAclsFilter) -> Any:
    request = delete_wire.DeleteAclsRequest(filters=list(filters))
    return rig.decide(lambda view: delete_acls(view, request)).filter_results


def names(rig: Rig) -> list[str]:
    return sorted(acl.resource_name for acl in rig.image.security.acls.values())


def test_acls_are_created_and_survive_a_restart() -> None:
    rig = make_rig()
    assert create(rig, creation(), creation(resource_name="other")) == [(0, ""), (0, "")]
    assert names(rig.restart()) == ["orders", "other"]
    ids = set(rig.image.security.acls)
    assert len(ids) == 2
    assert bytes(16) not in ids


def test_an_acl_exists_once() -> None:
    rig = make_rig()
    assert create(rig, creation(), creation()) == [(0, ""), (0, "")]
    assert create(rig, creation()) == [(0, "")]
    assert names(rig) == ["orders"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ],
)
def test_an_invalid_acl_fails_alone(fields: dict[str, Any], text: str) -> None:
    rig = make_rig()
    results = create(rig, creation(**fields), creation(resource_name="fine"))
    assert results == [(ErrorCode.INVALID_REQUEST, text), (0, "")]
    assert names(rig) == ["fine"]


def test_filters_select_what_is_removed() -> None:
    rig = make_rig()
    create(rig, creation(), creation(principal="User:bob"), creation(resource_name="other"))
    by_name, unknown, everything_else = delete(
        rig,
        chosen(resource_name_filter="orders"),
        chosen(operation=0),
        chosen(principal_filter="User:bob"),
    )
    assert [(acl.resource_name, acl.principal, acl.error_code) for acl in by_name.matching_acls] == [
        ("orders", "User:alice", 0),
        ("orders", "User:bob", 0),
    ]
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    assert [acl.principal for acl in everything_else.matching_acls] == ["User:bob"]
    assert names(rig.restart()) == ["other"]
    (unknown,) = delete(rig, chosen(resource_type_filter=0))
    assert unknown.error_message == "Unknown patternFilter."


def test_thousands_of_acls_are_removed_by_as_many_exact_filters() -> None:
    rig, topics = make_rig(), [f"t{number}" for number in range(3_000)]
    create(rig, *[creation(resource_name=name) for name in topics], creation(resource_name="other"))
    results = delete(rig, *map(exact, topics), exact("t0"), exact("missing"))
    assert [[acl.resource_name for acl in each.matching_acls] for each in results] == [
        *([name] for name in topics), ["t0"], []
    ]  # fmt: skip
    assert names(rig) == ["other"]


def test_without_an_authorizer_both_are_refused() -> None:
    rig = Rig()
    for attempt in (lambda: create(rig, creation()), lambda: delete(rig, chosen())):
        with pytest.raises(ApiError, match=r"^No Authorizer is configured\.$") as caught:
            attempt()
        assert caught.value.code == ErrorCode.SECURITY_DISABLED


def test_a_request_is_bounded() -> None:
    rig = make_rig()
    for attempt in (
        lambda: create(rig, *[creation()] * 10_001),
        lambda: delete(rig, *[chosen()] * (BROAD_FILTERS_MAX + 1)),
        lambda: delete(rig, *[exact("t")] * (MAX_RECORDS_PER_USER_OP + 1)),
    ):
        with pytest.raises(ApiError) as caught:
            attempt()
        assert caught.value.code == ErrorCode.POLICY_VIOLATION


def test_no_more_acls_are_removed_at_once_than_a_batch_holds() -> None:
    rig = make_rig()
    for count in (MAX_RECORDS_PER_USER_OP, 1):
        create(rig, *[creation(resource_name=f"{count}-{number}") for number in range(count)])
    with pytest.raises(
        ApiError, match=r"^Cannot remove more than 10000 acls in a single delete operation\.$"
    ) as caught:
        delete(rig, chosen())
    assert caught.value.code == ErrorCode.INVALID_REQUEST
