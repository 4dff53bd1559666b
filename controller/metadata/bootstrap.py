"""The first records of a new metadata log: from the `bootstrap.checkpoint` file of `kafka-storage format`, or defaults.

Format: that of a snapshot (snapshot.py), but the file name has no end offset. The file holds feature levels, and SCRAM
credentials (`--add-scram`). Features that are not built are left out with a warning.

Threads: main, at start.

Source: BootstrapDirectory, ActivationRecordsGenerator (Kafka 4.3).
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.broker.metadata.features import SUPPORTED_FEATURES, VERSION_4_3_IV0
from barnabas.common.disk.files import FileSystem
from barnabas.config.config import Config
from barnabas.controller.decision import MIN_INSYNC_REPLICAS
from barnabas.controller.image import BROKER_RESOURCE, ELR_VERSION, METADATA_VERSION
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.controller.metadata.record_batches import checked_batches, decode_values
from barnabas.controller.metadata.snapshot import unreadable
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    UserScramCredentialRecord,
)
from barnabas.protocol.records.batch import iter_records

log = logging.getLogger("barnabas.controller")

FILE: Final = "bootstrap.checkpoint"

#: The feature levels of a new cluster, as in Kafka 4.3 (the features that are built). Why this order: Apache Kafka's
#: standby controllers end if another record comes before metadata.version.
FEATURES: Final = {
    METADATA_VERSION: VERSION_4_3_IV0, ELR_VERSION: 1, "group.version": 1, "share.version": 1, "streams.version": 1,
    "transaction.version": 2,
}  # fmt: skip


def bootstrap_records(fs: FileSystem, directory: str, config: Config) -> list[MetadataRecord]:
    """Return the first records of an empty log; raises DirectoryError if the file cannot be used.

    With eligible leader replicas, the controller's min.insync.replicas is that of the whole cluster.
    """
    path = f"{directory}/{FILE}"
    records = _records_of(fs, path) if fs.exists(path) else default_records()
    if any(isinstance(r, FeatureLevelRecord) and r.name == ELR_VERSION and r.feature_level for r in records):
        value = str(config.topic_defaults[MIN_INSYNC_REPLICAS])
        records.append(
            ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_INSYNC_REPLICAS, value=value)
        )
    return records


def _records_of(fs: FileSystem, path: str) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    try:
        for header, batch in checked_batches(fs.read_bytes(path)):
            if not header.is_control:
                for record in decode_values(iter_records(batch)):
                    records += _usable(path, record)
    except MalformedMessageError as error:
        raise DirectoryError(unreadable(path, 0, error)) from error
    if not any(isinstance(r, FeatureLevelRecord) and r.name == METADATA_VERSION for r in records):
        raise DirectoryError(f"{path} does not name the cluster's metadata.version: format the directory again")
    return sorted(records, key=lambda r: not (isinstance(r, FeatureLevelRecord) and r.name == METADATA_VERSION))


def default_records() -> list[MetadataRecord]:
    """Return the records of a new cluster."""
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in FEATURES.items()]


def _usable(path: str, record: MetadataRecord) -> list[MetadataRecord]:
    """Return the record in a list, or an empty list with a warning; raises DirectoryError."""
    if isinstance(record, FeatureLevelRecord):
        return _usable_feature(path, record)
    if isinstance(record, UserScramCredentialRecord):
        return [record]
    log.warning("%s has a %s: it is left out", path, type(record).__name__)
    return []


def _usable_feature(path: str, record: FeatureLevelRecord) -> list[MetadataRecord]:
    known = SUPPORTED_FEATURES.get(record.name)
    if known is None:
        if record.feature_level:
            log.warning("%s enables %s, which is not built: it stays disabled", path, record.name)
        return []
    low, high = known
    if not low <= record.feature_level <= high:
        raise DirectoryError(
            f"{path} was formatted with {record.name}={record.feature_level}, but this controller supports {low} to "
            f"{high}: format it with --feature {record.name}={high}"
        )
    return [record]
