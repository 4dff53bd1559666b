"""StandardAuthorizer's rules: whether a principal may do an operation on a resource, and which ACL decides.

Rules
1. A super user may do everything.
2. An ACL counts if it covers the resource, names the principal or `User:*`, and names the host or `*`. Addresses are
   compared as addresses; Kafka compares its own spelling of them with the ACL's text.
3. A DENY that counts decides, whatever is allowed; it denies exactly its operation, or every one if that is ALL.
4. Else an ALLOW that counts decides. READ, WRITE, DELETE and ALTER include DESCRIBE; ALTER_CONFIGS includes
   DESCRIBE_CONFIGS; ALL includes every operation.
5. Else the answer is no, if any ACL covers the resource. Without one, `allow.everyone.if.no.acl.found` answers.
6. ACLs that have not arrived yet deny: a broker must not serve by rule 5 what an ACL forbids.

Threads: any; everything is immutable but the cache, whose entries never change.
Source: StandardAuthorizerData.authorize, findAclRule, findResult; Authorizer.authorizeByResourceType;
StandardAuthorizer.getConfiguredSuperUsers (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple

from barnabas.security.acls.index import AclIndex, for_principal
from barnabas.security.principal import parse_principal
from barnabas.security.values import (
    ANY_HOST,
    ANY_NAME,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)

#: Decisions that are remembered. Why bounded: clients choose the names.
CACHED_MAX: Final = 8_192
#: Longer names are not remembered; a topic's has at most 249 characters.
CACHED_NAME_MAX: Final = 256
#: Kafka looks at this name first when it asks for any resource of a type, so that super users have every right.
_SOME_NAME: Final = "hardcode"

INCLUDED_IN: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    operation: frozenset({operation, AclOperation.ALL}) for operation in AclOperation
} | {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}


class Reason(Enum):
    """What a decision is based on, in the words of Kafka's log."""

    ACL = "MatchingAcl"
    SUPER_USER = "SuperUser"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"
    NOT_READY = "AuthorizerNotReady"


class Decision(NamedTuple):
    """Whether an operation is allowed, why, and the ACL that decided if one did."""

    is_allowed: bool
    reason: Reason
    acl: AclBinding | None = None

    def __str__(self) -> str:
        acl = self.acl
        if acl is None:
            return self.reason.value
        return (
            f"MatchingAcl(acl=StandardAcl(resourceType={acl.resource_type.name}, resourceName={acl.resource_name}, "
            f"patternType={acl.pattern_type.name}, principal={acl.principal}, host={acl.host}, "
            f"operation={acl.operation.name}, permissionType={acl.permission.name}))"
        )


_SUPER_USER: Final = Decision(True, Reason.SUPER_USER)
_DEFAULT_ALLOW: Final = Decision(True, Reason.DEFAULT_ALLOW)
_DEFAULT_DENY: Final = Decision(False, Reason.DEFAULT_DENY)
_NOT_READY: Final = Decision(False, Reason.NOT_READY)


def parse_super_users(text: str) -> frozenset[str]:
    """Split `super.users`: principals separated by semicolons. Raises ValueError for one without a type."""
    names = [name for part in text.split(";") if (name := part.strip())]
    for name in names:
        parse_principal(name)
    return frozenset(names)


class AclRules:
    """The ACLs and settings that decide at one moment. `acls` None: they have not arrived yet (rule 6)."""

    __slots__ = ("_cache", "_default", "acls", "super_users")

    def __init__(
        self, acls: AclIndex | None, super_users: frozenset[str] = frozenset(), *, allows_by_default: bool = False
    ) -> None:
        self.acls = acls
        self.super_users = super_users
        self._default = _DEFAULT_ALLOW if allows_by_default else _DEFAULT_DENY
        self._cache: dict[tuple[object, ...], Decision] = {}  # grows to CACHED_MAX, then begins again

    def with_acls(self, acls: AclIndex) -> AclRules:
        """Return the same settings with other ACLs."""
        return AclRules(acls, self.super_users, allows_by_default=self._default.is_allowed)

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Return whether a principal at a host may do an operation on one resource."""
        key = (operation, resource_type, principal, host, name)
        decision = self._cache.get(key)
        if decision is None:
            decision = self._find(principal, host, operation, resource_type, name)
            if len(name) <= CACHED_NAME_MAX:
                self._remember(key, decision)
        return decision

    def decide_by_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> Decision:
        """Return whether a principal may do an operation on at least one resource of a type.

        Operations that include this one do not count here, as in Kafka.
        """
        key = (operation, resource_type, principal, host)
        decision = self._cache.get(key)
        if decision is None:
            decision = self._find_by_type(principal, host, operation, resource_type)
            self._remember(key, decision)
        return decision

    def _remember(self, key: tuple[object, ...], decision: Decision) -> None:
        if len(self._cache) >= CACHED_MAX:
            self._cache = {}
        self._cache[key] = decision

    def _find_by_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> Decision:
        some = self.decide(principal, host, operation, resource_type, _SOME_NAME)
        if some.is_allowed or self.acls is None:
            return some
        wanted = (operation, AclOperation.ALL)
        denied: set[tuple[PatternType, str]] = set()
        allowed: list[AclBinding] = []
        for acl in self.acls.of_type(resource_type, principal):
            if acl.operation not in wanted or not _is_at(acl, host):
                continue
            if acl.permission is PermissionType.ALLOW:
                allowed.append(acl)
            elif acl.pattern_type is PatternType.LITERAL and acl.resource_name == ANY_NAME:
                return Decision(False, Reason.ACL, acl)
            else:
                denied.add((acl.pattern_type, acl.resource_name))
        return next((Decision(True, Reason.ACL, acl) for acl in allowed if not _is_denied(acl, denied)), _DEFAULT_DENY)

    def _find(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision:
        if principal in self.super_users:
            return _SUPER_USER
        if self.acls is None:
            return _NOT_READY
        includes_it = INCLUDED_IN[operation]
        allowing = None
        is_covered = False
        for by_principal in self.acls.patterns(resource_type, name):
            is_covered = True
            for acl in for_principal(by_principal, principal):
                if not _is_at(acl, host):
                    continue
                if acl.permission is PermissionType.ALLOW:
                    if acl.operation in includes_it:
                        allowing = acl
                elif acl.operation in (operation, AclOperation.ALL):
                    return Decision(False, Reason.ACL, acl)
        if allowing is not None:
            return Decision(True, Reason.ACL, allowing)
        return _DEFAULT_DENY if is_covered else self._default


def _is_at(acl: AclBinding, host: str) -> bool:
    """Return whether an ACL is for clients at this address."""
    if acl.host in (ANY_HOST, host):
        return True
    return (":" in host or ":" in acl.host) and canonical_host(acl.host) == canonical_host(host)


@lru_cache(maxsize=1024)
def canonical_host(text: str) -> str:
    """Return an IP address in its shortest form; an IPv4 address inside an IPv6 one as the former.

    Why: an address has many spellings, and an ACL that denies must not fail on them. Other texts stay as they are.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _is_denied(acl: AclBinding, denied: Collection[tuple[PatternType, str]]) -> bool:
    """Return whether a DENY covers everything that an ALLOW allows."""
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL:
        if name == ANY_NAME:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
