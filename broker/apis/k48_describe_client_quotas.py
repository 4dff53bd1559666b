"""DescribeClientQuotas: v0-v1

Behaviour: lists the quotas of the entities that match every component: an exact name, the default, or any name of a
type. `strict` excludes entities with further types. This broker answers from what the controller pushed to it.

Version notes: v1 flexible.

Errors: INVALID_REQUEST (an empty or repeated type, a match that contradicts its type, ip beside user or client-id),
UNSUPPORTED_VERSION (an unknown type).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from barnabas.security.values import CLIENT_ID, IP, USER, Limits, QuotaEntity

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


EXACT, DEFAULT, SPECIFIED = 0, 1, 2
_MATCH_NAMES = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}


def handle(services: Services, request: Request) -> Reply:
    """Return the matching entities."""
    message: DescribeClientQuotasRequest = request.message
    names, types = _filter(message.components)
    entries = [
        _entry(entity, limits)
        for entity, limits in services.security.image.quotas.items()
        if _matches(entity.as_mapping(), names, types, is_strict=message.strict)
    ]
    return Reply(DescribeClientQuotasResponse(entries=entries))


def _filter(components: list[ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    """Return the names by type (None: the default), and the types of which any name will do; raises ApiError."""
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in names or kind in types:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(component)
        if component.match_type == SPECIFIED:
            types.add(kind)
        else:
            names[kind] = component.match
    asked = names.keys() | types
    if IP in asked and len(asked) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return names, types


def _check_match(component: ComponentData) -> None:
    """Raise ApiError unless the component has a name if, and only if, its type of match needs one."""
    name = _MATCH_NAMES.get(component.match_type)
    if name is None:
        raise _invalid(f"Unknown match type {component.match_type}")
    if component.match_type == EXACT and component.match is None:
        raise _invalid(f"Request specified {name}, but set match string to null.")
    if component.match_type != EXACT and component.match is not None:
        raise _invalid(f"Request specified {name}, but also specified a match string.")


def _matches(entity: dict[str, str | None], names: dict[str, str | None], types: set[str], *, is_strict: bool) -> bool:
    if is_strict and len(entity) != len(names) + len(types):
        return False
    return types <= entity.keys() and all(kind in entity and entity[kind] == name for kind, name in names.items())


def _entry(entity: QuotaEntity, limits: Limits) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
        values=[ValueData(key=key, value=value) for key, value in limits.items()],
    )


def _invalid(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, text)


API = Api(48, "DescribeClientQuotas", (0, 1), handle)
