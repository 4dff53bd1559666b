"""CreateAcls and DeleteAcls.

Rules
1. An ACL that exists already is not added again, and its creation succeeds.
2. An invalid ACL or filter fails alone; the rest of the request is one atomic batch.

Source: AclControlManager, AclApis.handleCreateAcls (Kafka 4.3).
"""

from __future__ import annotations

from typing import Final

from barnabas.common.ids import ZERO_UUID, random_uuid
from barnabas.controller.decision import MAX_RECORDS_PER_USER_OP, Decision, View, check_item_count
from barnabas.protocol.errors import ApiError, ErrorCode, message_that_fits
from barnabas.protocol.messages import k30_create_acls as create_wire
from barnabas.protocol.messages import k31_delete_acls as delete_wire
from barnabas.protocol.metadata_records import MetadataRecord, RemoveAccessControlEntryRecord
from barnabas.security.acls.filters import AclFilter
from barnabas.security.image import acl_record
from barnabas.security.values import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)

#: Filters that are compared with every ACL. Exact ones are looked up: tools remove thousands of ACLs, each by its own.
BROAD_FILTERS_MAX: Final = 1_000


def check_authorizer(view: View) -> None:
    """Raise SECURITY_DISABLED unless an authorizer is configured."""
    if not str(view.config.authorizer_class_name):
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def create_acls(view: View, request: create_wire.CreateAclsRequest) -> Decision[create_wire.CreateAclsResponse]:
    """Add the valid ACLs of a request."""
    check_authorizer(view)
    check_item_count(len(request.creations))
    known = {acl.rule for acl in view.image.security.acls.values()}
    records: list[MetadataRecord] = []
    results = []
    for creation in request.creations:
        acl = _binding(creation)
        problem = _problem(acl)
        if problem is not None:
            results.append(
                create_wire.AclCreationResult(
                    error_code=ErrorCode.INVALID_REQUEST, error_message=message_that_fits(problem)
                )
            )
            continue
        results.append(create_wire.AclCreationResult())
        if acl.rule not in known:
            known.add(acl.rule)
            acl = acl._replace(id=random_uuid())
            records.append(acl_record(acl))
    return Decision(records, create_wire.CreateAclsResponse(results=results))


def _binding(creation: create_wire.AclCreation) -> AclBinding:
    return AclBinding(
        ZERO_UUID,
        ResourceType.of(creation.resource_type),
        creation.resource_name,
        PatternType.of(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        AclOperation.of(creation.operation),
        PermissionType.of(creation.permission_type),
    )


def _problem(acl: AclBinding) -> str | None:
    """Return why an ACL cannot be added, None if it can."""
    return _problem_of_resource(acl) or _problem_of_entry(acl)


def _problem_of_resource(acl: AclBinding) -> str | None:
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    return None


def _problem_of_entry(acl: AclBinding) -> str | None:
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (PermissionType.DENY, PermissionType.ALLOW):
        return f"Invalid permissionType {acl.permission.name}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )
    return None


def delete_acls(view: View, request: delete_wire.DeleteAclsRequest) -> Decision[delete_wire.DeleteAclsResponse]:
    """Remove every ACL that a filter selects; an ACL that several filters select is in the result of each."""
    check_authorizer(view)
    check_item_count(len(request.filters))
    filters = [AclFilter.of_request(wanted) for wanted in request.filters]
    check_item_count(sum(not chosen.is_exact for chosen in filters), BROAD_FILTERS_MAX)
    acls = view.image.security.acls.values()
    by_rule: dict[tuple[object, ...], list[AclBinding]] = {}
    for acl in acls:
        by_rule.setdefault(acl.rule, []).append(acl)
    removed: dict[bytes, MetadataRecord] = {}
    results = []
    for chosen in filters:
        if chosen.is_unknown:
            is_pattern = not (chosen.resource_type and chosen.pattern_type)
            text = "Unknown patternFilter." if is_pattern else "Unknown entryFilter."
            results.append(delete_wire.DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=text))
            continue
        matching = by_rule.get(chosen, []) if chosen.is_exact else [acl for acl in acls if chosen.matches(acl)]
        for acl in matching:
            removed[acl.id] = RemoveAccessControlEntryRecord(id=acl.id)
        if len(removed) > MAX_RECORDS_PER_USER_OP:
            text = f"Cannot remove more than {MAX_RECORDS_PER_USER_OP} acls in a single delete operation."
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        results.append(
            delete_wire.DeleteAclsFilterResult(error_message=None, matching_acls=[_matching(acl) for acl in matching])
        )
    return Decision(list(removed.values()), delete_wire.DeleteAclsResponse(filter_results=results))


def _matching(acl: AclBinding) -> delete_wire.DeleteAclsMatchingAcl:
    return delete_wire.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
