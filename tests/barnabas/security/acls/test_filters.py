"""Filters of ACLs."""

from __future__ import annotations

import pytest

from barnabas.security.acls.filters import AclFilter
from barnabas.security.values import AclBinding, AclOperation, PatternType, PermissionType, ResourceType
from tests.barnabas.security.acls.naive import DENY, PREFIXED, acl

TOPIC, READ = ResourceType.TOPIC, AclOperation.READ
LITERAL_T = acl("topic", READ, host="h")
PREFIX_T = acl("to", READ, DENY, pattern=PREFIXED, principal="User:b")
ANY_T = acl("*", AclOperation.WRITE)
GROUP_T = acl("topic", READ, kind=ResourceType.GROUP)
ALL = [LITERAL_T, PREFIX_T, ANY_T, GROUP_T]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (AclFilter(), ALL),
        (AclFilter(resource_type=ResourceType.GROUP), [GROUP_T]),
        (AclFilter(TOPIC, "topic"), [LITERAL_T]),
        (AclFilter(TOPIC, "to"), [PREFIX_T]),
        (AclFilter(TOPIC, "topic", PatternType.LITERAL), [LITERAL_T]),
        (AclFilter(TOPIC, "*", PatternType.LITERAL), [ANY_T]),
        (AclFilter(TOPIC, "to", PatternType.LITERAL), []),
        (AclFilter(TOPIC, None, PatternType.PREFIXED), [PREFIX_T]),
        (AclFilter(TOPIC, "topic", PatternType.MATCH), [LITERAL_T, PREFIX_T, ANY_T]),
        (AclFilter(TOPIC, "tap", PatternType.MATCH), [ANY_T]),
        (AclFilter(TOPIC, None, PatternType.MATCH), [LITERAL_T, PREFIX_T, ANY_T]),
        (AclFilter(principal="User:b"), [PREFIX_T]),
        (AclFilter(host="h"), [LITERAL_T]),
        (AclFilter(operation=AclOperation.WRITE), [ANY_T]),
        (AclFilter(permission=PermissionType.DENY), [PREFIX_T]),
    ],
)
def test_a_filter_selects_by_every_field(given: AclFilter, expected: list[object]) -> None:
    assert [acl for acl in ALL if given.matches(acl)] == expected


def test_an_unknown_code_is_seen() -> None:
    assert not AclFilter().is_unknown
    assert AclFilter(resource_type=ResourceType.UNKNOWN).is_unknown
    assert AclFilter(pattern_type=PatternType.UNKNOWN).is_unknown
    assert AclFilter(operation=AclOperation.UNKNOWN).is_unknown
    assert AclFilter(permission=PermissionType.UNKNOWN).is_unknown


@pytest.mark.parametrize("given", ALL)
def test_an_exact_filter_is_equal_to_the_rule_that_it_selects(given: AclBinding) -> None:
    exact = AclFilter(*given.rule)
    assert exact.is_exact
    assert [acl for acl in ALL if exact.matches(acl)] == [acl for acl in ALL if acl.rule == exact] == [given]
    for field, default in AclFilter._field_defaults.items():
        assert not exact._replace(**{field: default}).is_exact
    assert not exact._replace(pattern_type=PatternType.MATCH).is_exact
