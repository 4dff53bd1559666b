"""ACLs as people write them: `User:alice read topic:orders`.

RESOURCE is TYPE:NAME, such as topic:orders, group:readers, transactional-id:payments, user:User:alice or
delegation-token:ID; `topic:*` is every topic; `cluster` has no name.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from barnabas.cli.errors import ArgumentError
from barnabas.cli.suggest import did_you_mean
from barnabas.security.principal import USER_TYPE
from barnabas.security.values import (
    ANY_HOST,
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)

E = TypeVar("E", ResourceType, AclOperation)
NO_ID = b""  # the wire format carries no ids
RESOURCE_TYPES = {each.name.lower().replace("_", "-"): each for each in ResourceType if each > ResourceType.ANY}
OPERATIONS = {each.name.lower().replace("_", "-"): each for each in AclOperation if each > AclOperation.ANY}
_ALSO_CLUSTER = ("kafka-cluster",)
_O = AclOperation
#: What APIs ask for, besides ALL; as kafka-acls.sh has it (AclEntry.supportedOperations, Kafka 4.3).
ASKED_FOR = {
    ResourceType.TOPIC: frozenset(
        {_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}
    ),
    ResourceType.GROUP: frozenset({_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    ResourceType.CLUSTER: frozenset(
        {_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}
        | {_O.IDEMPOTENT_WRITE}
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({_O.DESCRIBE}),
    ResourceType.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}


class Resource(NamedTuple):
    """A type and a name."""

    type: ResourceType
    name: str


def parse_acls(
    principal: str,
    operations: str,
    resource: str,
    *,
    prefixed: bool = False,
    deny: bool = False,
    host: str = ANY_HOST,
) -> list[AclBinding]:
    """Return an ACL for each operation. Raises UserError."""
    found = parse_resource(resource)
    parsed = parse_operations(operations)
    for each in parsed:
        check_sense(each, found)
    return [
        AclBinding(
            NO_ID,
            found.type,
            found.name,
            PatternType.PREFIXED if prefixed else PatternType.LITERAL,
            parse_user(principal),
            host,
            each,
            PermissionType.DENY if deny else PermissionType.ALLOW,
        )
        for each in parsed
    ]


def parse_acl_line(text: str) -> list[AclBinding]:
    """Return the ACLs of a line with the arguments of `barnabas acl add`. Raises UserError.

    Options: --prefixed, --deny, --host=ADDRESS.
    """
    words = text.split()
    options = [word for word in words if word.startswith("--")]
    arguments = [word for word in words if not word.startswith("--")]
    hosts = [word.partition("=")[2] for word in options if word.startswith("--host=")]
    unknown = [word for word in options if word not in ("--prefixed", "--deny") and not word.startswith("--host=")]
    if len(arguments) != 3 or unknown:
        raise ArgumentError(
            f"'{text}' is no ACL: write PRINCIPAL OPERATION RESOURCE [--prefixed] [--deny] [--host=ADDRESS]"
        )
    return parse_acls(
        *arguments, prefixed="--prefixed" in options, deny="--deny" in options, host=hosts[-1] if hosts else ANY_HOST
    )


def parse_user(text: str) -> str:
    """Return a principal; a name without a type is a user's."""
    return text if ":" in text else f"{USER_TYPE}:{text}"


def parse_operations(text: str) -> list[AclOperation]:
    """Return the operations of a list such as `read,describe`. Raises UserError."""
    return [parse_operation(part) for part in text.split(",")]


def parse_operation(text: str) -> AclOperation:
    """Return an operation by name, in any case and with - or _. Raises UserError."""
    return _named(OPERATIONS, text, "operation")


def parse_resource(text: str) -> Resource:
    """Return the resource of TYPE:NAME. Raises UserError."""
    kind, colon, name = text.partition(":")
    kind = "cluster" if kind in _ALSO_CLUSTER else kind
    resource_type = parse_resource_type(kind)
    if resource_type is ResourceType.CLUSTER:
        if colon and name != CLUSTER_NAME:
            raise ArgumentError(f"'{text}': there is one cluster, so write: cluster")
        return Resource(resource_type, CLUSTER_NAME)
    if not name:
        raise ArgumentError(f"'{text}' has no name: write TYPE:NAME, such as {kind}:orders, or {kind}:* for all")
    return Resource(resource_type, name)


def parse_resource_type(text: str) -> ResourceType:
    """Return a resource type by name. Raises UserError."""
    return _named(RESOURCE_TYPES, text, "resource type")


def _named(known: dict[str, E], text: str, what: str) -> E:
    name = text.strip().lower().replace("_", "-")
    if name not in known:
        hint = did_you_mean(name, known) or f": it can be {', '.join(known)}"
        raise ArgumentError(f"there is no {what} {text}{hint}")
    return known[name]


def check_sense(operation: AclOperation, resource: Resource) -> None:
    """Raise UserError for an operation that no API asks for on such a resource: the rule would have no effect."""
    asked_for = ASKED_FOR[resource.type]
    if operation is not AclOperation.ALL and operation not in asked_for:
        known = ", ".join(map(operation_word, sorted(asked_for)))
        kind = resource_word(resource.type, "").rstrip(":")
        raise ArgumentError(f"nothing asks for {operation_word(operation)} on a {kind}; it can be {known} or all")


def operation_word(operation: AclOperation) -> str:
    """Return the operation as people write it."""
    return operation.name.lower().replace("_", "-")


def resource_word(resource_type: ResourceType, name: str, pattern: PatternType = PatternType.LITERAL) -> str:
    """Return the resource as people write it; a prefix is followed by an ellipsis."""
    kind = resource_type.name.lower().replace("_", "-")
    if resource_type is ResourceType.CLUSTER:
        return kind
    return f"{kind}:{name}{'…' if pattern is PatternType.PREFIXED else ''}"


def acl_line(acl: AclBinding) -> str:
    """Return an ACL in one line: `allow User:alice read topic:orders from any host`."""
    permission = "allow" if acl.permission is PermissionType.ALLOW else "deny"
    where = resource_word(acl.resource_type, acl.resource_name, acl.pattern_type)
    host = "any host" if acl.host == "*" else acl.host
    return f"{permission} {acl.principal} {operation_word(acl.operation)} {where} from {host}"
