"""StandardAuthorizer's rules in the plainest form, and small worlds of ACLs to compare with."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from barnabas.security.values import AclBinding, AclOperation, PatternType, PermissionType, ResourceType

ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

PRINCIPALS = ("User:a", "User:b", "User:*", "Group:a")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")
OPERATIONS = tuple(AclOperation(code) for code in range(2, 16))
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)

names = st.text("ab", min_size=0, max_size=4)
acls = st.builds(
    AclBinding,
    id=st.binary(min_size=16, max_size=16),
    resource_type=st.sampled_from(TYPES),
    resource_name=st.one_of(names, st.just("*")),
    pattern_type=st.sampled_from((LITERAL, PREFIXED)),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from(OPERATIONS),
    permission=st.sampled_from((ALLOW, DENY)),
)
worlds = st.lists(acls, max_size=14, unique_by=lambda acl: acl.id)


def acl(
    name: str,
    operation: AclOperation,
    permission: PermissionType = ALLOW,
    *,
    principal: str = "User:a",
    host: str = "*",
    pattern: PatternType = LITERAL,
    kind: ResourceType = ResourceType.TOPIC,
    acl_id: bytes = b"",
) -> AclBinding:
    """An ACL with an id of its own."""
    given = (kind, name, pattern, principal, host, operation, permission)
    return AclBinding(acl_id or repr(given).encode(), *given)


def covers(acl: AclBinding, kind: ResourceType, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def includes(acl: AclBinding, operation: AclOperation) -> bool:
    op = AclOperation
    if acl.operation in (operation, op.ALL):
        return True
    if acl.permission == DENY:
        return False
    if operation == op.DESCRIBE:
        return acl.operation in (op.READ, op.WRITE, op.DELETE, op.ALTER)
    return operation == op.DESCRIBE_CONFIGS and acl.operation == op.ALTER_CONFIGS


def allows(
    acls: Iterable[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    *,
    default: bool,
) -> bool:
    """Look at every ACL."""
    covering = [acl for acl in acls if covers(acl, kind, name)]
    if not covering:
        return default
    matching = [
        acl
        for acl in covering
        if acl.principal in (principal, "User:*") and acl.host in (host, "*") and includes(acl, operation)
    ]
    return bool(matching) and all(acl.permission == ALLOW for acl in matching)


def allows_some(acls: Iterable[AclBinding], principal: str, host: str, operation: AclOperation) -> bool:
    """Whether the ACLs, and not the default, allow an operation on a topic, by Authorizer.authorizeByResourceType."""
    acls = list(acls)
    if allows(acls, principal, host, operation, ResourceType.TOPIC, "hardcode", default=False):
        return True
    matching = [
        acl
        for acl in acls
        if acl.resource_type == ResourceType.TOPIC
        and acl.principal in (principal, "User:*")
        and acl.host in (host, "*")
        and acl.operation in (operation, AclOperation.ALL)
    ]
    denied = {(acl.pattern_type, acl.resource_name) for acl in matching if acl.permission == DENY}
    if (LITERAL, "*") in denied:
        return False
    return any(
        (acl.pattern_type, acl.resource_name) == (LITERAL, "*")
        or not (
            (acl.pattern_type == LITERAL and (LITERAL, acl.resource_name) in denied)
            or any((PREFIXED, acl.resource_name[:n]) in denied for n in range(1, len(acl.resource_name) + 1))
        )
        for acl in matching
        if acl.permission == ALLOW
    )
