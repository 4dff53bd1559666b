"""Who has a record that was acknowledged with acks=all, as only a view from above can check it.

1. When it is acknowledged, at least min.insync.replicas brokers have it.
2. Then, and at each look, every member of the committed ISR has it, whether its process runs or not.
3. At each look, a broker that is fenced or about to stop leads nothing, and is in no ISR with others.

A broker whose log is not open yet after a start counts as having it. So does every broker while one has lost power, and
is not in sync again: its unflushed records are gone, and its place in the ISR ends with its session.

Threads: the task of the producer that was answered; a task that looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.common.topic_partition import TopicPartition


class Copies:
    """The check at each acknowledgement."""

    def __init__(self, nodes: Any, min_in_sync: int, is_power_out: Callable[[], bool]) -> None:
        self._nodes = nodes
        self._min_in_sync = min_in_sync
        self._is_power_out = is_power_out
        self._acknowledged: dict[TopicPartition, int] = {}  # the highest offset
        self.problems: list[str] = []

    def acknowledged(self, tp: TopicPartition, offset: int) -> None:
        """Check a record that a client was told to be safe."""
        self._acknowledged[tp] = max(offset, self._acknowledged.get(tp, -1))
        if self._is_power_out():
            return
        lacking = [broker for broker in self._nodes.brokers if not _may_have(broker, tp, offset)]
        if len(self._nodes.brokers) - len(lacking) < self._min_in_sync:
            self.problems.append(f"{tp}: offset {offset} was acknowledged, but {_names(lacking)} lack it")
        self._check_isr(tp, offset)

    def look(self) -> None:
        """Check what was acknowledged before, and who is in ISRs."""
        image = self._nodes.committed_image()
        if image is None or self._is_power_out():
            return
        for tp, offset in self._acknowledged.items():
            self._check_isr(tp, offset)
        for topic, index, state in image.each_partition():
            for member in {state.leader} | (set(state.isr) if len(state.isr) > 1 else set()):
                broker = image.brokers.get(member)
                if broker is not None and not broker.is_active:
                    is_what = "fenced" if broker.is_fenced else "about to stop"
                    self.problems.append(f"{topic.name}-{index}: broker {member} is {is_what}, but in {state}")

    def _check_isr(self, tp: TopicPartition, offset: int) -> None:
        image = self._nodes.committed_image()
        topic = None if image is None else image.topic(tp.topic)
        state = None if topic is None else topic.partitions.get(tp.partition)
        members = [] if state is None else [each for each in self._nodes.brokers if each.node.node_id in state.isr]
        lacking = [broker for broker in members if not _may_have(broker, tp, offset)]
        if lacking:
            self.problems.append(f"{tp}: offset {offset} was acknowledged, but {_names(lacking)} of the ISR lack it")


def _may_have(broker: Any, tp: TopicPartition, offset: int) -> bool:
    services = getattr(broker.server, "services", None)
    partition = None if services is None else services.replica_manager.find(tp)
    return partition is None or partition.log is None or partition.log.log_end_offset > offset


def _names(brokers: list[Any]) -> str:
    return " and ".join(broker.name for broker in brokers)
