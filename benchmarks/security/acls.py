"""ACLs: the ones that the clients of measurements need, and many more for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.waiting import eventually

NAMES = "bench-"  # of the topics and groups of measurements
MANY = 1_000
PREFIX_LENGTHS = 20  # a lookup tries each length that a prefix has
ANONYMOUS = "User:ANONYMOUS"
TIMEOUT_S = 60


def needed(principal: str) -> list[AclBinding]:
    """Return the ACLs of a client that produces and consumes."""
    return [
        _prefixed(ResourceType.TOPIC, NAMES, principal, AclOperation.WRITE),
        _prefixed(ResourceType.TOPIC, NAMES, principal, AclOperation.READ),
        _prefixed(ResourceType.GROUP, NAMES, principal, AclOperation.READ),
    ]


def many(principal: str, total: int = MANY) -> list[AclBinding]:
    """Return this number of ACLs: those that a client needs, one to delete topics, and those of other users."""
    own = [*needed(principal), _prefixed(ResourceType.TOPIC, NAMES, principal, AclOperation.DELETE)]
    return own + list(islice(_of_others(), total - len(own)))


def add(admin: AdminClient, acls: Sequence[AclBinding]) -> None:
    """Add ACLs to a system without any, and wait until the broker decides by them."""
    for added in admin.create_acls(list(acls), request_timeout=TIMEOUT_S).values():
        added.result(TIMEOUT_S)
    eventually(f"the broker has {len(acls)} ACLs", lambda: _count(admin) >= len(acls), TIMEOUT_S * 1000)


def _of_others() -> Iterator[AclBinding]:
    """Yield five ACLs for each of many users."""
    for number in count():
        user, topic = f"User:user-{number}", f"topic-{number}"
        prefix = "t" * (number % PREFIX_LENGTHS + 1) + f"-{number}."
        yield _acl(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, user, AclOperation.WRITE)
        yield _acl(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, user, AclOperation.READ)
        yield _acl(ResourceType.GROUP, f"group-{number}", ResourcePatternType.LITERAL, user, AclOperation.READ)
        yield _prefixed(ResourceType.TOPIC, prefix, user, AclOperation.ALL)
        yield _prefixed(ResourceType.TOPIC, NAMES, user, AclOperation.READ)


def _prefixed(resource: ResourceType, name: str, principal: str, operation: AclOperation) -> AclBinding:
    return _acl(resource, name, ResourcePatternType.PREFIXED, principal, operation)


def _acl(
    resource: ResourceType, name: str, pattern: ResourcePatternType, principal: str, operation: AclOperation
) -> AclBinding:
    return AclBinding(resource, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)


def _count(admin: AdminClient) -> int:
    """Return how many ACLs a broker has."""
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return len(admin.describe_acls(every).result(TIMEOUT_S))
