"""The requests about ACLs: create, describe and delete them."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cli.cluster_nodes import ask_any
from barnabas.cli.security.answers import check
from barnabas.protocol.messages.k29_describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.security.acls.filters import AclFilter
from barnabas.security.values import AclBinding, AclOperation, PatternType, PermissionType, ResourceType

VERSION = 3


def describe_acls(bootstrap: str, wanted: AclFilter) -> list[AclBinding]:
    """Return the ACLs that a filter selects, each with another number as its id."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    answer = ask_any(bootstrap, request, VERSION)
    check(answer.error_code, answer.error_message)
    rules = [
        (
            ResourceType.of(resource.resource_type),
            resource.resource_name,
            PatternType.of(resource.pattern_type),
            acl.principal,
            acl.host,
            AclOperation.of(acl.operation),
            PermissionType.of(acl.permission_type),
        )
        for resource in answer.resources
        for acl in resource.acls
    ]
    return [AclBinding(number.to_bytes(16), *rule) for number, rule in enumerate(sorted(rules))]


def create_acls(bootstrap: str, acls: Sequence[AclBinding]) -> None:
    """Add ACLs; raises RequestError for the first one that is refused."""
    check_created(ask_any(bootstrap, create_request(acls), VERSION))


def create_request(acls: Sequence[AclBinding]) -> CreateAclsRequest:
    """Return the request that adds ACLs."""
    creations = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    return CreateAclsRequest(creations=creations)


def check_created(answer: CreateAclsResponse) -> None:
    """Raise RequestError for the first ACL that was refused."""
    for result in answer.results:
        check(result.error_code, result.error_message)


def delete_acls(bootstrap: str, acls: Sequence[AclBinding]) -> int:
    """Delete exactly these ACLs; return how many existed."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=acl.resource_type,
            resource_name_filter=acl.resource_name,
            pattern_type_filter=acl.pattern_type,
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    count = 0
    for result in ask_any(bootstrap, DeleteAclsRequest(filters=filters), VERSION).filter_results:
        check(result.error_code, result.error_message)
        for acl in result.matching_acls:
            check(acl.error_code, acl.error_message)
            count += 1
    return count
