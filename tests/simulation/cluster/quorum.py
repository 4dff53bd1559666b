"""Looks at the controllers of a cluster, and lets the journal of their quorum (checks/quorum.py) judge what they have.

A controller that is alone has no quorum. The looks take no lock: a task of the simulation is not interrupted in
between. Logs are compared where they have changed.

Threads: a task that looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.controller.raft.election_state import (
    QUORUM_STATE_FILE,
    ElectionState,
    QuorumStateError,
    decode_quorum_state,
)
from barnabas.controller.raft.leader_state import Leader
from barnabas.protocol.records.batch import iter_headers
from tests.simulation.checks.quorum import QuorumJournal, Stored

if TYPE_CHECKING:
    from barnabas.testing.simulation.nodes import Nodes, SimulatedController

LOG: Final = "/__cluster_metadata-0/"
SEGMENT: Final = ".log"
CHECKPOINT: Final = ".checkpoint"


class QuorumWatch:
    """See the module."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._journal = QuorumJournal(len(nodes.controllers))
        self._seen: dict[str, tuple[Any, int, int]] = {}  # controller -> its replica, committed, end at the last look
        self._committed = 0  # at the last look
        self.problems: list[str] = []

    def look_at_leaders(self) -> None:
        """Look at those that lead only: what they break may last for the time of a message."""
        controllers = self._nodes.controllers
        for leader in controllers if len(controllers) > 1 else ():
            quorum = None if leader.raft is None else leader.raft._replica.quorum
            if quorum is not None and isinstance(quorum.role, Leader):
                role, epoch = quorum.role, quorum.epoch
                found = sum(_has_elected(each, epoch, leader.node.node_id) for each in controllers)
                self.problems += self._journal.elected(leader.name, epoch, found)
                start, committed = role.epoch_start_offset, role.high_watermark
                self.problems += self._journal.leader_commits(leader.name, epoch, start, committed)

    def look(self) -> None:
        """Look at every controller."""
        controllers = self._nodes.controllers
        if len(controllers) == 1:
            return
        committed = -1
        for controller in controllers:
            self._look_at_disk(controller)
            if controller.raft is not None:
                self._look_at_replica(controller)
                committed = max(committed, controller.raft.high_watermark)
        if committed > self._committed:
            self._committed = committed
            # Why not the new disks: what such a controller had is lost, until it has fetched it again.
            known = {each.name: _durable_end(each) for each in controllers}
            if all(known[each.name] >= committed for each in controllers if each.disks > 1):
                self.problems += self._journal.durable(known, committed)

    def _look_at_disk(self, controller: SimulatedController) -> None:
        try:
            state = _stored_state(controller)
        except QuorumStateError as error:
            self.problems.append(f"not durable: quorum-state of {controller.name}: {error}")
            return
        if state is not None:
            self.problems += self._journal.stored_state(
                controller.name, (controller.name, controller.disks), state.epoch, state.leader_id, state.voted
            )

    def _look_at_replica(self, controller: SimulatedController) -> None:
        raft, active = controller.raft, controller.controller
        assert raft is not None
        assert active is not None
        for entry in raft.history.entries():
            if entry.what.role == "leader":
                self.problems += self._journal.led(controller.name, entry.what.epoch)
        quorum = raft._replica.quorum
        state = (raft, raft.high_watermark, quorum.outline.end_offset)
        if self._seen.get(controller.name) != state:
            self._seen[controller.name] = state
            log = _log(controller)
            self.problems += self._journal.knows_committed(controller.name, log, raft.high_watermark)
            epochs = [each.raft._replica.quorum.epoch for each in self._nodes.controllers if each.raft is not None]
            if isinstance(quorum.role, Leader) and quorum.epoch == max(epochs):
                self.problems += self._journal.leads(controller.name, log)
        image = active.committed_image
        if image.offset >= 0:
            self.problems += self._journal.applied(controller.name, image.offset, image)


def _stored_state(controller: SimulatedController) -> ElectionState | None:
    """What the disk of a controller has of elections; None if it is empty. Raises QuorumStateError."""
    for path in controller.disk.files():
        content = controller.disk.flushed(path) if path.endswith(f"{LOG}{QUORUM_STATE_FILE}") else b""
        if content:
            return decode_quorum_state(content)
    return None


def _has_elected(controller: SimulatedController, epoch: int, leader_id: int) -> bool:
    """Return whether a disk is one of those that made a replica the leader of an epoch, as far as it tells."""
    if controller.disks > 1:
        return True  # it may have voted with an earlier disk
    try:
        state = _stored_state(controller)
    except QuorumStateError:
        return True  # which `look` reports
    if state is None or state.epoch < epoch:
        return False
    voted_id = None if state.voted is None else state.voted.id
    return state.epoch > epoch or leader_id in (state.leader_id, voted_id)


def _log(controller: SimulatedController) -> list[Stored]:
    """The batches of a controller's log."""
    paths = sorted(path for path in controller.disk.files() if LOG in path and path.endswith(SEGMENT))
    return [
        Stored(header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc)
        for path in paths
        for _, header in iter_headers(controller.disk.written(path))
    ]


def _durable_end(controller: SimulatedController) -> int:
    """The offset up to which a power failure would leave a controller's log, by its segments and its snapshot."""
    disk, end = controller.disk, 0
    for path in disk.files():
        if LOG in path and path.endswith(SEGMENT):
            for _, header in iter_headers(disk.flushed(path)):
                end = max(end, header.last_offset + 1)
        elif LOG in path and path.endswith(CHECKPOINT) and disk.flushed(path):
            end = max(end, int(path.rsplit("/", 1)[1].split("-")[0]))
    return end
