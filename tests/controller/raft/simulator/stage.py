"""A world in which a transcript decides what happens: which message arrives, whose clock moves, who crashes.

A transcript has blocks of commands, each followed by `----` and what every replica is then. The commands:

    cluster VOTERS [OBSERVERS]   begin; the nodes have the ids 1, 2, …
    timeout ID                   move this node's clock to its election, fetch or check-quorum timeout
    wait ID MS                   move this node's clock
    round                        deliver the messages that are under way now, not those that they cause
    deliver                      deliver messages until there are none
    cut ID [ID]                  lose messages between two nodes, or between a node and all others, in both directions
    heal                         lose no more messages
    append ID                    a client's record, to this leader
    crash ID | restart ID        end and start a process; its disk stays
    replace-disk ID              start a process with an empty disk and a new directory
    add ID LEADER                make this node's directory a voter
    remove ID LEADER             remove the voter with this id
    snapshot ID                  replace what this node knows to be committed by a snapshot
    load ID                      let the snapshots that this node has fetched be loaded
    slow                         one batch to a fetch

A lost request, or one to a node that is down, fails at its sender. The invariants hold after each command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.controller.raft.leader_state import Leader
from tests.controller.raft.simulator.node import Disk, Node
from tests.controller.raft.simulator.world import World

DELIVERIES_MAX = 2_000


class Stage(World):
    """A world without chance."""

    def __init__(self, voters: int, observers: int = 0) -> None:
        self._under_way: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._loads: list[tuple[Node, tuple[Any, ...]]] = []
        super().__init__(1, (voters, observers))

    def _travel(self, source: int, target: int, work: Callable[..., None], *arguments: Any) -> None:
        if (source, target) in self._cuts:
            token = arguments[2] if work == self._request else arguments[0]
            work, arguments = self._response, (token, None)
        self._under_way.append((work, arguments))

    def _at(self, time_us: int, work: Callable[..., None], *arguments: Any) -> None:
        if work == self._snapshot_received:
            self._loads.append((arguments[0], arguments))

    def _schedule(self, node: Node) -> None:
        """Time moves by commands alone."""

    def play(self, command: str) -> None:
        """Carry out one line of a transcript."""
        name, *arguments = command.split()
        getattr(self, "_play_" + name.replace("-", "_"))(*(int(argument) for argument in arguments))

    def status(self) -> list[str]:
        """One line for each node."""
        return [self._status_of(node) for node in self.nodes.values()]

    def _status_of(self, node: Node) -> str:
        log = " ".join(f"{batch.epoch}:{batch.base_offset}-{batch.last_offset}" for batch in node.disk.log)
        if node.disk.snapshot is not None:
            log = f"[{node.disk.snapshot[0].epoch}:-{node.disk.snapshot[0].offset - 1}] {log}"
        if node.replica is None:
            return f"{node.id} down log {log}".rstrip()
        quorum = node.replica.quorum
        role = type(quorum.role).__name__.lower()
        leader = "-" if quorum.role.leader_id is None else quorum.role.leader_id
        voters = ",".join(str(voter.key.id) for voter in quorum.outline.voters) or "-"
        return (
            f"{node.id} {role} epoch {quorum.epoch} leader {leader} committed {max(quorum.high_watermark, 0)} "
            f"voters {voters} log {log}"
        ).rstrip()

    def _play_timeout(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.replica is not None
        role = node.replica.quorum.role
        deadline = role.check_quorum_ms if isinstance(role, Leader) else role.deadline_ms
        self._play_wait(node_id, deadline - node.now_ms(self.now_us))

    def _play_wait(self, node_id: int, duration_ms: int) -> None:
        node = self.nodes[node_id]
        assert node.replica is not None
        node.move_clock(duration_ms)
        self._carry_out(node, node.replica.poll(node.now_ms(self.now_us)))

    def _play_round(self) -> None:
        arriving, self._under_way = self._under_way, []
        for work, arguments in arriving:
            work(*arguments)

    def _play_deliver(self) -> None:
        for _ in range(DELIVERIES_MAX):
            if not self._under_way:
                return
            work, arguments = self._under_way.pop(0)
            work(*arguments)
        raise AssertionError("the messages do not end")

    def _play_cut(self, one: int, other: int = 0) -> None:
        for node_id in [other] if other else self.nodes:
            self._cuts |= {(one, node_id), (node_id, one)}

    def _play_heal(self) -> None:
        self._cuts.clear()

    def _play_append(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.replica is not None
        self._carry_out(node, node.replica.append(1, None, node.now_ms(self.now_us))[1])

    def _play_crash(self, node_id: int) -> None:
        self._crash(self.nodes[node_id])

    def _play_restart(self, node_id: int) -> None:
        self._start(self.nodes[node_id])

    def _play_replace_disk(self, node_id: int) -> None:
        node = self.nodes[node_id]
        self._crash(node)
        self.invariants.lost_disks.append(node.disk)
        node.disk = Disk(self._new_key(node_id), self._static)
        self._start(node)

    def _play_add(self, node_id: int, leader_id: int) -> None:
        self.ask_to_add(self.nodes[leader_id], self.nodes[node_id].disk.key)

    def _play_remove(self, node_id: int, leader_id: int) -> None:
        leader = self.nodes[leader_id]
        assert leader.replica is not None
        voter = leader.replica.quorum.outline.voters.get(node_id)
        assert voter is not None
        self.ask_to_remove(leader, voter.key)

    def _play_snapshot(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.replica is not None
        self.take_snapshot(node, node.replica.quorum.high_watermark)

    def _play_load(self, node_id: int) -> None:
        loads, self._loads = self._loads, []
        for node, arguments in loads:
            if node.id == node_id:
                self._snapshot_received(*arguments)

    def _play_slow(self) -> None:
        self.read_batches = 1
