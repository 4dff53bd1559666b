"""What holds at every moment of a cluster's life, as only a view from above can check it.

1. A leader epoch of a partition has one leader, ever.
2. The leader epoch and the partition epoch that the controller has committed never go back.
3. A replica's high watermark is within its log, and its last stable offset is not above that.
4. The leader of the committed epoch has every record below a high watermark that a leader has told a client.
5. The replicas of a partition have the same batches up to the lowest of their high watermarks.
6. Each member of the committed ISR has every record below the high watermark of the leader of the committed epoch.
7. What brokers and the controllers know of partitions are beginnings of one history (checks/metadata.py).

Partitions are those that the controllers have committed, internal ones included. Rule 5 leaves out topics whose records
are removed, and compares whole logs, so `check` does it only when it is asked to.

Threads: the driver's task. It looks at the processes from outside, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.common.topic_partition import TopicPartition
from tests.simulation.checks.metadata import MetadataJournal, Version, View
from tests.simulation.cluster.serving import serving
from tests.stress.checks.replicas import differences

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from barnabas.testing.simulation.nodes import Nodes, SimulatedNode
    from tests.simulation.load.clients.readers import Reader


#: The view of a running controller that knows all that is committed.
CONTROLLERS: Final = "the controllers"


class Known(NamedTuple):
    """A partition of a topic that the controller has committed."""

    topic_id: bytes
    tp: TopicPartition


class Invariants:
    """The invariants of all topics, and what they remember of earlier moments."""

    def __init__(self, nodes: Nodes, readers: Iterable[Reader], not_whole: Collection[str]) -> None:
        self._nodes = nodes
        self._readers = list(readers)
        self._not_whole = frozenset(not_whole)  # topics whose records are removed
        self._leaders: dict[tuple[Known, int], int] = {}  # (partition, epoch) -> broker
        self._epochs: dict[Known, tuple[int, int]] = {}  # the committed ones
        self._metadata = MetadataJournal()

    def check(self, *, compares_logs: bool) -> list[str]:
        """Return the invariants that do not hold now, one line each."""
        found: list[str] = []
        for known, state in self._committed().items():
            replicas = dict(self._replicas(known))
            found += self._check_leaders(known, replicas)
            found += self._check_committed(known, state, replicas)
            if compares_logs and known.tp.topic not in self._not_whole:
                found += self._check_equal(known, replicas)
        return found + self._check_metadata()

    def _committed(self) -> Mapping[Known, Any]:
        """The partitions that the controllers have committed; none while no running one knows them all."""
        image = self._nodes.committed_image()
        if image is None:
            return {}
        return {
            Known(topic_id, TopicPartition(topic.name, number)): partition
            for topic_id, topic in image.topics.items()
            for number, partition in topic.partitions.items()
        }

    def _replicas(self, known: Known) -> Iterator[tuple[SimulatedNode, Any]]:
        """The running brokers that have a log of the partition, each with its `Partition`."""
        for broker, services in serving(self._nodes):
            partition = services.replica_manager.find(known.tp)
            if partition is not None and partition.log is not None and partition.log.topic_id == known.topic_id:
                yield broker, partition

    def _check_metadata(self) -> list[str]:
        views = self._views_of_brokers()
        image = self._nodes.committed_image()
        if image is None:
            return self._metadata.seen(views)
        views[CONTROLLERS] = {
            (topic.id, number): Version(each.partition_epoch, each.leader_epoch, each.leader, tuple(each.isr))
            for topic, number, each in image.each_partition()
        }
        return self._metadata.seen(views, CONTROLLERS, image.offset)

    def _views_of_brokers(self) -> dict[str, View]:
        """What each running broker knows, by its name and its start."""
        views: dict[str, View] = {}
        for broker, services in serving(self._nodes):
            if services.metadata_cache.snapshot.topics:
                views[_process(broker)] = {
                    (topic.id, number): Version(each.partition_epoch, each.leader_epoch, each.leader, tuple(each.isr))
                    for topic in services.metadata_cache.snapshot.topics.values()
                    for number, each in topic.partitions.items()
                }
        return views

    def _check_leaders(self, known: Known, replicas: dict[SimulatedNode, Any]) -> Iterator[str]:
        for broker, partition in replicas.items():
            role, log = partition.role, partition.log
            if role.is_leader:
                leader = self._leaders.setdefault((known, role.leader_epoch), broker.node.node_id)
                if leader != broker.node.node_id:
                    yield f"{known.tp}: epoch {role.leader_epoch} has two leaders, {leader} and {broker.node.node_id}"
            if log.high_watermark > log.log_end_offset:
                yield f"{known.tp}: {broker.name} has high watermark {log.high_watermark} of {log.log_end_offset}"
            if log.last_stable_offset > log.high_watermark:
                yield (
                    f"{known.tp}: {broker.name} has last stable offset {log.last_stable_offset}, "
                    f"above the high watermark {log.high_watermark}"
                )

    def _check_committed(self, known: Known, state: Any, replicas: dict[SimulatedNode, Any]) -> Iterator[str]:
        tp = known.tp
        epochs = (state.leader_epoch, state.partition_epoch)
        before = self._epochs.get(known, (-1, -1))
        if epochs[0] < before[0] or epochs[1] < before[1]:
            yield f"{tp}: leader and partition epoch were {before}, and are {epochs}"
        self._epochs[known] = epochs
        told = max((reader.told[tp.partition] for reader in self._readers if reader.topic == tp.topic), default=0)
        for broker, partition in replicas.items():
            role = partition.role
            if not role.is_leader or role.leader_epoch != state.leader_epoch:
                continue
            if partition.log.log_end_offset < told:
                yield (
                    f"{tp}: {broker.name} leads epoch {role.leader_epoch} with {partition.log.log_end_offset} offsets, "
                    f"but a client was told {told}"
                )
            high_watermark = partition.log.high_watermark
            for other, replica in replicas.items():
                end = replica.log.log_end_offset
                if other.node.node_id in state.isr and self._is_current(other) and end < high_watermark:
                    yield (
                        f"{tp}: {other.name} is in the ISR with {end} offsets, below the high watermark "
                        f"{high_watermark} of {broker.name}"
                    )

    def _is_current(self, broker: SimulatedNode) -> bool:
        """Return whether the controller knows this process of a broker; an ISR may name an earlier one."""
        image = self._nodes.committed_image()
        registered = None if image is None else image.brokers.get(broker.node.node_id)
        return registered is not None and registered.epoch == broker.server.link.lifecycle.epoch

    def _check_equal(self, known: Known, replicas: dict[SimulatedNode, Any]) -> Iterator[str]:
        if len(replicas) > 1:
            high_watermark = min(partition.log.high_watermark for partition in replicas.values())
            logs = {broker.name: stored_log(broker, known.tp) for broker in replicas}
            yield from (f"{known.tp}: {difference}" for difference in differences(logs, high_watermark))


def _process(node: SimulatedNode) -> str:
    """The name of a node's present process."""
    assert node.process is not None
    return f"{node.name} ({node.process.monotonic_start_ns})"


def stored_log(broker: SimulatedNode, tp: TopicPartition) -> bytes:
    """All segments of a partition on a broker's disk, in the order of their offsets."""
    inside = f"/{tp.topic}-{tp.partition}/"
    names = [path for path in broker.disk.files() if inside in path and path.endswith(".log")]
    return b"".join(map(broker.disk.written, sorted(names)))
