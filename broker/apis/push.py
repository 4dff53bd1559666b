"""The rows of the APIs that only nodes call, and the common part of the controller's three pushes.

The pushes are LeaderAndIsr, StopReplica and UpdateMetadata. Their tagged fields are in `protocol/push_tags.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Admits, Api, Handle, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.protocol.metadata_records import ConfigRecord, FeatureLevelRecord, MetadataRecord, RegisterBrokerRecord
from barnabas.protocol.push_tags import FULL, offset_of
from barnabas.security.image import security_records

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.metadata.push_gate import Push
    from barnabas.broker.requests.request import Request
    from barnabas.protocol import schema
    from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
    from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest

P = TypeVar("P", bound="Push")
R = TypeVar("R", bound="schema.Response")


def push_api(request_type: type[P], response_type: type[R], carry_out: Callable[[Services, P], R]) -> Api:
    """Return the row of a push: the newest version only; `carry_out` runs if the push gate admits the request."""

    def handle(services: Services, request: Request) -> Answer:
        message: P = request.message
        return Reply(services.push_gate.obey(message, lambda: carry_out(services, message), response_type))

    version = request_type.MAX_VERSION
    return nodes_only_api(request_type, (version, version), handle, admits=_admits)


def nodes_only_api(
    request_type: type[schema.Request], versions: tuple[int, int], handle: Handle, *, admits: Admits | None = None
) -> Api:
    """Return the row of an API that brokers and controllers call: refused to clients, not listed by ApiVersions."""
    return Api(
        request_type.API_KEY,
        request_type.NAME,
        versions,
        handle,
        advertised=False,
        nodes_only=nodes_only,
        admits=admits,
    )


def apply_records(
    services: Services, message: LeaderAndIsrRequest | UpdateMetadataRequest, records: list[MetadataRecord]
) -> list[RegisterBrokerRecord]:
    """Apply the configs and features of a push; returns its registrations, empty if it carries none."""
    configs = [record for record in records if isinstance(record, ConfigRecord)]
    features = {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}
    if configs or features:
        services.dynamic_config.apply_records(configs, is_full=message.type == FULL)
    if features:
        services.metadata_cache.note_features(features)
    return [record for record in records if isinstance(record, RegisterBrokerRecord)]


def apply_security(services: Services, message: UpdateMetadataRequest, records: list[MetadataRecord]) -> None:
    """Apply the ACLs, credentials, tokens and quotas of a push."""
    is_full, offset = message.type == FULL, offset_of(message)
    ours = security_records(records)
    if (ours or is_full) and offset is not None:
        services.security.apply(ours, offset, is_full=is_full)


def _admits(services: Services, frame: memoryview) -> bool:
    """Look at a large push before it is decoded (rule 5 of the push gate)."""
    return services.push_gate.admits(frame)
