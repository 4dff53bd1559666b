"""UpdateMetadata: v8, accepted from the controller, not advertised

Behaviour: replaces the metadata cache by one that includes the push (`metadata_cache.py`), then wakes the admin
requests that wait to see their topics appear, change or vanish. Offsets committed for topics that vanished are removed,
also if another topic of the same name came in the same push: ids are compared, not names.
Tag 10001 says up to which offset of the metadata log this broker now knows everything; the next heartbeat reports it.

Errors: those of every push (`push_gate.py`).

Different from Apache Kafka: 4.x removed this request; it is the push of 3.9, with tagged fields of our own, without
which it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Answer, Reply
from barnabas.broker.apis.api import Api, nodes_only
from barnabas.broker.apis.push import admits, apply_records
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.protocol.push_tags import TAG_PARTIAL, offset_of, tag_of

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request


def handle(services: Services, request: Request) -> Answer:
    """Apply configs, then the picture of the cluster."""
    message: UpdateMetadataRequest = request.message
    return Reply(services.push_gate.obey(message, lambda: _carry_out(services, message), UpdateMetadataResponse))


def _carry_out(services: Services, message: UpdateMetadataRequest) -> UpdateMetadataResponse:
    registrations = apply_records(services, message)
    before = services.metadata_cache.snapshot
    changed = services.metadata_cache.apply_update_metadata(message, registrations)
    offset = offset_of(message)
    if offset is not None and tag_of(message, TAG_PARTIAL) is None:
        services.metadata_cache.note_offset(offset)
        services.lifecycle.wake()
    after = services.metadata_cache.snapshot
    former_ids = {name: before.topic_id(name) for name in changed if before.topic_id(name) != after.topic_id(name)}
    services.group_coordinator.on_picture(former_ids)
    for name in changed:
        services.purgatories.topic.check_and_complete(name)
    return UpdateMetadataResponse()


API = Api(
    6,
    "UpdateMetadata",
    (8, 8),
    handle,
    operation="CLUSTER_ACTION",
    resource="CLUSTER",
    advertised=False,
    nodes_only=nodes_only,
    admits=admits,
)
