"""A replica of the metadata quorum: inputs in, effects out.

Each method is one input: it returns the effects to carry out, in their order. `next_poll_ms` says when to poll at the
latest. Input that makes no sense is refused with a note; it never ends the replica.

Threads: none; see quorum.py.

Source: KafkaRaftClient (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from barnabas.controller.raft.batches import Batch, decode_batches
from barnabas.controller.raft.effects import DeletePrefix, Effect
from barnabas.controller.raft.election_state import ElectionState
from barnabas.controller.raft.handlers import elections, fetching, snapshots, voter_changes
from barnabas.controller.raft.handlers.polling import poll
from barnabas.controller.raft.handlers.quorum_description import describe_quorum
from barnabas.controller.raft.leader_state import Leader
from barnabas.controller.raft.log_outline import LogOutline, Membership, OffsetAndEpoch
from barnabas.controller.raft.quorum import FOREVER, Quorum
from barnabas.controller.raft.raft_config import RaftConfig
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k01_fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.k18_api_versions import ApiVersionsResponse
from barnabas.protocol.messages.k52_vote import VoteRequest, VoteResponse
from barnabas.protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from barnabas.protocol.messages.k54_end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from barnabas.protocol.messages.k55_describe_quorum import DescribeQuorumResponse
from barnabas.protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.messages.k82_update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from barnabas.protocol.schema import Message

_REQUESTS: dict[type, Callable[[Quorum, Any, object, int], None]] = {
    FetchRequest: fetching.handle_fetch,
    VoteRequest: elections.handle_vote,
    BeginQuorumEpochRequest: elections.handle_begin_quorum_epoch,
    EndQuorumEpochRequest: elections.handle_end_quorum_epoch,
    FetchSnapshotRequest: snapshots.handle_fetch_snapshot,
    AddRaftVoterRequest: voter_changes.handle_add_voter,
    RemoveRaftVoterRequest: voter_changes.handle_remove_voter,
    UpdateRaftVoterRequest: voter_changes.handle_update_voter,
}


class RaftReplica:
    """One replica, a voter or an observer."""

    def __init__(
        self,
        config: RaftConfig,
        key: ReplicaKey,
        outline: LogOutline,
        election: ElectionState | None,
        random: Random,
        decode: Callable[[Any], Sequence[Batch]] = decode_batches,
    ) -> None:
        """`outline` and `election` are what is on disk; `decode` reads the batches of a Fetch response."""
        self.quorum = Quorum(config, key, outline, election, random)
        #: When to poll at the latest, in milliseconds of the caller's clock.
        self.next_poll_ms = FOREVER
        self._decode = decode

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads its epoch."""
        return isinstance(self.quorum.role, Leader)

    def start(self, now_ms: int) -> list[Effect]:
        """Begin with what is on disk."""
        self.quorum.start(now_ms)
        return self.poll(now_ms)

    def poll(self, now_ms: int) -> list[Effect]:
        """Let time pass."""
        quorum = self.quorum
        self.next_poll_ms = poll(quorum, now_ms)
        effects, quorum.effects = quorum.effects, []
        return effects

    def handle_request(self, request: Message, token: object, now_ms: int) -> list[Effect]:
        """Handle a request; a Reply or ReplySnapshot effect with `token` answers it, now or later."""
        _REQUESTS[type(request)](self.quorum, request, token, now_ms)
        return self.poll(now_ms)

    def handle_response(self, node_id: int, correlation_id: int, response: Message | None, now_ms: int) -> list[Effect]:
        """Handle the response to a Send; None if there will be none. A response that is not waited for is ignored."""
        quorum = self.quorum
        if not quorum.requests.received(node_id, correlation_id, response is not None, now_ms):
            return []
        if response is None:
            voter_changes.handle_failed_request(quorum, node_id)
        elif not self._apply(node_id, response, now_ms):
            quorum.requests.failed(node_id, now_ms)
        return self.poll(now_ms)

    def _apply(self, node_id: int, response: Message, now_ms: int) -> bool:
        q = self.quorum
        if isinstance(response, FetchResponse):
            return fetching.handle_fetch_response(q, response, self._decode, now_ms)
        if isinstance(response, VoteResponse):
            return elections.handle_vote_response(q, node_id, response, now_ms)
        if isinstance(response, BeginQuorumEpochResponse):
            return elections.handle_begin_quorum_epoch_response(q, response, now_ms)
        if isinstance(response, EndQuorumEpochResponse):
            return elections.handle_end_quorum_epoch_response(q, node_id, response, now_ms)
        if isinstance(response, FetchSnapshotResponse):
            return snapshots.handle_fetch_snapshot_response(q, response, now_ms)
        if isinstance(response, ApiVersionsResponse):
            return voter_changes.handle_api_versions_response(q, node_id, response, now_ms)
        if isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse):
            return voter_changes.handle_join_response(q, response, now_ms)
        assert isinstance(response, UpdateRaftVoterResponse), "a response to one of our requests"
        return voter_changes.handle_update_voter_response(q, response, now_ms)

    def append(self, count: int, data: object, now_ms: int) -> tuple[int, list[Effect]]:
        """Append a batch of `count` records; return the offset of the last one, and the effects.

        Raises ApiError(NOT_LEADER_OR_FOLLOWER). The records are committed once a Committed effect is above the offset.
        """
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This controller does not lead the quorum.")
        offset = self.quorum.append(count, (), data, now_ms)
        return offset, self.poll(now_ms)

    def upgrade_kraft_version(self, version: int, now_ms: int, *, validate_only: bool) -> list[Effect]:
        """Upgrade kraft.version (Quorum.upgrade_kraft_version); raises ApiError."""
        self.quorum.upgrade_kraft_version(version, now_ms, validate_only=validate_only)
        return self.poll(now_ms)

    def snapshot_written(self, end_offset: int, now_ms: int) -> list[Effect]:
        """Delete the log below a snapshot that the driver has written; it ends at `end_offset`, which is committed."""
        quorum = self.quorum
        assert end_offset <= quorum.high_watermark
        if end_offset > quorum.outline.start_offset:
            quorum.effects.append(DeletePrefix(quorum.outline.cover(end_offset)))
        return self.poll(now_ms)

    def snapshot_received(self, snapshot: OffsetAndEpoch, membership: Membership | None, now_ms: int) -> list[Effect]:
        """Go on with a snapshot that a LoadSnapshot effect named; None if its file cannot be read."""
        snapshots.snapshot_received(self.quorum, snapshot, membership, now_ms)
        return self.poll(now_ms)

    def resign(self, now_ms: int) -> list[Effect]:
        """Give up the lead, as before an orderly end; nothing if another one leads."""
        if self.is_leader:
            self.quorum.become_resigned(now_ms, "it was asked to give up the lead")
        return self.poll(now_ms)

    def describe(self, now_ms: int, wall_ms: int) -> DescribeQuorumResponse:
        """Answer DescribeQuorum; `wall_ms` is the wall clock at `now_ms`."""
        return describe_quorum(self.quorum, now_ms, wall_ms)
