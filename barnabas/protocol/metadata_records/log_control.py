"""Records about the metadata log itself: transactions, no-ops, the migration from ZooKeeper."""

from __future__ import annotations

from barnabas.protocol.metadata_records.record import MetadataRecord
from barnabas.protocol.schema import int8, string


class NoOpRecord(MetadataRecord, record_type=20, versions="0", flexible="0+"):
    """Changes nothing; a new controller writes one to make its epoch durable."""


class ZkMigrationStateRecord(MetadataRecord, record_type=21, versions="0", flexible="0+"):
    """The state of a migration from ZooKeeper."""

    zk_migration_state: int = int8("0+")


class BeginTransactionRecord(MetadataRecord, record_type=23, versions="0", flexible="0+"):
    """The first record of a metadata transaction."""

    name: str | None = string("0+", None, nullable="0+", tag=0, tagged="0+")


class EndTransactionRecord(MetadataRecord, record_type=24, versions="0", flexible="0+"):
    """The metadata transaction is complete."""


class AbortTransactionRecord(MetadataRecord, record_type=25, versions="0", flexible="0+"):
    """The metadata transaction is aborted."""

    reason: str | None = string("0+", None, nullable="0+", tag=0, tagged="0+")
