"""The users of the comparison: each has the rights that one case needs, and no other.

Every type of resource has names that begin with `open-` and names that begin with `shut-`. Rights are taken away on the
latter, so that a request for both shows what is answered for one item of several. The cluster has one name only.

Everybody may read the topic `public`, and nobody may write to it.

The rights that an API needs come from THE table. All other rights are taken away too, so that a right that the table
forgot is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import NamedTuple

from barnabas.broker.authorization.table import BROKER_RIGHTS, CONTROLLER_RIGHTS
from barnabas.security.values import ANY_HOST, ANY_NAME, CLUSTER_NAME, PatternType, PermissionType
from barnabas.security.values import AclOperation as Op
from barnabas.security.values import ResourceType as Type

OPEN, SHUT = "open-", "shut-"
PUBLIC, EVERYBODY = "public", "*"  # a topic, and the user in rules for all users
ADMIN, PASSWORD = "admin", "secret"
OTHER_HOST = "10.9.9.9"
THIS_HOST = "127.0.0.1"
TOKEN = "token"
#: The ends of the names of each type. `t` exists; `d` exists and may be deleted; `n` is missing; `m!` is no valid name.
ENDS = {
    Type.TOPIC: ("t", "d", "n", "m!"),
    Type.GROUP: ("g", "c", "s", "e", "n"),
    Type.TRANSACTIONAL_ID: ("x", "i", "n"),
    Type.DELEGATION_TOKEN: (TOKEN,),
    Type.USER: ("u",),
}
TYPES = (*ENDS, Type.CLUSTER)


class Right(NamedTuple):
    """An operation on a type of resource."""

    resource: Type
    operation: Op

    def __str__(self) -> str:
        return f"{self.resource.name} {self.operation.name}"


class Rule(NamedTuple):
    """An ACL without its principal. The name of a token stands for the token's id."""

    right: Right
    name: str
    permission: PermissionType = PermissionType.ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = ANY_HOST


Rules = tuple[Rule, ...]

RIGHTS = tuple(
    Right(resource, operation)
    for resource, operations in {
        Type.TOPIC: (
            Op.READ, Op.WRITE, Op.CREATE, Op.DELETE, Op.ALTER, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
        ),
        Type.GROUP: (Op.READ, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
        Type.CLUSTER: (
            Op.CREATE, Op.ALTER, Op.DESCRIBE, Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
            Op.IDEMPOTENT_WRITE,
        ),
        Type.TRANSACTIONAL_ID: (Op.DESCRIBE, Op.WRITE, Op.TWO_PHASE_COMMIT),
        Type.DELEGATION_TOKEN: (Op.DESCRIBE,),
        Type.USER: (Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS),
    }.items()
    for operation in operations
)  # fmt: skip


def _any_name(resource: Type) -> str:
    """Return the name of a rule for all resources of a type; the cluster has one name only."""
    return CLUSTER_NAME if resource is Type.CLUSTER else ANY_NAME


EVERYTHING: Rules = tuple(Rule(Right(resource, Op.ALL), _any_name(resource)) for resource in TYPES)
FOR_EVERYBODY: Rules = (
    Rule(Right(Type.TOPIC, Op.READ), PUBLIC),
    Rule(Right(Type.TOPIC, Op.WRITE), PUBLIC, PermissionType.DENY),
)


def names(resource: Type, beginning: str) -> list[str]:
    """Return the names of a type that begin so."""
    if resource is Type.CLUSTER:
        return [CLUSTER_NAME] if beginning == SHUT else []
    return [_name(resource, beginning + end) for end in ENDS[resource]]


def needed(key: int) -> list[Right]:
    """Return the rights that THE table has for an API."""
    rows = (*BROKER_RIGHTS.get(key, ()), *CONTROLLER_RIGHTS.get(key, ()))
    return sorted({Right(row.resource, row.operation) for row in rows})


def users(key: int) -> Iterator[tuple[str, Rules]]:
    """Return the users who send the requests of an API: in words, and their rules."""
    yield "everything", EVERYTHING
    yield "nothing", ()
    for right in RIGHTS:
        yield f"all but {right}", EVERYTHING + _on(SHUT, [right], PermissionType.DENY)
        yield f"only {right}", _on(SHUT, [right])
    rights = needed(key)
    for some in chain.from_iterable(combinations(rights, count) for count in range(len(rights) + 1)):
        words = ", ".join(map(str, some)) or "none"
        yield f"of the needed {words}", _on(OPEN, rights) + _on(SHUT, some)
    if rights:
        yield from _shapes(rights)


def _shapes(rights: list[Right]) -> Iterator[tuple[str, Rules]]:
    """Return the needed rights given, or taken away, in other ways than by name."""
    on_all_names = _on(OPEN, rights) + _on(SHUT, rights)
    as_all = [Right(resource, Op.ALL) for resource in dict.fromkeys(right.resource for right in rights)]
    deny = PermissionType.DENY
    yield "by prefix", _by_prefix(rights)
    yield "by *", _by_any_name(rights)
    yield "by ALL", _on(SHUT, as_all)
    yield "from this host", _on(SHUT, rights, host=THIS_HOST)
    yield "from another host", _on(SHUT, rights, host=OTHER_HOST)
    yield "denied to another host", on_all_names + _on(SHUT, rights, deny, OTHER_HOST)
    yield "denied to this host", on_all_names + _on(SHUT, rights, deny, THIS_HOST)
    yield "denied by prefix", on_all_names + _by_prefix(rights, deny)
    yield "denied by *", on_all_names + _by_any_name(rights, deny)
    yield "denied by ALL", on_all_names + _on(SHUT, as_all, deny)
    yield "everything but by prefix", EVERYTHING + _by_prefix(rights, deny)


def _on(
    beginning: str,
    rights: Iterable[Right],
    permission: PermissionType = PermissionType.ALLOW,
    host: str = ANY_HOST,
) -> Rules:
    return tuple(
        Rule(right, name, permission, host=host) for right in rights for name in names(right.resource, beginning)
    )


def _by_prefix(rights: Iterable[Right], permission: PermissionType = PermissionType.ALLOW) -> Rules:
    """Return rules by prefix; tokens have ids of their own, and the cluster one name."""
    by_name = (Type.DELEGATION_TOKEN, Type.CLUSTER)
    return tuple(
        rule
        for right in rights
        for rule in (
            _on(SHUT, [right], permission)
            if right.resource in by_name
            else (Rule(right, _name(right.resource, SHUT), permission, PatternType.PREFIXED),)
        )
    )


def _by_any_name(rights: Iterable[Right], permission: PermissionType = PermissionType.ALLOW) -> Rules:
    return tuple(Rule(right, _any_name(right.resource), permission) for right in rights)


def _name(resource: Type, name: str) -> str:
    return f"User:{name}" if resource is Type.USER else name
