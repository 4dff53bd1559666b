"""What a new metadata log begins with: `bootstrap.checkpoint` of a directory that `kafka-storage format` made, or ours.

Format: a snapshot's (snapshot.py), but without end offset in its name. Feature levels, and SCRAM credentials
(`--add-scram`), which are kept for when they are used. Features that are not built are left out, and said.

Threads: main, at start.

Source: BootstrapDirectory, ActivationRecordsGenerator (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from barnabas.broker.features import SUPPORTED_FEATURES
from barnabas.common.files import FileSystem
from barnabas.controller.image import METADATA_VERSION, VERSION_4_3_IV0
from barnabas.controller.metadata_directory import DirectoryError
from barnabas.controller.snapshot import unreadable
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.metadata_records import FeatureLevelRecord, UserScramCredentialRecord, decode_record
from barnabas.protocol.records.batch import iter_headers, iter_records, verify_crc

log = logging.getLogger("barnabas.controller")

FILE: Final = "bootstrap.checkpoint"

#: What a new cluster is formatted with, as by Kafka 4.3 (as far as it is built).
FEATURES: Final = {"group.version": 1, METADATA_VERSION: VERSION_4_3_IV0, "transaction.version": 2}


def bootstrap_records(fs: FileSystem, directory: str) -> list[Any]:
    """Return the first records of an empty log; raises DirectoryError for a file that cannot be used."""
    path = f"{directory}/{FILE}"
    if not fs.exists(path):
        return [FeatureLevelRecord(name=name, feature_level=level) for name, level in FEATURES.items()]
    records: list[Any] = []
    try:
        for record in _read(fs.read_bytes(path)):
            if isinstance(record, FeatureLevelRecord):
                records += _feature(path, record)
            elif isinstance(record, UserScramCredentialRecord):
                log.warning("%s has a SCRAM credential of %s: it is kept, but SCRAM is not built", path, record.name)
                records.append(record)
            else:
                log.warning("%s has a %s: it is left out", path, type(record).__name__)
    except MalformedMessageError as error:
        raise DirectoryError(unreadable(path, 0, error)) from error
    if not any(isinstance(r, FeatureLevelRecord) and r.name == METADATA_VERSION for r in records):
        raise DirectoryError(f"{path} does not say which metadata.version the cluster has: format the directory anew")
    return records


def _read(data: bytes) -> Iterator[Any]:
    for position, header in iter_headers(data):
        verify_crc(data, position, header)
        if header.is_control:
            continue
        for record in iter_records(memoryview(data)[position : position + header.size_in_bytes]):
            if record.value is None:
                raise MalformedMessageError("a metadata record has no value")
            yield decode_record(record.value)


def _feature(path: str, record: FeatureLevelRecord) -> list[Any]:
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
