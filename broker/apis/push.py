"""What the three requests of the controller's push have in common; their tagged fields are in `push_tags.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.metadata_records import ConfigRecord, FeatureLevelRecord, RegisterBrokerRecord
from barnabas.protocol.push_tags import FULL, records_of

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services


def apply_records(services: Services, message: Any) -> list[RegisterBrokerRecord]:
    """Apply the configs and features that a push carries; returns the registrations, none if it does not tell."""
    records = records_of(message)
    registrations = [record for record in records if isinstance(record, RegisterBrokerRecord)]
    if len(registrations) == len(records):
        return registrations
    configs = [record for record in records if isinstance(record, ConfigRecord)]
    services.dynamic_config.apply_records(configs, is_full=message.type == FULL)
    features = {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}
    if features:
        services.metadata_cache.note_features(features)
    return registrations


def admits(services: Services, frame: memoryview) -> bool:
    """The `admits` of a push."""
    return services.push_gate.admits(frame)
