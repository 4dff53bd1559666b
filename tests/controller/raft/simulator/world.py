"""A seeded world of controllers: a network that loses, doubles, delays and reorders, processes that crash between any
two effects, disks that lose their tails or are replaced, clocks that run apart, voters that come and go. Some worlds
begin with static voters, and an administrator upgrades kraft.version. Some controllers join the voters by themselves.

One seed is one history. A step is one event: a message that arrives, a timer, a client's request or a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from barnabas.controller.raft import effects as fx
from barnabas.controller.raft.log_outline import Membership, OffsetAndEpoch
from barnabas.controller.raft.raft_config import RaftConfig
from barnabas.controller.raft.voter_set import KRAFT_VERSION_FEATURE, ReplicaKey, VoterSet
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from barnabas.protocol.messages.k52_vote import VoteResponse
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.schema import Message
from tests.controller.raft.simulator.invariants import Invariants
from tests.controller.raft.simulator.node import CLUSTER, Disk, Node, directory, listeners_of, voter_of
from tests.controller.raft.simulator.violation import ViolationError, check

SNAPSHOT_SIZE = 5
READ_BATCHES = 4
SECOND_US = 1_000_000
#: How often what happens, of all that is not a message or a timer.
ACTIONS = (
    ("append", 110),
    ("snapshot", 8),
    ("crash", 2),
    ("crash_soon", 5),
    ("pause", 1),
    ("cut", 3),
    ("heal", 6),
    ("clock", 1),
    ("resign", 1),
    ("voters", 14),
    ("replace_disk", 1),
    ("upgrade", 1),
    ("weather", 1),
)


class World:
    """Some controllers, and all that happens to them."""

    def __init__(self, seed: int, shape: tuple[int, int] | None = None) -> None:
        """`shape` is the number of voters and of observers; by default the seed decides."""
        self.chance = chance = Random(seed)
        self.now_us = 0
        self.steps = 0
        self.read_batches = READ_BATCHES
        self.invariants = Invariants()
        self.counts: Counter[str] = Counter()
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._cuts: set[tuple[int, int]] = set()
        self._directories = 0
        self._snapshots: dict[OffsetAndEpoch, tuple[OffsetAndEpoch, Membership, Any]] = {}
        self._crash_soon: Node | None = None
        self.is_static = shape is None and chance.random() < 0.25  # kraft.version 0 at the beginning
        self._joins = 0.0 if shape is not None or chance.random() < 0.5 else 0.5  # the share that joins by itself
        voters, observers = shape or chance.choice(((1, 2), (3, 0), (3, 1), (3, 2), (4, 1), (5, 0)))
        keys = [self._new_key(number) for number in range(1, voters + 1)]
        if self.is_static:
            known = VoterSet(voter_of(ReplicaKey(key.id)) for key in keys)
        else:
            known = VoterSet(voter_of(key) for key in keys)
        bootstrap = Membership(-1, 0 if self.is_static else 1, known)
        self._empty = Membership(-1, 0, VoterSet())
        self._static = bootstrap if self.is_static else self._empty
        self._works: dict[type, Callable[[Node, Any], None]] = {
            fx.Send: self._send,
            fx.Reply: self._reply,
            fx.ReplySnapshot: self._reply_snapshot,
            fx.Append: self._append,
            fx.Flush: self._flush,
            fx.Truncate: self._truncate,
            fx.Persist: self._persist,
            fx.Committed: self._committed,
            fx.LeaderChanged: self._leader_changed,
            fx.LoadSnapshot: self._load_snapshot,
            fx.ReplaceLog: self._replace_log,
            fx.Note: self._note,
        }
        self.nodes: dict[int, Node] = {}
        for key in keys:
            self._add(key, bootstrap)
        for number in range(voters + 1, voters + observers + 1):
            self._add(self._new_key(number), self._static)
        self._weather()
        self._actions = [name for name, weight in ACTIONS for _ in range(weight)]
        self._next_action_us = 0
        for node in self.nodes.values():
            self._start(node)

    def run(self, steps: int) -> None:
        """Take so many steps; raises ViolationError."""
        events = self._events
        end = self.steps + steps
        while self.steps < end:
            if not events or events[0][0] >= self._next_action_us:
                self.now_us = self._next_action_us
                self._next_action_us += int(self.chance.expovariate(1.0) * self.pause_us) + 1
                done = getattr(self, f"_do_{self.chance.choice(self._actions)}")()
                self.steps += done is not False  # an action that found no leader is no step
            else:
                self.now_us, _, work, arguments = heappop(events)
                work(*arguments)

    # Processes

    def _new_key(self, node_id: int) -> ReplicaKey:
        self._directories += 1
        return ReplicaKey(node_id, directory(self._directories))

    def _add(self, key: ReplicaKey, bootstrap: Membership) -> None:
        config = RaftConfig(
            CLUSTER,
            listeners_of(key.id),
            bootstrap_servers=tuple((f"n{number}", 9000 + number) for number in range(1, 6) if number != key.id),
            snapshot_max_bytes=2,
            joins=self.chance.random() < self._joins,
        )
        self.nodes[key.id] = Node(key.id, Disk(key, bootstrap), config, self.chance)

    def _start(self, node: Node) -> None:
        replica = node.build()
        self._carry_out(node, replica.start(node.now_ms(self.now_us)))

    def _crash(self, node: Node) -> None:
        if node.replica is None:
            return
        node.replica = None
        node.has_led = False
        node.generation += 1
        node.disk.crash(self.chance, loses_tail=self.chance.random() < 0.7)
        node.down_until_us = self.now_us + int(self.chance.expovariate(2.0) * SECOND_US)
        self._at(node.down_until_us, self._restart, node, node.generation)

    def _restart(self, node: Node, generation: int) -> None:
        if node.replica is None and node.generation == generation:
            self.steps += 1
            self._start(node)

    def _at(self, time_us: int, work: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heappush(self._events, (time_us, self._sequence, work, arguments))

    def _schedule(self, node: Node) -> None:
        assert node.replica is not None
        at_us = node.at_us(node.replica.next_poll_ms)
        if at_us <= self.now_us:
            at_us = self.now_us + 1
        if node.scheduled_us < 0 or at_us < node.scheduled_us:
            node.scheduled_us = at_us
            self._at(at_us, self._poll, node, node.generation, at_us)

    def _poll(self, node: Node, generation: int, at_us: int) -> None:
        if node.generation != generation or node.scheduled_us != at_us or node.replica is None:
            return
        if node.paused_until_us > self.now_us:
            node.scheduled_us = node.paused_until_us
            self._at(node.paused_until_us, self._poll, node, generation, node.paused_until_us)
            return
        node.scheduled_us = -1
        now_ms = node.now_ms(self.now_us)
        if node.replica.next_poll_ms <= now_ms:
            self.steps += 1
            self._carry_out(node, node.replica.poll(now_ms))
        else:
            self._schedule(node)

    # Effects

    def _carry_out(self, node: Node, effects: list[fx.Effect]) -> None:
        limit = -1
        if self._crash_soon is node and effects:
            self._crash_soon = None
            limit = self.chance.randrange(len(effects) + 1)
        for index, effect in enumerate(effects):
            if index == limit:
                break
            work = self._works.get(type(effect))
            if work is not None:
                work(node, effect)
        if limit >= 0:
            self.counts["crash between effects"] += 1
            self._crash(node)
        else:
            self._schedule(node)

    def _append(self, node: Node, append: fx.Append) -> None:
        for batch in append.batches:
            self.invariants.appended(node, batch)
            node.disk.append(batch)

    def _flush(self, node: Node, _: fx.Flush) -> None:
        node.disk.durable = len(node.disk.log)

    def _committed(self, node: Node, committed: fx.Committed) -> None:
        self.invariants.committed(node, committed.offset, self.nodes.values())

    def _persist(self, node: Node, persist: fx.Persist) -> None:
        self.invariants.persisted(node, persist)
        node.disk.election = persist

    def _leader_changed(self, node: Node, changed: fx.LeaderChanged) -> None:
        if changed.leader_id == node.id and node.replica is not None and node.replica.is_leader:
            self.invariants.elected(node, changed.epoch)
            node.has_led = True
        elif node.has_led:
            self.counts["leader deposed"] += 1
            node.has_led = False

    def _truncate(self, node: Node, truncate: fx.Truncate) -> None:
        self.counts["truncation"] += 1
        node.disk.truncate(truncate.offset)

    def _load_snapshot(self, node: Node, load: fx.LoadSnapshot) -> None:
        delay = self.chance.randrange(1, 5 * SECOND_US if self.chance.random() < 0.2 else 20_000)
        self._at(self.now_us + delay, self._snapshot_received, node, node.generation, load.id)

    def _replace_log(self, node: Node, replace: fx.ReplaceLog) -> None:
        self.counts["log replaced"] += 1
        snapshot = self._snapshots[replace.id]
        node.disk.replace((replace.id, self._membership_in(replace.id, node), snapshot[2]))

    def _membership_in(self, snapshot: OffsetAndEpoch, node: Node) -> Membership:
        """The voters in a snapshot. One of kraft.version 0 has none: those of the node's configuration stay."""
        found = self._snapshots[snapshot][1]
        return found if found.kraft_version else node.disk.bootstrap

    def _note(self, node: Node, note: fx.Note) -> None:
        self.counts["note"] += 1

    def _snapshot_received(self, node: Node, generation: int, snapshot: OffsetAndEpoch) -> None:
        if node.replica is not None and node.generation == generation:
            self.steps += 1
            damaged = self.chance.random() < 0.05
            membership = None if damaged else self._membership_in(snapshot, node)
            self._carry_out(node, node.replica.snapshot_received(snapshot, membership, node.now_ms(self.now_us)))

    # Messages

    def _travel(self, source: int, target: int, work: Callable[..., None], *arguments: Any) -> None:
        chance = self.chance.random
        if (source, target) in self._cuts or chance() < self.loss:
            return
        copies = 2 if chance() < self.doubling else 1
        for _ in range(copies):
            delay = int(1000 + chance() * self.jitter_us)
            if chance() < self.straggling:
                delay += int(chance() * 3 * SECOND_US)
            self._at(self.now_us + delay, work, *arguments)

    def _send(self, node: Node, send: fx.Send) -> None:
        target = int(send.host[1:])
        token = (node, node.generation, send.node_id, send.correlation_id, target)
        self._travel(node.id, target, self._request, target, send.request, token)

    def _request(self, target: int, request: Message, token: Any) -> None:
        node = self.nodes.get(target)
        self.steps += 1
        if node is None or node.replica is None:
            self._travel(target, token[0].id, self._response, token, None)
        elif node.paused_until_us > self.now_us:
            self._at(node.paused_until_us, self._request, target, request, token)
        elif type(request) is ApiVersionsRequest:
            feature = SupportedFeatureKey(name=KRAFT_VERSION_FEATURE, min_version=0, max_version=1)
            answer = ApiVersionsResponse(error_code=0, supported_features=[feature])
            self._travel(target, token[0].id, self._response, token, answer)
        else:
            self._carry_out(node, node.replica.handle_request(request, token, node.now_ms(self.now_us)))

    def _reply(self, node: Node, reply: fx.Reply) -> None:
        token: Any = reply.token
        if type(token) is not tuple:
            self.counts[f"{token}: {ErrorCode(reply.response.error_code).name}"] += 1  # type: ignore[attr-defined]
            return
        if type(reply.response) is AddRaftVoterResponse:
            self.counts[f"join: {ErrorCode(reply.response.error_code).name}"] += 1
        if type(reply.response) is VoteResponse and reply.response.topics:
            is_granted = reply.response.topics[0].partitions[0].vote_granted
            self.invariants.answered_vote(node, is_granted=is_granted)
        if reply.read is not None:
            position = node.disk.starts.index(reply.read)
            records = tuple(node.disk.log[position : position + self.read_batches])
            reply.response.responses[0].partitions[0].records = records  # type: ignore[attr-defined]
        self._travel(node.id, token[0].id, self._response, token, reply.response)

    def _reply_snapshot(self, node: Node, reply: fx.ReplySnapshot) -> None:
        token: Any = reply.token
        partition = reply.response.topics[0].partitions[0]  # type: ignore[attr-defined]
        if node.disk.snapshot is None or node.disk.snapshot[0] != reply.id:
            partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        else:
            partition.size = SNAPSHOT_SIZE
            partition.unaligned_records = b"s" * min(reply.max_bytes, SNAPSHOT_SIZE - reply.position)
        self._travel(node.id, token[0].id, self._response, token, reply.response)

    def _response(self, token: Any, response: Message | None) -> None:
        node, generation, node_id, correlation_id, _ = token
        self.steps += 1
        if node.replica is None or node.generation != generation:
            return
        if node.paused_until_us > self.now_us:
            self._at(node.paused_until_us, self._response, token, response)
            return
        effects = node.replica.handle_response(node_id, correlation_id, response, node.now_ms(self.now_us))
        if effects:
            self._carry_out(node, effects)
        else:
            self._schedule(node)

    # What clients and faults do

    def _weather(self) -> None:
        pick = self.chance.choice
        self.loss = pick((0.0, 0.0, 0.01, 0.1, 0.3))
        self.doubling = pick((0.0, 0.02, 0.2))
        self.jitter_us = pick((1_000, 20_000, 200_000))
        self.straggling = pick((0.0, 0.01, 0.1))
        self.pause_us = pick((5_000, 20_000, 100_000))

    def _do_weather(self) -> None:
        self._weather()

    def _some_node(self) -> Node:
        return self.chance.choice(list(self.nodes.values()))

    def _running(self) -> Node | None:
        node = self._some_node()
        return node if node.replica is not None and node.paused_until_us <= self.now_us else None

    def _leader(self) -> Node | None:
        """A node that believes that it leads; there may be several."""
        found = [node for node in self.nodes.values() if node.replica is not None and node.replica.is_leader]
        found = [node for node in found if node.paused_until_us <= self.now_us]
        return self.chance.choice(found) if found else None

    def _do_append(self) -> bool:
        node = self._leader()
        if node is None or node.replica is None:
            return False
        _, effects = node.replica.append(self.chance.randrange(1, 4), None, node.now_ms(self.now_us))
        self._carry_out(node, effects)
        return True

    def _do_snapshot(self) -> bool:
        node = self._running()
        if node is None or node.replica is None:
            return False
        quorum = node.replica.quorum
        ends = [batch.last_offset + 1 for batch in node.disk.log[:-1] if batch.last_offset < quorum.high_watermark]
        if not ends:
            return False
        self.take_snapshot(node, self.chance.choice(ends))
        return True

    def take_snapshot(self, node: Node, end: int) -> None:
        """Let a node replace everything below a committed offset by a snapshot."""
        assert node.replica is not None
        membership = node.replica.quorum.outline.membership_at(end)
        prefix, *effects = node.replica.snapshot_written(end, node.now_ms(self.now_us))
        assert isinstance(prefix, fx.DeletePrefix)
        node.disk.cover(prefix.id, membership)
        snapshot = node.disk.snapshot
        assert snapshot is not None
        known = self._snapshots.setdefault(prefix.id, snapshot)
        check(known[2] is snapshot[2] and known[1].kraft_version == membership.kraft_version, "snapshots agree")
        check(not membership.kraft_version or known[1].voters == membership.voters, "snapshots have the same voters")
        self.counts["snapshot"] += 1
        self._carry_out(node, effects)

    def _do_crash(self) -> None:
        self.counts["crash"] += 1
        self._crash(self._some_node())

    def _do_crash_soon(self) -> None:
        self._crash_soon = self._some_node()

    def _do_pause(self) -> None:
        self._some_node().paused_until_us = self.now_us + int(self.chance.expovariate(0.5) * SECOND_US)

    def _do_cut(self) -> None:
        one, other = self._some_node().id, self._some_node().id
        if self.chance.random() < 0.4:  # one node from all others
            self._cuts |= {(one, node_id) for node_id in self.nodes} | {(node_id, one) for node_id in self.nodes}
        else:  # one way
            self._cuts.add((one, other))

    def _do_heal(self) -> None:
        self._cuts.clear()

    def _do_clock(self) -> None:
        self._some_node().set_clock_rate(self.chance.uniform(0.7, 1.4), self.now_us)

    def _do_resign(self) -> None:
        node = self._leader()
        if node is not None and node.replica is not None:
            self._carry_out(node, node.replica.resign(node.now_ms(self.now_us)))

    def _do_voters(self) -> bool:
        node = self._leader()
        if node is None or node.replica is None or not node.replica.quorum.outline.membership.kraft_version:
            return False
        voters = node.replica.quorum.outline.voters
        alive = {other.disk.key for other in self.nodes.values()}
        lost = [voter.key for voter in voters if voter.key not in alive]
        others = [key for key in alive if not voters.is_voter(key)]
        if lost or (len(voters) > 1 and (not others or self.chance.random() < 0.5)):
            self.ask_to_remove(node, lost[0] if lost else self.chance.choice([voter.key for voter in voters]))
        elif others:
            is_early = self.chance.random() < 0.5
            self.ask_to_add(node, self.chance.choice(sorted(others)), ack_when_committed=not is_early)
        else:
            return False
        return True

    def ask_to_remove(self, leader: Node, key: ReplicaKey) -> None:
        """Let a client ask a leader to remove a voter."""
        assert leader.replica is not None
        request = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=key.id, voter_directory_id=key.directory_id)
        self._carry_out(leader, leader.replica.handle_request(request, "remove", leader.now_ms(self.now_us)))

    def ask_to_add(self, leader: Node, key: ReplicaKey, *, ack_when_committed: bool = True) -> None:
        """Let a client ask a leader to add a voter."""
        assert leader.replica is not None
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER,
            timeout_ms=5_000,
            voter_id=key.id,
            voter_directory_id=key.directory_id,
            listeners=[Listener(name=name, host=host, port=port) for name, host, port in listeners_of(key.id)],
            ack_when_committed=ack_when_committed,
        )
        self._carry_out(leader, leader.replica.handle_request(request, "add", leader.now_ms(self.now_us)))

    def _do_replace_disk(self) -> bool:
        """A disk is lost, if no other voter's is: the quorum survives one at a time."""
        node, others = self._some_node(), self.nodes.values()
        alive = {other.disk.key for other in others}
        sets = [other.disk.outline().voters for other in others]
        # Why every disk: a voter that has not heard of the upgrade takes a new disk for the old one, as before it.
        if self.is_static and not all(other.disk.outline(is_durable=True).membership.kraft_version for other in others):
            return False
        if any(voter.key not in alive for voters in sets for voter in voters):
            return False
        if any(voters.is_voter(node.disk.key) and len(voters) < 3 for voters in sets):
            return False
        self.counts["disk replaced"] += 1
        self._crash(node)
        self.invariants.lost_disks.append(node.disk)
        node.disk = Disk(self._new_key(node.id), self._empty)
        return True

    def _do_upgrade(self) -> bool:
        """An administrator asks a leader to let the voters change from now on."""
        node = self._leader()
        if node is None or node.replica is None or node.replica.quorum.outline.membership.kraft_version:
            return False
        try:
            effects = node.replica.upgrade_kraft_version(1, node.now_ms(self.now_us), validate_only=False)
        except ApiError as error:
            self.counts[f"upgrade: {error.code.name}"] += 1
            return True
        self.counts["upgrade"] += 1
        self._carry_out(node, effects)
        return True


def live(seed: int, steps: int) -> World:
    """One world of this seed; a violation names the seed."""
    world = World(seed)
    try:
        world.run(steps)
    except ViolationError as error:
        raise ViolationError(f"{error} (seed {seed}, step {world.steps}, {world.now_us} us)") from error
    return world
