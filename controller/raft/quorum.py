"""The state of a replica and its transitions; the handlers change it, and it collects the effects.

Rules
1. A transition that changes the election state persists it before anything else (election_state.py, rule 1).
2. Within an epoch a vote is never forgotten, whatever the role becomes.
3. A new role forgets all requests in flight, and answers parked fetches.
4. A leader's first record is of its own epoch: a control batch with LeaderChange, and under kraft.version 1 with the
   voters if the log does not have them yet or this replica's endpoints changed.

Threads: none. One thread calls it, with a clock that never goes back.

Source: QuorumState, KafkaRaftClient (Kafka 4.3).
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from barnabas.controller.raft.batches import Batch, ControlRecord
from barnabas.controller.raft.effects import Append, Committed, Effect, Flush, LeaderChanged, Note, Persist, Reply, Send
from barnabas.controller.raft.election_state import ElectionState
from barnabas.controller.raft.handlers.epochs import EpochBound
from barnabas.controller.raft.leader_state import CHECK_QUORUM_FACTOR, UNKNOWN, Leader, VoterChange
from barnabas.controller.raft.log_outline import LogOutline
from barnabas.controller.raft.raft_config import KRAFT_VERSIONS, RaftConfig
from barnabas.controller.raft.request_manager import RequestManager
from barnabas.controller.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached, Votes
from barnabas.controller.raft.voter_set import KRAFT_VERSION_FEATURE, Listener, ReplicaKey, VoterNode
from barnabas.protocol.data.control_records import KRaftVersionRecord, LeaderChangeMessage, LeaderChangeMessageVoter
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterResponse
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterResponse
from barnabas.protocol.schema import Message

Role: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned

FOREVER: Final = 1 << 62
TRANSITIONS_MAX: Final = 64


class Transition(NamedTuple):
    """A role that a replica took, and why; for people."""

    role: str
    epoch: int
    leader_id: int | None
    reason: str


class ParkedFetch(NamedTuple):
    """A fetch that waits for records or for a higher high watermark."""

    token: Any  # opaque to the core
    key: ReplicaKey
    offset: int
    high_watermark: int
    deadline_ms: int


class Quorum:
    """A replica's state."""

    def __init__(
        self, config: RaftConfig, key: ReplicaKey, outline: LogOutline, election: ElectionState | None, random: Random
    ) -> None:
        self.config = config
        self.key = key
        self.outline = outline
        self.requests = RequestManager(config.retry_backoff_ms, config.request_timeout_ms)
        self.effects: list[Effect] = []
        #: The last transitions, until the driver takes them.
        self.transitions: deque[Transition] = deque(maxlen=TRANSITIONS_MAX)
        self.parked: list[ParkedFetch] = []
        #: The end of what is known to be committed; -1 while nothing is known.
        self.high_watermark = outline.committed_at_start
        self.role: Role = Unattached(0, 0)
        #: Which epochs of others are credible.
        self.epochs = EpochBound()
        self._random = random
        self._stored = election
        self._local = VoterNode(key, config.listeners, config.kraft_versions)  # this replica as a voter
        self._turn = -1
        self._announced: tuple[int, int | None] = (0, None)

    # What it is

    @property
    def epoch(self) -> int:
        """The epoch of this replica."""
        return self.role.epoch

    @property
    def local(self) -> VoterNode:
        """This replica as a voter."""
        return self._local

    @property
    def is_voter(self) -> bool:
        """Whether this replica, with this directory, is a voter."""
        return self.outline.voters.is_voter(self.key)

    @property
    def leader_endpoints(self) -> tuple[Listener, ...]:
        """The listeners of the epoch's leader; empty if it is not known."""
        role = self.role
        if isinstance(role, Leader | Follower | Prospective):
            return role.leader_endpoints
        return self.config.listeners if isinstance(role, Resigned) else ()

    # Transitions

    def start(self, now_ms: int) -> None:
        """Take the role that the election state and the log leave (QuorumState.initialize)."""
        stored = self._stored or ElectionState(0)
        epoch, leader_id, voted = stored
        deadline = now_ms + self._election_timeout()
        self.epochs.start(max(epoch, self.outline.last_epoch), now_ms)
        if epoch < self.outline.last_epoch:
            self.role = Unattached(self.outline.last_epoch, deadline)
        elif leader_id == self.key.id:
            # Why not Unattached: it must not vote for another leader of this epoch, nor write other records in it.
            self.role = Resigned(epoch, deadline, leader_id)
        elif voted == self.key and leader_id is None and self.is_voter:
            self.role = Candidate(epoch, deadline, Votes(self.outline.voters, self.key.id), self.key)
        elif leader_id is not None and (endpoints := self._listeners_of(leader_id)):
            self.role = Follower(epoch, now_ms + self.config.fetch_timeout_ms, leader_id, endpoints, voted)
        else:
            self.role = Unattached(epoch, deadline, leader_id, voted)
        self._entered("the process started", is_durable=True)
        if isinstance(self.role, Candidate) and self.role.votes.is_granted:
            self.become_leader(now_ms)
        elif self.is_voter and len(self.outline.voters) == 1:
            self.become_prospective(now_ms)  # Why at once, as in Kafka: there is nobody to ask

    def become_unattached(self, epoch: int, now_ms: int, reason: str) -> None:
        """Wait for a leader of this epoch, later than ours or, after a lost pre-vote, the same."""
        self.finish_change(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        role = self.role
        # Why: a timeout that is under way goes on, or a replica that raises the epoch again and again would stop it.
        deadline = now_ms + self._election_timeout()
        has_lost = isinstance(role, Prospective) and role.votes.is_rejected
        if isinstance(role, Candidate | Unattached | Resigned | Prospective) and not has_lost:
            deadline = role.deadline_ms
        voted = role.voted if epoch == role.epoch else None
        self.role = Unattached(epoch, deadline, None, voted)
        self._entered(reason, is_durable=True)

    def vote_for(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Give this epoch's vote; its election timeout begins again."""
        role = self.role
        assert isinstance(role, Unattached | Prospective)
        if role.voted is None:
            role.voted = candidate
            role.deadline_ms = now_ms + self._election_timeout()
            self._persist()

    def become_follower(
        self, epoch: int, leader_id: int, endpoints: tuple[Listener, ...], now_ms: int, reason: str = ""
    ) -> None:
        """Follow the leader of this epoch."""
        self.finish_change(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        voted = self.role.voted if epoch == self.role.epoch else None
        timeout = self.config.fetch_timeout_ms
        self.role = Follower(epoch, now_ms + timeout, leader_id, endpoints, voted, update_voter_ms=now_ms + timeout)
        self._entered(reason or f"controller {leader_id} leads epoch {epoch}", is_durable=True)

    def become_prospective(self, now_ms: int) -> None:
        """Ask for pre-votes; nothing that is persisted changes."""
        role = self.role
        assert not isinstance(role, Leader | Prospective)
        deadline = now_ms + self._election_timeout()
        votes = Votes(self.outline.voters, self.key.id)
        reason = self._why_prospective()
        self.role = Prospective(role.epoch, deadline, votes, role.leader_id, self.leader_endpoints, role.voted)
        self._entered(reason, is_durable=False)
        if votes.is_granted:
            self.become_candidate(now_ms)

    def _why_prospective(self) -> str:
        role = self.role
        if len(self.outline.voters) == 1:
            return "it is the only voter"
        if isinstance(role, Follower):
            if role.leader_has_resigned:
                return f"controller {role.leader_id}, the leader, resigned"
            return f"controller {role.leader_id}, the leader, did not answer for {self.config.fetch_timeout_ms} ms"
        if isinstance(role, Candidate):
            return "no majority voted for it within its election timeout"
        return "no leader was found within its election timeout"

    def become_candidate(self, now_ms: int) -> None:
        """Begin the next epoch with a vote for itself."""
        assert isinstance(self.role, Prospective)
        votes = Votes(self.outline.voters, self.key.id)
        self.role = Candidate(self.epoch + 1, now_ms + self._election_timeout(), votes, self.key)
        self._entered("a majority would vote for it", is_durable=True)
        if votes.is_granted:
            self.become_leader(now_ms)

    def become_leader(self, now_ms: int) -> None:
        """Lead the epoch, after a majority has voted for this replica (rule 4)."""
        assert isinstance(self.role, Candidate)
        granting = self.role.votes.granted
        check_quorum = now_ms + int(self.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        start = self.outline.end_offset
        leader = Leader(self.epoch, self.key.id, start, check_quorum, self.config.listeners, begin_epoch_ms=now_ms)
        leader.set_voters(self.outline.voters)
        if self.outline.membership.kraft_version == 0:
            leader.described = self.outline.voters.describe(self._local)
        self.role = leader
        self._entered(f"controllers {_listed(granting)} voted for it", is_durable=True)
        self.append_control(self._first_records(granting), now_ms)

    def become_resigned(self, now_ms: int, reason: str) -> None:
        """Give up the epoch, and name to the voters those that should be elected next."""
        leader = self.role
        assert isinstance(leader, Leader)
        self.finish_change(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        others = {node.key.id for node in self.outline.voters if node.key.id != self.key.id}
        deadline = now_ms + self._election_timeout()
        self.role = Resigned(self.epoch, deadline, self.key.id, leader.successors(), others)
        self._entered(reason, is_durable=False)

    def resigned_timed_out(self, now_ms: int) -> None:
        """Leave the epoch that this replica led for the next one."""
        self.become_unattached(self.epoch + 1, now_ms, "it has resigned")

    def lose_pre_vote(self, now_ms: int) -> None:
        """Go back to the leader that is still known, or wait for another one."""
        role = self.role
        assert isinstance(role, Prospective)
        if role.leader_id is not None and role.leader_id != self.key.id and role.leader_endpoints:
            reason = "no majority would vote for it, and its leader is known"
            self.become_follower(role.epoch, role.leader_id, role.leader_endpoints, now_ms, reason)
        else:
            self.become_unattached(role.epoch, now_ms, "no majority would vote for it")

    def maybe_transition(self, epoch: int, leader_id: int | None, endpoints: tuple[Listener, ...], now_ms: int) -> None:
        """Follow what a message says of the epoch and its leader, if that is news and agrees with what is known."""
        role = self.role
        if leader_id is not None and not endpoints:
            endpoints = self._listeners_of(leader_id)
        if leader_id == self.key.id:
            if epoch > role.epoch:  # Why: an older directory of ours led it, or the message lies; the epoch counts
                self.become_unattached(epoch, now_ms, f"a message is of epoch {epoch}")
        elif epoch > role.epoch:
            if leader_id is not None and endpoints:
                self.become_follower(epoch, leader_id, endpoints, now_ms)
            else:
                self.become_unattached(epoch, now_ms, f"a message is of epoch {epoch}")
        elif epoch == role.epoch and leader_id is not None and endpoints:
            if role.leader_id is not None and role.leader_id != leader_id:
                self.note(f"A message names leader {leader_id} in epoch {epoch}, which {role.leader_id} leads")
            elif isinstance(role, Unattached | Candidate) or (isinstance(role, Prospective) and not role.leader_id):
                self.become_follower(epoch, leader_id, endpoints, now_ms)

    # The log

    def append_control(self, records: tuple[ControlRecord, ...], now_ms: int) -> int:
        """Append control records as the leader; return the offset of the last one."""
        return self.append(len(records), records, None, now_ms)

    def upgrade_kraft_version(self, version: int, now_ms: int, *, validate_only: bool) -> None:
        """Write the next kraft.version, and the voters with their directories; raises ApiError (KIP-853).

        Source: LeaderState.maybeAppendUpgradedKRaftVersion (Kafka 4.3).
        """
        leader = self.role
        if not isinstance(leader, Leader):
            raise ApiError(ErrorCode.NOT_CONTROLLER, "This controller does not lead the quorum.")
        current = self.outline.membership.kraft_version
        if version == current:
            return
        change = f"Invalid upgrade of {KRAFT_VERSION_FEATURE} from version {current} to version {version}"
        voters = leader.described
        if version < current or version > KRAFT_VERSIONS[1] or voters is None:
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{change}.")
        if missing := voters.without_support(version):
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{change} because not all of the voters support it, or have said so: {missing}.",
            )
        if not validate_only:
            leader.described = None
            self.append_control((KRaftVersionRecord(version=0, kraft_version=version), voters.to_record()), now_ms)

    def append(self, count: int, control: tuple[ControlRecord, ...], data: object, now_ms: int) -> int:
        """Append a batch of `count` records as the leader; return the offset of the last one."""
        leader = self.role
        assert isinstance(leader, Leader)
        base = self.outline.end_offset
        batch = Batch(base, base + count - 1, leader.epoch, control, data)
        self.outline.append(batch)
        self.effects += (Append((batch,)), Flush())
        if control:
            leader.set_voters(self.outline.voters)
        leader.replica(self.key).end_offset = self.outline.end_offset
        if leader.advance_high_watermark():
            self.committed(leader.high_watermark, now_ms)
        return batch.last_offset

    def committed(self, offset: int, now_ms: int) -> None:
        """Note that everything below `offset` is committed; a voter change that a client waits for may be done."""
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self.effects.append(Committed(offset))
        leader = self.role
        if not isinstance(leader, Leader):
            return
        change = leader.change
        if change is not None and UNKNOWN < change.offset < leader.high_watermark:
            self.finish_change(ErrorCode.NONE)
        if not self.is_voter and self.outline.membership.offset < leader.high_watermark:
            leader.is_resigning = True

    def finish_change(self, error: ErrorCode, message: str | None = None) -> None:
        """Answer the client that waits for a voter change."""
        leader = self.role
        if isinstance(leader, Leader) and leader.change is not None:
            change, leader.change = leader.change, None
            if change.joining is not None:  # Why: a request may name any node, and each of them would stay known
                self.requests.forget(change.joining.key.id)
            if change.token is not None:
                self.effects.append(Reply(change.token, change_response(change, error, message)))

    # Effects

    def send(self, node_id: int, listener: Listener, request: Message, now_ms: int) -> None:
        """Send a request."""
        correlation_id = self.requests.sent(node_id, now_ms)
        self.effects.append(Send(node_id, listener.host, listener.port, correlation_id, request))

    def places_to_ask(self) -> list[tuple[str, int]]:
        """Return where a replica without a leader asks: the bootstrap servers, then the voters of the log."""
        name = self.config.listener_name
        voters = (node.listener(name) for node in self.outline.voters if node.key.id != self.key.id)
        known = ((listener.host, listener.port) for listener in voters if listener is not None)
        return list(dict.fromkeys([*self.config.bootstrap_servers, *known]))

    def next_turn(self, count: int) -> int:
        """Return the index of the place whose turn it is, of `count` places."""
        self._turn = (self._turn + 1) % count
        return self._turn

    def reply(self, token: object, response: Message, read: int | None = None) -> None:
        """Answer a request."""
        self.effects.append(Reply(token, response, read))

    def note(self, text: str) -> None:
        """Ask for a log line."""
        self.effects.append(Note(text))

    def _entered(self, reason: str, *, is_durable: bool) -> None:
        role = self.role
        self.transitions.append(Transition(type(role).__name__.lower(), role.epoch, role.leader_id, reason))
        if is_durable:
            self._persist()
        self.requests.reset()
        # Why None: a leader that has resigned leads no more, although no other one can lead its epoch.
        announced = (self.epoch, None if isinstance(self.role, Resigned) else self.role.leader_id)
        if announced != self._announced:
            self._announced = announced
            self.effects.append(LeaderChanged(*announced))

    def _persist(self) -> None:
        state = ElectionState(self.role.epoch, self.role.leader_id, self.role.voted)
        if state != self._stored:
            self._stored = state
            membership = self.outline.membership
            voter_ids = tuple(node.key.id for node in membership.voters)
            self.effects.append(Persist(state, membership.kraft_version, voter_ids))

    def _first_records(self, granting: set[int]) -> tuple[ControlRecord, ...]:
        membership = self.outline.membership
        ids = [node.key.id for node in membership.voters]
        # Why version 0, whatever kraft.version is: Apache Kafka reads no other one. Version 1 has the directory ids.
        change = LeaderChangeMessage(
            version=0,
            leader_id=self.key.id,
            voters=[LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in ids],
            granting_voters=[LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in ids if voter_id in granting],
        )
        if membership.kraft_version == 0:
            return (change,)
        updated = membership.voters.update(self._local)
        assert updated is not None, "a leader is a voter when it is elected"
        if membership.offset >= 0 and updated == membership.voters:
            return (change,)
        version = min(membership.kraft_version, KRAFT_VERSIONS[1])
        return (change, KRaftVersionRecord(version=0, kraft_version=version), updated.to_record())

    def _listeners_of(self, node_id: int) -> tuple[Listener, ...]:
        node = self.outline.voters.get(node_id)
        return () if node is None else node.listeners

    def _election_timeout(self) -> int:
        timeout = max(self.config.election_timeout_ms, 1)
        return timeout + self._random.randrange(timeout)


def _listed(ids: set[int]) -> str:
    return ", ".join(map(str, sorted(ids)))


def change_response(change: VoterChange, error: ErrorCode, message: str | None) -> Message:
    """Return the response to the client of a voter change."""
    cls = RemoveRaftVoterResponse if change.is_removal else AddRaftVoterResponse
    return cls(error_code=error, error_message=message)
