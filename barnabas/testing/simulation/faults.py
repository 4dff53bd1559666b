"""Faults of a simulated cluster, each with its end. What happens is a list of decisions (fault_decisions.py).

What the last member of an ISR has not flushed could be lost though it was acknowledged, which Kafka allows (KIP-966 is
about that). So a broker loses power or its files only in a calm: no other fault lasts and every replica is in sync, and
is in sync again before the next fault. The decisions after it come as much later. A controller flushes what it answers,
so it may lose power at any time. So may brokers that flush each batch before they answer, all at once, too
(`FaultPace.is_flushed`).

Of several controllers, one gets an empty disk in a calm only, too: static voters have no directory ids, so it forgets
its vote, and must not be needed for what was committed before (docs/internals/quorum.md).

A broker that is in no ISR may lose power, too: `strand` leaves one broker alone in all of them. All are in sync again
before the next fault.

Threads: the driver's task.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.testing.simulation import disk_actions
from barnabas.testing.simulation.fault_decisions import Decision, FaultPace, draw_decisions, in_order
from barnabas.testing.simulation.machine.network.sockets import connections_of
from barnabas.testing.simulation.nodes import SimulatedController

if TYPE_CHECKING:
    from barnabas.testing.simulation.machine.network.links import Network
    from barnabas.testing.simulation.machine.scheduler import Scheduler
    from barnabas.testing.simulation.nodes import Nodes, SimulatedNode

NS_PER_MS: Final = 1_000_000
CLOCK_JUMP_MS_MAX: Final = 600_000
REVIVE_NS: Final = 100 * NS_PER_MS
CALM_NS: Final = 20_000 * NS_PER_MS
IN_SYNC_NS: Final = 60_000 * NS_PER_MS
#: How long the others may stay in ISRs, at most, once they are cut off.
ALONE_NS: Final = 15_000 * NS_PER_MS
#: How long a kill waits for a change that is on its way, and how often it looks: a change takes milliseconds.
AMID_NS: Final = 3_000 * NS_PER_MS
AMID_LOOK_NS: Final = 2 * NS_PER_MS
#: How often it hits the active controller instead of a broker.
CONTROLLER_AMID: Final = 0.5
#: Of a relay: how often the others copy nothing for a time before the first leader ends, and for how long; how long the
#: second one leads.
BEHIND: Final = 0.5
BEHIND_MS_MAX: Final = 600
LEADING_MS_MIN: Final = 200
LEADING_MS_MAX: Final = 1_500
#: How much longer than its session a broker is deaf.
DEAF_MS: Final = 8_000
#: How much longer packets take of a leader that is overtaken, and of the broker that copies after it.
FAR_MS: Final = 150
NEAR_MS: Final = 50
#: How long the second leader of a relay may take to end.
ENDING_NS: Final = 5_000 * NS_PER_MS
#: How often it is killed; otherwise it is asked to stop.
KILLED_IN_RELAY: Final = 0.3
#: After a disk is repaired: an error that was met before takes its directory offline within this time.
REPAIR_NS: Final = 3_000 * NS_PER_MS
#: The default of broker.session.timeout.ms, and how long a broker is gone beyond it.
SESSION_MS: Final = 9_000
DEPOSED_MS: Final = 1_500
#: The default of controller.quorum.fetch.timeout.ms: a leader resigns after 1.5 of these without fetches.
QUORUM_MS: Final = 3_000
#: How often one direction is cut between two nodes of one role.
AMONG_PEERS: Final = 0.5
#: How often a node that is deposed is cut off; otherwise it is paused.
CUT_OFF: Final = 0.7
#: How often a broker that is cut off, and in no ISR, loses power.
STRANDED_WITHOUT_POWER: Final = 0.5
LINK_DELAYS_MS: Final = (20, 200, 1_500)


class Faults:
    """Begins and ends faults; `heal` ends all."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        nodes: Nodes,
        rng: random.Random,
        pace: FaultPace | None = None,
        decisions: Sequence[Decision] | None = None,
    ) -> None:
        self._pace = pace or FaultPace()
        self._scheduler = scheduler
        self._network = network
        self._nodes = nodes
        self._random = rng
        self.decisions = decisions  # None: `run` draws them
        self.told: list[str] = []  # what was done, in words
        self.on_step: Callable[[str], None] = lambda _text: None  # fixed before start; called with each of these
        self._lasting = 0  # faults that have not ended
        self.is_power_out = False  # a broker has lost records, and is not in sync again
        self._length_ns = 0  # of the fault that begins
        self._is_healed = False  # no fault may begin any more
        nodes.tell = self._tell

    def run(self, end_ns: int) -> None:
        """Do one fault after the other until a time."""
        start_ns = self._scheduler.now_ns
        if self.decisions is None:
            length_ms = (end_ns - start_ns) // NS_PER_MS
            self.decisions = draw_decisions(self._random, list(self._nodes.by_id), length_ms, self._pace)
        for decision in in_order(self.decisions):
            self._scheduler.sleep_ns(start_ns + decision.at_ms * NS_PER_MS - self._scheduler.now_ns)
            if self._scheduler.now_ns >= end_ns:
                return
            began_ns = self._scheduler.now_ns
            self.do(decision)
            start_ns += self._scheduler.now_ns - began_ns

    def do(self, decision: Decision) -> None:
        """Do what was decided, if it is possible now."""
        node = self._nodes.by_id.get(decision.node_id)
        if node is not None:
            self._random = random.Random(decision.choice)
            self._length_ns = decision.length_ms * NS_PER_MS
            action: Callable[[SimulatedNode], None] = getattr(self, decision.kind)
            action(node)

    def heal(self) -> None:
        """End all faults: every node runs, every link works, and every clock is right."""
        self._is_healed = True
        self._tell("everything is healed")
        self._network.heal_all()
        for node in self._nodes.by_id.values():
            node.disk.faults.repair()
            if node.process is not None:
                node.process.wall_offset_ns = 0
            if node.process is not None and node.process.is_paused:
                self._scheduler.resume(node.process)
            self._revive(node)
            self._scheduler.call_at(self._scheduler.now_ns + REPAIR_NS, functools.partial(self._use_disk_again, node))

    def kill(self, node: SimulatedNode) -> None:
        """End a process as SIGKILL does, and start it again later."""
        if node.is_running:
            self._tell(f"{node.name} is killed")
            node.kill()
            self._later(lambda: self._start(node))

    def kill_amid(self, node: SimulatedNode) -> None:
        """Kill the active controller, or a leader that asks for another ISR, while a change is on its way."""
        self._wait_for(lambda: self._nodes.is_deciding() or self._is_healed, AMID_NS, AMID_LOOK_NS)
        if not self._is_healed:
            is_controller = isinstance(node, SimulatedController) or self._random.random() < CONTROLLER_AMID
            self.kill(self._nodes.controller if is_controller else next(iter(self._nodes.proposers()), node))

    def kill_peers(self, node: SimulatedNode) -> None:
        """End the processes of all other nodes of a role at once; start them again later."""
        for peer in self._peers(node):
            self.kill(peer)

    def strand(self, node: SimulatedNode) -> None:
        """Leave a broker alone in all ISRs, one follower after the other, and take it away as the others come back.

        Either it is killed, and the last one that left the ISRs may lead. Or the others lose power while they are cut
        off, and it is cut off itself as they start: none of them may lead before it has copied again.

        Why not both: two of ISR and eligible leader replicas would have ended uncleanly, with min.insync.replicas=2.
        Nobody could tell which one has lost records (KIP-966).
        """
        if isinstance(node, SimulatedController) or not self._comes_calm_for(node):
            return
        peers = self._peers(node)
        loses_power = self._random.random() < STRANDED_WITHOUT_POWER
        links: list[tuple[str, str]] = []
        self._lasting += 1
        for peer in peers:
            if self._is_healed:
                break
            self._tell(f"{peer.name} is cut off, to leave {node.name} alone")
            own_links = _links(peer, self._nodes.by_id.values())
            self._cut_links(own_links)
            links += own_links
            self._wait_for(functools.partial(self._nodes.has_left_isrs, peer), ALONE_NS)
        if not self._is_healed:
            is_alone = self._nodes.is_alone(node)
            for peer in peers if is_alone and loses_power else ():
                if peer.is_running:
                    self._tell(f"{peer.name} loses power")
                    peer.lose_power(self._random)
                    self._start(peer)
            self._tell(f"those are back that left {node.name} alone")
            self._heal_links(links)
            if is_alone and loses_power:
                self._length_ns += (self._session_ms(node) + DEPOSED_MS) * NS_PER_MS
                self.isolate(node)
            elif is_alone:
                self.kill(node)
        self._lasting -= 1
        if loses_power:
            self._wait_until_in_sync()

    def relay(self, node: SimulatedNode) -> None:
        """Let a broker stop and the next leader end soon after it, while the other members of the ISRs copy nothing.

        So the second leader has records that are not committed, clients ask it for them, and the third one lacks them.
        """
        peers = self._peers_in_calm(node)
        if not peers:
            return
        second = peers.pop(self._random.randrange(len(peers)))
        links = [link for leader in (node, second) for link in _links(leader, peers)]
        self._length_ns += 2 * LEADING_MS_MAX * NS_PER_MS  # so that the first one is not back before the second ends
        self._lasting += 1
        self._tell(f"{node.name} and {second.name} are cut off from the other brokers, to lead one after the other")
        self._cut_links(links)
        if self._random.random() < BEHIND:
            self._scheduler.sleep_ns(int(self._random.random() * BEHIND_MS_MAX) * NS_PER_MS)
        for leader in (node, second):
            if not self._is_healed:
                is_killed = leader is second and self._random.random() < KILLED_IN_RELAY
                (self.kill if is_killed else self.stop)(leader)
                self._scheduler.sleep_ns(self._random.randint(LEADING_MS_MIN, LEADING_MS_MAX) * NS_PER_MS)
        self._wait_for(lambda: not second.is_running or self._is_healed, ENDING_NS)
        self._tell(f"{node.name} and {second.name} are cut off no more")
        self._heal_links(links)
        self._lasting -= 1

    def overtake(self, node: SimulatedNode) -> None:
        """End a leader whose next one knows of little that was acknowledged, while the third replica is behind.

        1. The third broker is cut off until it has left the ISRs.
        2. All that comes from and to the leader takes longer, so that high watermarks reach the second one late.
        3. The leader is killed. The third one copies from the second, slowly, what was acknowledged without it.
        """
        peers = self._peers_in_calm(node)
        if not peers:
            return
        third = peers.pop(self._random.randrange(len(peers)))
        links = _links(third, [node, *peers])
        self._lasting += 1
        self._tell(f"{third.name} is cut off from the other brokers, and the network of {node.name} gets slow")
        self._cut_links(links)
        self._network.slow_down(node.node.host, FAR_MS * NS_PER_MS)
        self._wait_for(lambda: self._nodes.has_left_isrs(third) or self._is_healed, ALONE_NS)
        self._scheduler.sleep_ns(self._random.randint(LEADING_MS_MIN, LEADING_MS_MAX) * NS_PER_MS)
        if not self._is_healed:
            self._length_ns += (self._session_ms(node) + DEPOSED_MS) * NS_PER_MS
            self.kill(node)
            self._network.slow_down(third.node.host, NEAR_MS * NS_PER_MS)
        self._tell(f"{third.name} is cut off no more")
        self._heal_links(links)
        self._network.slow_down(node.node.host, 0)
        self._scheduler.sleep_ns(self._length_ns)
        self._network.slow_down(third.node.host, 0)
        self._lasting -= 1

    def deafen(self, node: SimulatedNode) -> None:
        """Keep the controllers from a broker, for longer than its session. It reaches them: its heartbeats arrive.

        So the controllers fence it only if `barnabas.metadata.lag.max.ms` is as short as a session.
        """
        if isinstance(node, SimulatedController):
            return
        self._length_ns += (self._session_ms(node) + DEAF_MS) * NS_PER_MS
        self._tell(f"the controllers do not reach {node.name}")
        pairs = [(controller.node.host, node.node.host) for controller in self._nodes.controllers]
        for pair in pairs:
            self._network.shut(*pair)
        for controller in self._nodes.controllers:
            for end in connections_of(controller.process) if controller.process is not None else ():
                if end.remote[0] == node.node.host and end.remote in self._network.listeners:
                    end.break_off(self._random)

        def ending() -> None:
            self._tell(f"the controllers reach {node.name} again")
            for pair in pairs:
                self._network.open(*pair)

        self._later(ending)

    def lose_power(self, node: SimulatedNode) -> None:
        """End a process and lose what its disk has not flushed; start it again later."""
        loses_records = not isinstance(node, SimulatedController) and not self._pace.is_flushed
        if not node.is_running or (loses_records and not self._comes_calm_for(node)):
            return
        self.is_power_out = loses_records
        self._tell(f"{node.name} loses power")
        node.lose_power(self._random)
        self._later(lambda: self._start(node))
        if loses_records:
            self._wait_until_in_sync()

    def lose_all_power(self, _node: SimulatedNode) -> None:
        """Let all brokers that run lose power at once."""
        for broker in self._nodes.brokers:
            if broker.is_running:
                self._tell(f"{broker.name} loses power")
                broker.lose_power(self._random)
                self._later(functools.partial(self._start, broker))

    def replace_disk(self, node: SimulatedNode) -> None:
        """End the process of a broker or of one of several controllers; start it again later with an empty disk."""
        is_broker = not isinstance(node, SimulatedController)
        if (is_broker or len(self._nodes.controllers) > 1) and node.is_running and self._comes_calm_for(node):
            self.is_power_out = is_broker
            self._tell(disk_actions.replace(node))
            self._later(lambda: self._start(node))
            self._wait_until_in_sync()

    def empty_files(self, node: SimulatedNode) -> None:
        """End the process of a broker, truncate some of its files to zero, and start it again later."""
        if not isinstance(node, SimulatedController) and node.is_running and self._comes_calm_for(node):
            self.is_power_out = True
            self._tell(disk_actions.empty_files(node, self._random))
            self._later(lambda: self._start(node))
            self._wait_until_in_sync()

    def fill_disk(self, node: SimulatedNode) -> None:
        """Leave a disk nearly no space for a time."""
        self._harm_disk(node, disk_actions.fill(node, self._random))

    def break_disk(self, node: SimulatedNode) -> None:
        """Let operations of a disk, or of one log directory, fail for a time."""
        self._harm_disk(node, disk_actions.fail(node, self._random))

    def slow_disk(self, node: SimulatedNode) -> None:
        """Let flushes take seconds for a time."""
        self._harm_disk(node, disk_actions.slow_down(node, self._random))

    def stop(self, node: SimulatedNode) -> None:
        """Stop a process in order, and start it again later."""
        if node.is_running:
            self._tell(f"{node.name} is asked to stop")
            node.stop()
            self._later(lambda: self._start(node))

    def pause(self, node: SimulatedNode) -> None:
        """Stop the threads of a process for a time."""
        process = node.process
        if process is None or not node.is_running or process.is_paused:
            return
        self._tell(f"{node.name} is paused")
        self._scheduler.pause(process)

        def resume() -> None:
            if not process.is_dead and process.is_paused:
                self._tell(f"{node.name} runs on")
                self._scheduler.resume(process)

        self._later(resume)

    def isolate(self, node: SimulatedNode) -> None:
        """Cut a node off from all others, clients included, for a time."""
        self._cut(f"{node.name} is cut off from the other nodes", _links(node, self._nodes.by_id.values()))

    def part(self, node: SimulatedNode) -> None:
        """Cut a node off from the others of its role only, for a time: brokers still reach that controller."""
        peers = self._peers(node)
        if peers:
            self._cut(f"{node.name} is cut off from the other {node.node.role}s", _links(node, peers))

    def depose(self, node: SimulatedNode) -> None:
        """Cut a node off, or pause it, for so long that others lead what it leads; clients may still write to it."""
        if isinstance(node, SimulatedController):
            if len(self._nodes.controllers) == 1:
                return
            lead_ms = QUORUM_MS
        else:
            lead_ms = self._session_ms(node)
        self._length_ns += (lead_ms + DEPOSED_MS) * NS_PER_MS
        if self._random.random() < CUT_OFF:
            self.isolate(node)
        else:
            self.pause(node)

    def orphan(self, node: SimulatedNode) -> None:
        """Cut a broker off from the controllers, for so long that others lead what it leads; it reaches all others."""
        if not isinstance(node, SimulatedController):
            self._length_ns += (self._session_ms(node) + DEPOSED_MS) * NS_PER_MS
            self._cut(f"{node.name} is cut off from the controllers", _links(node, self._nodes.controllers))

    def cut_one_way(self, node: SimulatedNode) -> None:
        """Cut one direction between two nodes for a time."""
        peers = self._peers(node)
        others = [each for each in self._nodes.by_id.values() if each is not node]
        other = self._random.choice(peers if peers and self._random.random() < AMONG_PEERS else others)
        self._cut(f"{node.name} reaches {other.name} no more", [(node.node.host, other.node.host)])

    def slow_link(self, node: SimulatedNode) -> None:
        """Let everything from and to a node, clients included, take longer for a time."""
        delay_ms = self._random.choice(LINK_DELAYS_MS)
        self._tell(f"the network of {node.name} takes {delay_ms} ms longer")
        host = node.node.host
        self._network.slow_down(host, delay_ms * NS_PER_MS)

        def ending() -> None:
            self._tell(f"the network of {node.name} is fast again")
            self._network.slow_down(host, 0)

        self._later(ending)

    def break_connections(self, node: SimulatedNode) -> None:
        """Reset connections of a node; of what is on its way, a part arrives before, perhaps half a frame."""
        if node.process is None or not node.is_running:
            return
        ends = [end for end in connections_of(node.process) if self._random.random() < 0.5]
        self._tell(f"{len(ends)} connections of {node.name} break")
        for end in ends:
            end.break_off(self._random)

    def jump(self, node: SimulatedNode) -> None:
        """Set the wall clock of a node forward or back."""
        if node.process is not None:
            change_ms = int((self._random.random() * 2 - 1) * CLOCK_JUMP_MS_MAX)
            self._tell(f"the clock of {node.name} jumps by {change_ms} ms")
            node.process.wall_offset_ns += change_ms * NS_PER_MS

    def _start(self, node: SimulatedNode) -> None:
        """Start a node that does not run; one that is stopping once it has stopped, which may last longer."""
        if node.is_running and node.is_stopping:
            self._scheduler.call_at(self._scheduler.now_ns + REVIVE_NS, lambda: self._start(node))
        elif not node.is_running:
            self._tell(f"{node.name} starts")
            node.start()

    def _session_ms(self, broker: SimulatedNode) -> int:
        return int(broker.properties.get("broker.session.timeout.ms", SESSION_MS))

    def _peers(self, node: SimulatedNode) -> list[SimulatedNode]:
        return [each for each in self._nodes.by_id.values() if each is not node and each.node.role == node.node.role]

    def _peers_in_calm(self, node: SimulatedNode) -> list[SimulatedNode]:
        """Wait for a calm; return the other brokers, none if no calm has come or there are fewer than two."""
        peers = self._peers(node)
        is_alone = isinstance(node, SimulatedController) or len(peers) < 2
        return [] if is_alone or not self._comes_calm_for(node) or self._is_healed else peers

    def _comes_calm_for(self, node: SimulatedNode) -> bool:
        """Wait for a calm; return whether it has come, and the node runs in it."""
        self._wait_for_calm(CALM_NS)
        return node.is_running and self._is_calm()

    def _wait_until_in_sync(self) -> None:
        self._wait_for_calm(IN_SYNC_NS)
        self.is_power_out = False

    def _is_calm(self) -> bool:
        nodes = self._nodes
        return not self._lasting and nodes.are_in_sync() and nodes.controllers_agree() and not nodes.is_deciding()

    def _wait_for_calm(self, limit_ns: int) -> None:
        self._wait_for(self._is_calm, limit_ns)

    def _wait_for(self, has_come: Callable[[], bool], limit_ns: int, look_ns: int = REVIVE_NS) -> None:
        limit_ns += self._scheduler.now_ns
        while not has_come() and self._scheduler.now_ns < limit_ns:
            self._scheduler.sleep_ns(look_ns)

    def _harm_disk(self, node: SimulatedNode, words: str) -> None:
        self._tell(words)

        def repair() -> None:
            self._tell(f"the disk of {node.name} is repaired")
            node.disk.faults.repair()
            self._lasting += 1
            self._scheduler.call_at(self._scheduler.now_ns + REPAIR_NS, use_again)

        def use_again() -> None:
            self._lasting -= 1
            self._use_disk_again(node)

        self._later(repair)

    def _use_disk_again(self, node: SimulatedNode) -> None:
        """Start a process again that ended because of its disk, or that has given up a log directory."""
        if not node.is_running:
            self._start(node)
        elif node.has_offline_directory() and not node.is_stopping:
            self._tell(f"{node.name} is killed, to use its disk again")
            node.kill()
            self._start(node)

    def _revive(self, node: SimulatedNode) -> None:
        """Start a node that does not run; one that is stopping once it has stopped."""
        if node.is_running and node.is_stopping:
            self._scheduler.call_at(self._scheduler.now_ns + REVIVE_NS, lambda: self._revive(node))
        elif not node.is_running:
            node.start()

    def _cut(self, words: str, links: list[tuple[str, str]]) -> None:
        self._tell(words)
        self._cut_links(links)

        def heal() -> None:
            self._tell(f"{words}: ended")
            self._heal_links(links)

        self._later(heal)

    def _cut_links(self, links: list[tuple[str, str]]) -> None:
        for source, target in links:
            self._network.cut(source, target)

    def _heal_links(self, links: list[tuple[str, str]]) -> None:
        for source, target in links:
            self._network.heal(source, target)

    def _later(self, function: Callable[[], None]) -> None:
        def ending() -> None:
            self._lasting -= 1
            function()

        self._lasting += 1
        self._scheduler.call_at(self._scheduler.now_ns + self._length_ns, ending)

    def _tell(self, text: str) -> None:
        self.told.append(f"{self._scheduler.now_ns / 1e9:10.6f} s  {text}")
        self._scheduler.digest.note(self._scheduler.now_ns, text)
        self.on_step(self.told[-1])


def _links(node: SimulatedNode, others: Iterable[SimulatedNode]) -> list[tuple[str, str]]:
    """Return both directions between a node and others."""
    return [
        link
        for other in others
        if other is not node
        for link in ((node.node.host, other.node.host), (other.node.host, node.node.host))
    ]
