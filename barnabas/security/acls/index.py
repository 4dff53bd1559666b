"""AclIndex: all ACLs of a cluster, arranged so that those of one resource are found without looking at the others.

Rules
1. An index never changes. `updated` returns a new one, and shares with it everything that the change does not touch.
2. A lookup costs a few dictionary lookups: one for the literal name, one for `*`, and one for each length that a prefix
   of this resource type has. The number of ACLs does not matter.
3. The ACLs of a resource come in the order in which Kafka looks at them: the literal name, the prefixes from long to
   short, then `*`; for one pattern by operation, principal, host and permission. So the deciding ACL is Kafka's too.

Different from Apache Kafka: `*` covers every name. Kafka's search skips it for names of several characters that begin
with `*`, as a group may have.

Threads: any; immutable.
Source: StandardAuthorizerData.findAclRule, StandardAcl.compareTo, AclCache (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.security.principal import WILDCARD
from barnabas.security.values import ANY_NAME, AclBinding, PatternType, ResourceType

#: The ACLs of one pattern by principal, each sorted by `_order`.
ByPrincipal = Mapping[str, tuple[AclBinding, ...]]
Names = Mapping[str, ByPrincipal]

_NOTHING: Final[Names] = {}


class _Patterns(NamedTuple):
    """The patterns of one resource type."""

    literal: Names
    prefixed: Names
    lengths: tuple[int, ...]  # of the prefixes, each once, from long to short


_NO_PATTERNS: Final = _Patterns(_NOTHING, _NOTHING, ())


def _order(acl: AclBinding) -> tuple[int, str, str, int]:
    return acl.operation, acl.principal, acl.host, acl.permission


class AclIndex:
    """An immutable set of ACLs."""

    __slots__ = ("_by_id", "_types")

    def __init__(self, acls: Iterable[AclBinding] = ()) -> None:
        self._by_id: Mapping[bytes, AclBinding] = {}
        self._types: Mapping[ResourceType, _Patterns] = {}
        self._change((), acls)

    def updated(self, removed: Iterable[bytes], added: Iterable[AclBinding]) -> AclIndex:
        """Return the index without the ACLs of these ids (unknown ones are ignored) and with the added ones.

        An added ACL with a known id replaces the old one.
        """
        changed = AclIndex()
        changed._by_id, changed._types = self._by_id, self._types
        changed._change(removed, added)
        return changed

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[AclBinding]:
        return iter(self._by_id.values())

    def get(self, acl_id: bytes) -> AclBinding | None:
        """Return the ACL of an id."""
        return self._by_id.get(acl_id)

    def patterns(self, resource_type: ResourceType, name: str) -> Iterator[ByPrincipal]:
        """Yield the ACLs of each pattern that covers a resource (rule 3)."""
        patterns = self._types.get(resource_type, _NO_PATTERNS)
        literal, prefixed = patterns.literal, patterns.prefixed
        if name in literal:
            yield literal[name]
        size = len(name)
        for length in patterns.lengths:
            if length <= size and (prefix := name[:length]) in prefixed:
                yield prefixed[prefix]
        if name != ANY_NAME and ANY_NAME in literal:
            yield literal[ANY_NAME]

    def of_type(self, resource_type: ResourceType, principal: str) -> Iterator[AclBinding]:
        """Yield the ACLs of a resource type that name a principal or `User:*`."""
        patterns = self._types.get(resource_type, _NO_PATTERNS)
        for names in (patterns.literal, patterns.prefixed):
            for by_principal in names.values():
                yield from for_principal(by_principal, principal)

    def _change(self, removed: Iterable[bytes], added: Iterable[AclBinding]) -> None:
        """Replace the contents; called before the index is visible to others."""
        by_id = dict(self._by_id)
        touched: dict[tuple[ResourceType, PatternType, str], dict[bytes, AclBinding | None]] = {}
        for acl_id in removed:
            if (old := by_id.pop(acl_id, None)) is not None:
                touched.setdefault(_pattern(old), {})[acl_id] = None
        for acl in added:
            if (old := by_id.get(acl.id)) is not None:
                touched.setdefault(_pattern(old), {})[acl.id] = None
            by_id[acl.id] = acl
            touched.setdefault(_pattern(acl), {})[acl.id] = acl
        if touched:
            self._by_id = by_id
            self._types = _rearranged(self._types, touched)


def for_principal(by_principal: ByPrincipal, principal: str) -> tuple[AclBinding, ...]:
    """Return the ACLs of a pattern that name a principal or `User:*`, in order."""
    own, everybody = by_principal.get(principal, ()), by_principal.get(WILDCARD, ())
    if own and everybody and principal != WILDCARD:
        return tuple(sorted((*own, *everybody), key=_order))
    return own or everybody


def _pattern(acl: AclBinding) -> tuple[ResourceType, PatternType, str]:
    return acl.resource_type, acl.pattern_type, acl.resource_name


def _rearranged(
    types: Mapping[ResourceType, _Patterns],
    touched: Mapping[tuple[ResourceType, PatternType, str], Mapping[bytes, AclBinding | None]],
) -> Mapping[ResourceType, _Patterns]:
    """Return the arrangement with each touched pattern changed; None removes an ACL."""
    result = dict(types)
    changed: dict[tuple[ResourceType, PatternType], dict[str, ByPrincipal]] = {}
    for (resource_type, pattern_type, name), change in touched.items():
        kind = (resource_type, pattern_type)
        if kind not in changed:
            changed[kind] = dict(_names(types.get(resource_type, _NO_PATTERNS), pattern_type))
        names = changed[kind]
        acls = {acl.id: acl for group in names.pop(name, {}).values() for acl in group}
        for acl_id, acl in change.items():
            if acl is None:
                acls.pop(acl_id, None)
            else:
                acls[acl_id] = acl
        if acls:
            names[name] = _by_principal(acls.values())
    for (resource_type, pattern_type), names in changed.items():
        patterns = result.get(resource_type, _NO_PATTERNS)
        if pattern_type is PatternType.PREFIXED:
            lengths = tuple(sorted({len(name) for name in names}, reverse=True))
            result[resource_type] = patterns._replace(prefixed=names, lengths=lengths)
        else:
            result[resource_type] = patterns._replace(literal=names)
    return result


def _names(patterns: _Patterns, pattern_type: PatternType) -> Names:
    return patterns.prefixed if pattern_type is PatternType.PREFIXED else patterns.literal


def _by_principal(acls: Iterable[AclBinding]) -> ByPrincipal:
    groups: dict[str, list[AclBinding]] = {}
    for acl in sorted(acls, key=_order):
        groups.setdefault(acl.principal, []).append(acl)
    return {principal: tuple(group) for principal, group in groups.items()}
