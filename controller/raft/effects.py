"""Effects: the orders of a replica to the thread that drives it, which carries out those of one input in order.

Rules
1. An effect is done, and durable where it says so, before the next one begins. A failure ends the process.
2. A crash between two effects is safe: messages come last.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.election_state import ElectionState
from barnabas.controller.raft.log_outline import OffsetAndEpoch
from barnabas.protocol.schema import Message, Records


class Persist(NamedTuple):
    """Write quorum-state; durable."""

    election: ElectionState
    kraft_version: int
    voter_ids: tuple[int, ...]


class Append(NamedTuple):
    """Append batches to the log."""

    batches: tuple[Batch, ...]


class Flush(NamedTuple):
    """Make everything appended durable."""


class Truncate(NamedTuple):
    """Remove the records from this offset on; durable."""

    offset: int


class WriteSnapshot(NamedTuple):
    """Write a part of a snapshot that is being fetched; at position 0 an earlier attempt is discarded."""

    id: OffsetAndEpoch
    position: int
    data: Records


class LoadSnapshot(NamedTuple):
    """Make the fetched snapshot durable and decode it; then report `snapshot_received`."""

    id: OffsetAndEpoch


class ReplaceLog(NamedTuple):
    """Let this snapshot replace the whole log; durable."""

    id: OffsetAndEpoch


class DeletePrefix(NamedTuple):
    """Delete the records below the end of this snapshot, and older snapshots."""

    id: OffsetAndEpoch


class Send(NamedTuple):
    """Send a request to a node (a bootstrap server has an id below -1)."""

    node_id: int
    host: str
    port: int
    correlation_id: int
    request: Message


class Reply(NamedTuple):
    """Answer a request; with `read`, put the records from that offset on into the response first."""

    token: object
    response: Message
    read: int | None = None


class ReplySnapshot(NamedTuple):
    """Answer a FetchSnapshot request with at most `max_bytes` of the snapshot from `position` on, and its size.

    A snapshot or position that does not exist is answered with SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE.
    """

    token: object
    response: Message
    id: OffsetAndEpoch
    position: int
    max_bytes: int


class Committed(NamedTuple):
    """Everything below this offset is committed."""

    offset: int


class LeaderChanged(NamedTuple):
    """The leader of the epoch is known (or, with None, not): this replica itself if it is its id."""

    epoch: int
    leader_id: int | None


class Note(NamedTuple):
    """A line for the log: input that was refused, or something that should not happen."""

    text: str


Effect: TypeAlias = (
    Persist
    | Append
    | Flush
    | Truncate
    | WriteSnapshot
    | LoadSnapshot
    | ReplaceLog
    | DeletePrefix
    | Send
    | Reply
    | ReplySnapshot
    | Committed
    | LeaderChanged
    | Note
)
