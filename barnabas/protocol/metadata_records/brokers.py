"""Brokers and controllers: registrations and fencing."""

from __future__ import annotations

from barnabas.protocol.metadata_records.record import MetadataRecord
from barnabas.protocol.schema import Struct, array, bool_, int8, int16, int32, int64, string, uint16, uuid


class BrokerEndpoint(Struct):
    """An advertised listener of a broker."""

    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class BrokerFeature(Struct):
    """A feature range that a broker supports."""

    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterBrokerRecord(MetadataRecord, record_type=0, versions="0-4", flexible="0+"):
    """A broker registers: a new incarnation, or the same one with other values."""

    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = bool_("2+")
    incarnation_id: bytes = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint, "0+")
    features: list[BrokerFeature] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = bool_("0+", True)
    in_controlled_shutdown: bool = bool_("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0, tagged="3+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", None, nullable="4+", tag=1, tagged="4+")


class UnregisterBrokerRecord(MetadataRecord, record_type=1, versions="0", flexible="0+"):
    """A registration is removed."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


class FenceBrokerRecord(MetadataRecord, record_type=7, versions="0", flexible="0+"):
    """A broker is fenced (written by old controllers)."""

    id: int = int32("0+")
    epoch: int = int64("0+")


class UnfenceBrokerRecord(MetadataRecord, record_type=8, versions="0", flexible="0+"):
    """A broker is unfenced (written by old controllers)."""

    id: int = int32("0+")
    epoch: int = int64("0+")


class BrokerRegistrationChangeRecord(MetadataRecord, record_type=17, versions="0-3", flexible="0+"):
    """A registration changes: `fenced` and `in_controlled_shutdown` are 1 (set), -1 (clear) or 0 (unchanged)."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0, tagged="0+")
    in_controlled_shutdown: int = int8("1+", tag=1, tagged="1+")
    log_dirs: list[bytes] = array(uuid, "2+", tag=2, tagged="2+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", None, nullable="3+", tag=3, tagged="3+")


class ControllerEndpoint(Struct):
    """A listener of a controller."""

    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class ControllerFeature(Struct):
    """A feature range that a controller supports."""

    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterControllerRecord(MetadataRecord, record_type=27, versions="0", flexible="0+"):
    """A controller registers."""

    controller_id: int = int32("0+")
    incarnation_id: bytes = uuid("0+")
    zk_migration_ready: bool = bool_("0+")
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint, "0+")
    features: list[ControllerFeature] = array(ControllerFeature, "0+")
