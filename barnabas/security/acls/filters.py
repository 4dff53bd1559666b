"""Filters of ACLs, as DescribeAcls and DeleteAcls carry them.

A field that is ANY or None matches everything. Resource names have four kinds of match:

1. ANY: every pattern, with this name if there is one.
2. MATCH: every pattern that covers the resource of this name: the literal one, `*`, and each prefix of the name.
3. LITERAL, PREFIXED: patterns of this type with exactly this name.

Source: AclBindingFilter, ResourcePatternFilter.matches, AccessControlEntryFilter.matches (Kafka 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.security.values import ANY_NAME, AclBinding, AclOperation, PatternType, PermissionType, ResourceType

if TYPE_CHECKING:
    from barnabas.protocol.messages.k29_describe_acls import DescribeAclsRequest
    from barnabas.protocol.messages.k31_delete_acls import DeleteAclsFilter


class AclFilter(NamedTuple):
    """Selects ACLs."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY

    @classmethod
    def of_request(cls, fields: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
        """Return the filter that a request carries; a code that this release does not know is UNKNOWN."""
        return cls(
            ResourceType.of(fields.resource_type_filter),
            fields.resource_name_filter,
            PatternType.of(fields.pattern_type_filter),
            fields.principal_filter,
            fields.host_filter,
            AclOperation.of(fields.operation),
            PermissionType.of(fields.permission_type),
        )

    @property
    def is_unknown(self) -> bool:
        """Whether a field has a code that this release does not know, which an API refuses."""
        return not (self.resource_type and self.pattern_type and self.operation and self.permission)

    @property
    def is_exact(self) -> bool:
        """Whether every field has one value: the filter is then equal to the `rule` of what it selects."""
        return (
            self.resource_type is not ResourceType.ANY
            and self.pattern_type not in (PatternType.ANY, PatternType.MATCH)
            and None not in (self.resource_name, self.principal, self.host)
            and self.operation is not AclOperation.ANY
            and self.permission is not PermissionType.ANY
        )

    def matches(self, acl: AclBinding) -> bool:
        """Return whether an ACL is selected."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        kind, name = self.pattern_type, self.resource_name
        if kind not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None:
            return True
        if kind is not PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, ANY_NAME)
