"""UpdateMetadata: v8, accepted from the controller, not advertised

Behaviour: replaces the metadata snapshot by one that includes the push (`metadata_cache.py`). Then it wakes the admin
requests that wait for their topics to appear, change or vanish. The committed offsets and the share state of deleted
topics are removed. Topics are compared by id, so this holds even if the same push creates another topic of that name.
ACLs, credentials, tokens and quotas of the push are in effect before it is acknowledged (`security_cache.py`).
The sender is the active controller, and requests to controllers follow it (`channels/controller_nodes.py`).
Tag 10001 is the metadata offset up to which this broker is now complete. The next heartbeat reports it.

Errors: those of every push (`push_gate.py`).

Different from Apache Kafka: 4.x removed this request. This is the request of 3.9 with our own tagged fields, and it is
refused without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.push import apply_records, apply_security, push_api
from barnabas.broker.channels.forwarding import METADATA
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.protocol.metadata_records import PartitionRecord, RegisterControllerRecord
from barnabas.protocol.push_tags import TAG_PARTIAL, offset_of, records_of, tag_of

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services


def carry_out(services: Services, message: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """Apply the configs, then the security metadata, then the metadata of the cluster."""
    records = records_of(message)
    registrations = apply_records(services, message, records)
    apply_security(services, message, records)
    before = services.metadata_cache.snapshot
    partitions = [record for record in records if isinstance(record, PartitionRecord)]
    changed = services.metadata_cache.apply_update_metadata(message, registrations, partitions)
    services.controllers.pushed(
        message.controller_id, [record for record in records if isinstance(record, RegisterControllerRecord)]
    )
    offset = offset_of(message)
    if offset is not None and tag_of(message, TAG_PARTIAL) is None:
        services.metadata_cache.note_offset(offset)
        services.lifecycle.wake()
    after = services.metadata_cache.snapshot
    former_ids = {name: before.topic_id(name) for name in changed if before.topic_id(name) != after.topic_id(name)}
    services.group_coordinator.on_metadata_update(former_ids)
    services.share_coordinator.on_metadata_update(former_ids)
    if before is not after:
        services.quotas.cluster_changed(after)
    for name in (*changed, METADATA):
        services.purgatories.topic.check_and_complete(name)
    return UpdateMetadataResponse()


API = push_api(UpdateMetadataRequest, UpdateMetadataResponse, carry_out)
