"""Reads whole topics, at either isolation level, over its own connections.

Why no client library: a consumer finds its group's coordinator before it fetches. That takes half a second and creates
__consumer_offsets. A test reads often, and must see only the topics that it created.

*Threads*: a TopicReader belongs to the thread that uses it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.connection import Connect, NodeConnection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.records.batch import (
    BatchHeader,
    ControlType,
    iter_records,
    parse_control_type,
    verify_crc,
)
from barnabas.protocol.records.batch import Record as StoredRecord
from barnabas.protocol.records.compression import Buffer
from barnabas.protocol.records.stored_messages import iter_batches
from barnabas.testing.records import Record

CLIENT_ID: Final = "barnabas-testing"  # lets a fault exclude these requests
FETCH_VERSION: Final = 12  # the last one that names topics
METADATA_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 6
EARLIEST: Final = -2
REQUEST_TIMEOUT_MS: Final = 10_000
MAX_WAIT_MS: Final = 20
MAX_BYTES: Final = 16 << 20
READ_COMMITTED: Final = 1
NO_SESSION_EPOCH: Final = -1


@dataclass(slots=True)
class _Partition:
    """The progress in one partition."""

    address: tuple[str, int] | None = None
    position: int = 0
    is_read: bool = False  # up to the end in the leader's last response
    records: list[Record] = field(default_factory=list)


class TopicReader:
    """Reads one topic from its start; each further call of `read` fetches only new records."""

    def __init__(self, bootstrap: str, topic: str, *, committed_only: bool, connect: Connect = NodeConnection) -> None:
        self._connect = connect
        self._bootstrap = [_host_port(address) for address in bootstrap.split(",")]
        self._topic = topic
        self._committed_only = committed_only
        self._partitions: dict[int, _Partition] = {}
        self._connections: dict[tuple[str, int], NodeConnection] = {}

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    @property
    def records(self) -> list[Record]:
        """All records read so far, by partition and offset."""
        return [record for _, partition in sorted(self._partitions.items()) for record in partition.records]

    def read(self) -> bool:
        """Fetch new records; return whether every partition was read to its end.

        That is false while the topic does not exist, or while a partition has no leader that answers.
        """
        if any(partition.address is None for partition in self._partitions.values()) or not self._partitions:
            self._find_leaders()
        for number, partition in self._partitions.items():
            partition.is_read = False
            while partition.address is not None and not partition.is_read:
                self._fetch(number, partition, partition.address)
        return bool(self._partitions) and all(partition.is_read for partition in self._partitions.values())

    def _find_leaders(self) -> None:
        """Get the leaders from the first broker that answers."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        for address in self._bootstrap:
            with contextlib.suppress(OSError):
                answer = self._connection(address).send(request, METADATA_VERSION)
                brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
                for found in answer.topics[0].partitions:
                    partition = self._partitions.setdefault(found.partition_index, _Partition())
                    partition.address = brokers.get(found.leader_id)
                return

    def _fetch(self, number: int, partition: _Partition, address: tuple[str, int]) -> None:
        """Send one fetch. After an error, the next call of `read` finds the leader again."""
        wanted = FetchPartition(partition=number, fetch_offset=partition.position, partition_max_bytes=MAX_BYTES)
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=READ_COMMITTED if self._committed_only else 0,
            session_epoch=NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=self._topic, partitions=[wanted])],
        )
        try:
            answer = self._connection(address).send(request, FETCH_VERSION)
        except OSError:
            partition.address = None
            return
        found = answer.responses[0].partitions[0] if answer.responses else None
        if found is not None and found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._find_start(number, partition, address)
        elif found is None or found.error_code:
            partition.address = None
        else:
            self._take(number, partition, found)

    def _take(self, number: int, partition: _Partition, found: PartitionData) -> None:
        """Keep the records of a fetch response, without those of aborted transactions and control batches."""
        aborted = Aborted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
        data = memoryview(found.records or b"")
        for header, batch in iter_batches(data):
            verify_crc(batch, 0, header)
            is_hidden = aborted.hides(header, batch)
            if not is_hidden and header.last_offset >= partition.position:
                records = (_record(self._topic, number, record) for record in iter_records(batch))
                partition.records += (record for record in records if record.offset >= partition.position)
            partition.position = max(partition.position, header.next_offset)
        end = found.last_stable_offset if self._committed_only else found.high_watermark
        partition.is_read = partition.position >= end

    def _find_start(self, number: int, partition: _Partition, address: tuple[str, int]) -> None:
        """Move to the log start offset, which is past this position."""
        wanted = ListOffsetsPartition(partition_index=number, timestamp=EARLIEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=[wanted])])
        partition.address = None
        with contextlib.suppress(OSError):
            answer = self._connection(address).send(request, LIST_OFFSETS_VERSION).topics[0].partitions[0]
            if answer.error_code == 0 and answer.offset > partition.position:
                partition.position = answer.offset
                partition.address = address

    def _connection(self, address: tuple[str, int]) -> NodeConnection:
        if address not in self._connections:
            connection = self._connect(*address, timeout_ms=REQUEST_TIMEOUT_MS, client_id=CLIENT_ID)
            self._connections[address] = connection
        return self._connections[address]


class Aborted:
    """Finds the batches of aborted transactions in a fetch response, by the same rules as Kafka's consumers.

    The response lists the aborted transactions that overlap with it, by first offset and producer id. A control batch
    (marker) of that producer ends one. Control batches contain no records for applications.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(transactions, reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the next batch is aborted or a control batch."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        if header.is_control:
            if any(parse_control_type(record.key) == ControlType.ABORT for record in iter_records(batch)):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def _record(topic: str, partition: int, found: StoredRecord) -> Record:
    return Record(topic, partition, found.offset, found.timestamp, found.key, found.value, found.headers)


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
