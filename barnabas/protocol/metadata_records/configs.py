"""Configurations, features, quotas and blocks of producer ids."""

from __future__ import annotations

from barnabas.protocol.metadata_records.record import MetadataRecord
from barnabas.protocol.schema import Struct, array, bool_, float64, int8, int16, int32, int64, string


class ConfigRecord(MetadataRecord, record_type=4, versions="0", flexible="0+"):
    """A dynamic config is set; a null value removes it."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class FeatureLevelRecord(MetadataRecord, record_type=12, versions="0", flexible="0+"):
    """A feature gets a finalized level; 0 removes it."""

    name: str = string("0+")
    feature_level: int = int16("0+")


class EntityData(Struct):
    """One component of the entity of a client quota."""

    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ClientQuotaRecord(MetadataRecord, record_type=14, versions="0", flexible="0+"):
    """A client quota is set or removed."""

    entity: list[EntityData] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = bool_("0+")


class ProducerIdsRecord(MetadataRecord, record_type=15, versions="0", flexible="0+"):
    """A block of producer ids is allocated: all ids below `next_producer_id` are in use."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", -1)
    next_producer_id: int = int64("0+")
