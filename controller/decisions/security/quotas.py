"""AlterClientQuotas: limits of users, client ids, pairs of both, and IP addresses; with defaults for each.

Source: ClientQuotaControlManager, QuotaConfig (Kafka 4.3); KIP-546, KIP-612.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from barnabas.controller.decision import Decision, Failure, View, check_batch_size, check_item_count
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k49_alter_client_quotas as wire
from barnabas.protocol.metadata_records import MetadataRecord
from barnabas.security.image import quota_record
from barnabas.security.values import CLIENT_ID, IP, USER, Limits, QuotaEntity


class Number(Enum):
    """The type of a limit, with the greatest value of the integral ones."""

    DOUBLE = None
    INT = (1 << 31) - 1
    LONG = (1 << 63) - 1


CLIENT_LIMITS: Final[Mapping[str, Number]] = {
    "producer_byte_rate": Number.LONG,
    "consumer_byte_rate": Number.LONG,
    "request_percentage": Number.DOUBLE,
    "controller_mutation_rate": Number.DOUBLE,
}
IP_LIMITS: Final[Mapping[str, Number]] = {"connection_creation_rate": Number.INT}
_FRACTION_MAX: Final = 1e-6  # of an integral limit: what rounding leaves

#: Whether a name is an IP address or resolves to one. A decision asks nobody, so the API does.
IsHost = Callable[[str], bool]
Entity = Mapping[str, str | None]


def alter_client_quotas(
    view: View, request: wire.AlterClientQuotasRequest, is_host: IsHost
) -> Decision[wire.AlterClientQuotasResponse]:
    """Set and remove limits; each entity succeeds or fails as a whole."""
    check_item_count(sum(max(1, len(entry.ops)) for entry in request.entries))
    records: list[MetadataRecord] = []
    results: dict[QuotaEntity, Failure | None] = {}
    for entry in request.entries:
        parts = {part.entity_type: part.entity_name for part in entry.entity}
        entity = QuotaEntity.of(parts)
        changes: dict[str, float | None] = {}
        has_duplicate = entity in results
        for op in entry.ops:
            has_duplicate |= op.key in changes
            changes[op.key] = None if op.remove else op.value
        if has_duplicate:
            text = f"Ignoring duplicate entity {_text(parts)}"
            results[entity] = Failure(ErrorCode.INVALID_REQUEST, text)
            continue
        failure = _entity_failure(parts, is_host) or _limit_failure(parts, changes)
        results[entity] = failure
        if failure is None:
            records += _records(view.image.security.quotas.get(entity, {}), entity, changes)
            check_batch_size(records)
    response = wire.AlterClientQuotasResponse(entries=[_result(entity, f) for entity, f in results.items()])
    return Decision([] if request.validate_only else records, response)


def named_hosts(request: wire.AlterClientQuotasRequest) -> set[str]:
    """Return the names of all IP entities, which must be addresses or names of hosts."""
    parts = [part for entry in request.entries for part in entry.entity]
    return {part.entity_name for part in parts if part.entity_type == IP and part.entity_name}


def _result(entity: QuotaEntity, failure: Failure | None) -> wire.ResponseEntryData:
    return wire.ResponseEntryData(
        error_code=ErrorCode.NONE if failure is None else failure.code,
        error_message=None if failure is None else failure.message,
        entity=[wire.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
    )


def _records(current: Limits, entity: QuotaEntity, changes: Mapping[str, float | None]) -> list[MetadataRecord]:
    """Return the records of what really changes."""
    return [quota_record(entity, key, value) for key, value in changes.items() if current.get(key) != value]


def _entity_failure(parts: Entity, is_host: IsHost) -> Failure | None:
    """Return what is wrong with the types and names of an entity."""
    if not parts:
        return _invalid("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in (USER, CLIENT_ID, IP):
            return _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            return _invalid(f"Empty {kind} not supported")
    if IP not in parts:
        return None
    if len(parts) > 1:
        return _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )  # the blank is missing in Kafka too
    address = parts[IP]
    if address is not None and not is_host(address):
        return _invalid(f"{address} is not a valid IP or resolvable host.")
    return None


def _limit_failure(parts: Entity, changes: Mapping[str, float | None]) -> Failure | None:
    """Return what is wrong with the limits that are set; a removal is never wrong."""
    limits = IP_LIMITS if IP in parts else CLIENT_LIMITS
    for key, value in changes.items():
        if value is None:
            continue
        kind = limits.get(key)
        if kind is None:
            return _invalid(f"Invalid configuration key {key}")
        if not value > 0.0:  # this refuses NaN too, unlike Apache Kafka
            return _invalid(f"Quota {key} must be greater than 0")
        if kind.value is not None:
            if value > kind.value:
                article = "an" if kind is Number.INT else "a"
                return _invalid(f"Proposed value for {key} is too large for {article} {kind.name}.")
            if abs(value % 1.0) > _FRACTION_MAX:
                return _invalid(f"{key} cannot be a fractional value.")
    return None


def _invalid(text: str) -> Failure:
    return Failure(ErrorCode.INVALID_REQUEST, text)


def _text(parts: Entity) -> str:
    """Return an entity as Kafka writes it."""
    named = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts.items())
    return f"ClientQuotaEntity(entries={{{named}}})"
