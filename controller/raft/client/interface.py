"""RaftClient: the replicated log of cluster metadata, as the active controller and the standby ones use it.

Rules
1. A listener is called by the raft thread alone, one call at a time. A call must be short: it queues an event.
2. `handle_commit` has every committed batch once, in the order of offsets and without gaps, batches of control records
   included (they take offsets and hold no metadata records). `handle_load_snapshot` replaces everything before it.
3. `handle_leader_change` names this node as the leader only after `handle_commit` has had everything before its epoch,
   and the first records of its epoch are committed. So a new leader has replayed to the end. The loss of the lead is
   reported at once.
4. `append` takes a batch only for the epoch in which this replica leads. It returns before the batch is durable or
   committed; `handle_commit` reports that. A batch of an epoch that has ended may be committed by a later leader, or
   never.
5. A quorum of one voter commits without the network.

Source: org.apache.kafka.raft.RaftClient, RaftClient.Listener (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from barnabas.controller.metadata.record_batches import decode_values
from barnabas.controller.raft.log_outline import OffsetAndEpoch
from barnabas.protocol.messages.k55_describe_quorum import DescribeQuorumResponse
from barnabas.protocol.metadata_records import MetadataRecord
from barnabas.protocol.records.batch import iter_records
from barnabas.protocol.schema import Message


class LeaderAndEpoch(NamedTuple):
    """The epoch of a replica, and its leader if that is known."""

    leader_id: int | None
    epoch: int


class CommittedBatch(NamedTuple):
    """A batch that the quorum has; the offsets are inclusive."""

    base_offset: int
    last_offset: int
    epoch: int
    is_control: bool
    #: The record batch as it is in the log.
    data: bytes | bytearray | memoryview

    @property
    def size_in_bytes(self) -> int:
        """The bytes that it takes in the log."""
        return len(self.data)

    def records(self) -> list[MetadataRecord]:
        """Decode the metadata records; none in a control batch. Raises MalformedMessageError."""
        return [] if self.is_control else list(decode_values(iter_records(self.data)))


class LoadedSnapshot(Protocol):
    """A snapshot that replaces what a listener knows."""

    @property
    def id(self) -> OffsetAndEpoch:
        """Its end (the first offset after it), and the epoch of the last record in it."""

    @property
    def path(self) -> str:
        """The file, for messages."""

    def records(self) -> Iterator[MetadataRecord]:
        """Decode the metadata records; raises MalformedMessageError."""


class RaftListener(Protocol):
    """The state machine on top of the log (rule 1)."""

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Take committed batches (rule 2)."""

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Begin again with a snapshot; the next batch begins at its end."""

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Take note of the leader, or that it is not known (rule 3)."""

    def begin_shutdown(self) -> None:
        """Take note that the client ends: nothing else follows."""


class RaftClient(Protocol):
    """A replica of the log. Any thread may call it."""

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader as this replica knows it now; a listener may learn of it later (rule 3)."""

    @property
    def high_watermark(self) -> int:
        """The offset after the last committed record; -1 while it is not known."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version; 0 with static voters."""

    def register(self, listener: RaftListener) -> None:
        """Let a listener have the newest snapshot and everything after it; before `start`, once."""

    def start(self) -> None:
        """Start the threads."""

    def append(self, epoch: int, batch: bytearray) -> int:
        """Append one record batch; return the offset of its last record (rule 4).

        The base offset and the epoch in the batch are written here. Raises ApiError(NOT_LEADER_OR_FOLLOWER) if this
        replica does not lead, or leads another epoch.
        """

    def upgrade_kraft_version(self, epoch: int, version: int, *, validate_only: bool) -> None:
        """Append the records of a higher kraft.version; the next record that is appended is committed after them.

        Raises ApiError: INVALID_UPDATE_VERSION, NOT_CONTROLLER.
        """

    def resign(self, epoch: int) -> None:
        """Give up the lead of this epoch; nothing if this replica does not lead it."""

    def create_snapshot(self, end_offset: int, records: Iterable[MetadataRecord], epoch: int) -> int | None:
        """Write a snapshot of everything below `end_offset`, which is committed, and drop the log before it.

        `end_offset` follows a batch; `epoch` is that of the last record before it. Returns the size of the file; None
        if the log begins there already. It is written by the calling thread, and survives a power cut on return.
        Raises SnapshotWriteError, after which the log is as before.
        """

    def holds(self, offset: int, epoch: int) -> bool:
        """Return whether the log, or a snapshot that replaced its start, has the record of `epoch` at `offset`.

        With epoch -1 only the offset counts.
        """

    def handle_request(self, request: Message, reply: Callable[[Message], object]) -> None:
        """Handle a request of the raft protocol; `reply` is called once, now or later, and must be short."""

    def describe(self) -> DescribeQuorumResponse:
        """Answer DescribeQuorum."""

    def shutdown(self, timeout_ms: int) -> None:
        """Resign, inform the voters for at most `timeout_ms`, and end the threads."""
