"""What leaders know, as only a view from above can check it. A rule that is broken shows before a record is lost.

1. The ISR that the controllers have committed is part of the maximal ISR of the leader of that epoch (KIP-497). So the
   high watermark never passes a member.
2. A follower that joins an ISR has, as its leader knows it, every record from before the leader's epoch: those may
   have been acknowledged, even above the leader's high watermark.
3. The log of a leader has the leader's epoch, from where it began: nothing of an earlier one was appended since then.
4. No broker leads what is in a log directory that it has reported as failed.

A look may come amid a change of rule 3, so what is wrong must be so in two looks in a row.

Threads: the task that looks. It looks at the processes from outside, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.simulation.cluster.serving import serving


class Leaders:
    """The looks at the leaders of a cluster."""

    def __init__(self, nodes: Any, is_power_out: Callable[[], bool]) -> None:
        self._nodes = nodes
        self._is_power_out = is_power_out  # a follower may have lost what it had
        self._isrs: dict[Any, frozenset[int]] = {}  # (leader, its epoch) -> ISR at the last look
        self._before: set[str] = set()  # what was wrong at the last look
        self.problems: list[str] = []

    def look(self) -> None:
        """Look at every leader that runs."""
        image = self._nodes.committed_image()
        isrs: dict[Any, frozenset[int]] = {}
        unsure: set[str] = set()
        for broker, services in serving(self._nodes):
            for partition in services.replica_manager.partitions():
                role = partition.role
                if partition.log is None or not role.is_leader:
                    continue
                key = (broker.name, partition.tp, partition.topic_id, role.leader_epoch)
                isrs[key] = role.isr
                if image is not None:
                    self.problems += _beyond_maximal(broker, partition, role, image)
                if not self._is_power_out():
                    self.problems += _joined_below(broker, partition, role, self._isrs.get(key, role.isr))
                unsure.update(_without_epoch(broker, partition, role))
        self.problems += sorted(unsure & self._before)
        self.problems += [] if image is None else _on_failed_directories(image)
        self._isrs, self._before = isrs, unsure


def _beyond_maximal(broker: Any, partition: Any, role: Any, image: Any) -> Iterator[str]:
    topic = image.topics.get(partition.topic_id)
    state = None if topic is None else topic.partitions.get(partition.tp.partition)
    if state is not None and state.leader_epoch == role.leader_epoch and not role.maximal_isr.issuperset(state.isr):
        yield (
            f"{partition.tp}: the ISR {sorted(state.isr)} is committed, but the leader {broker.name} counts on "
            f"{sorted(role.maximal_isr)} only"
        )


def _on_failed_directories(image: Any) -> Iterator[str]:
    for topic, index, state in image.each_partition():
        broker = image.brokers.get(state.leader)
        if broker is not None and not broker.has_online_dir(state.directory(state.leader)):
            yield (
                f"{topic.name}-{index}: broker {state.leader} leads, but has reported the log directory "
                f"{state.directory(state.leader).hex()} as failed"
            )


def _joined_below(broker: Any, partition: Any, role: Any, before: frozenset[int]) -> Iterator[str]:
    for member in sorted(role.isr - before):
        follower = partition._followers.states.get(member)
        if follower is not None and follower.log_end_offset < role.leader_epoch_start_offset:
            yield (
                f"{partition.tp}: broker {member} joined the ISR with {follower.log_end_offset} offsets, below the "
                f"start {role.leader_epoch_start_offset} of epoch {role.leader_epoch} of {broker.name}"
            )


def _without_epoch(broker: Any, partition: Any, role: Any) -> Iterator[str]:
    log = partition.log
    start = max(role.leader_epoch_start_offset, log.log_start_offset)
    entries = log._state.leader_epochs.entries
    known = entries[-1] if entries else (-1, -1)
    if log._state.is_usable and known != (role.leader_epoch, start) and known[0] <= role.leader_epoch:
        yield f"{partition.tp}: {broker.name} leads epoch {role.leader_epoch} from {start} on, its log knows {known}"
