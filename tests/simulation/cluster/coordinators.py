"""What coordinators know, as only a view from above can check it. A rule that is broken shows before a client suffers.

1. A coordinator of transactions or of share states serves once all that its predecessors wrote is committed.
2. A group coordinator serves at once. It waits for each record of a modern group that a predecessor wrote and that is
   not committed: it tells nothing of these groups until then.
3. Until then it refuses questions for committed offsets, too, and waits for their records.
4. No offset of a topic that was deleted is left once another one has its name (`former_offsets`).
5. A share state knows the epoch of each leader that has read it: its predecessors are fenced.

For rules 1, 2 and 5, only a coordinator counts whose epoch is the committed one. A former one, which does not know that
it was replaced, may have any state.

Threads: the task that looks. It looks at the processes from outside, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.records.batch import iter_headers, iter_records
from tests.simulation.cluster.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The versions of the keys in __consumer_offsets from which on they belong to a modern group.
MODERN_KEYS_FROM: Final = 3


class Coordinators:
    """The looks at the coordinators of a cluster."""

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes
        self.problems: list[str] = []

    def look(self) -> None:
        """Look at every broker that runs."""
        image = self._nodes.committed_image()
        if image is None:
            return
        reads = list(self._share_reads())
        for broker, services in serving(self._nodes):
            for name, shards in (
                ("transactions", services.transaction_coordinator._shards.all()),
                ("share states", services.share_coordinator.shards()),
            ):
                for shard, partition in _led(shards, services, image):
                    start, committed = partition.role.leader_epoch_start_offset, partition.log.high_watermark
                    if committed < start:
                        self.problems.append(
                            f"{shard.tp}: {broker.name} serves {name}, but {committed} of {start} records are committed"
                        )
            for shard, partition in _led(services.group_coordinator.shards(), services, image):
                self.problems += _unawaited(broker, shard, partition)
                self.problems += _told_early(broker, shard, partition)
            for shard, _ in _led(services.share_coordinator.shards(), services, image):
                self.problems += _unfenced(broker, shard, reads)

    def former_offsets(self) -> list[str]:
        """Return the committed offsets of topics that were deleted, and made anew under their names, one line each."""
        found = []
        for broker, services in serving(self._nodes):
            topics = services.metadata_cache.snapshot.topics
            for shard in services.group_coordinator.shards():
                for (group, tp), topic_ids in shard.offsets.of_topics(topics.keys()).items():
                    if topics[tp.topic].id not in topic_ids:
                        found.append(f"kept offset: {broker.name} has one of {group} for a former topic {tp.topic}")
        return found

    def _share_reads(self) -> Iterator[tuple[Any, int]]:
        """What leaders of share partitions have read: the key and the leader epoch of each."""
        for _, services in serving(self._nodes):
            for key, led in list(services.share_partitions._led.items()):
                if led._machine.is_active:
                    yield key, led.leader_epoch


def _led(shards: list[Any], services: Any, image: Any) -> Iterator[tuple[Any, Any]]:
    """The shards that serve in the committed epoch, each with its partition."""
    for shard in shards:
        partition = services.replica_manager.find(shard.tp)
        topic = image.topic(shard.tp.topic)
        if shard.state is not ShardState.ACTIVE or partition is None or partition.log is None or topic is None:
            continue
        role = partition.role
        committed = topic.partitions[shard.tp.partition].leader_epoch
        if role.is_leader and role.leader_epoch == shard.leader_epoch == committed:
            yield shard, partition


def _told_early(broker: Any, shard: Any, partition: Any) -> Iterator[str]:
    """A coordinator whose gate is open although it waits for a record that it has loaded."""
    waiting, committed = list(shard.writes._waiting), partition.log.high_watermark
    # Why the first offset: a write that is being appended has none yet.
    if not waiting or waiting[0].first_offset < 0 or waiting[0].end_offset > shard.writes._loaded_end_offset:
        return
    # Why the gate itself: it changes nothing, as long as the record is not committed.
    if waiting[0].end_offset > committed and not shard._core.committed_gate_locked():
        yield (
            f"{shard.tp}: {broker.name} tells committed offsets, but the record {waiting[0].first_offset} that it has "
            "loaded is not committed"
        )


def _unawaited(broker: Any, shard: Any, partition: Any) -> Iterator[str]:
    """The last record of a modern group that is not committed, if its coordinator does not wait for it."""
    start, committed = partition.role.leader_epoch_start_offset, partition.log.high_watermark
    waiting = list(shard.writes._waiting)
    if committed >= start or any(write.first_offset < 0 for write in waiting):
        return  # all is committed, or an append is in progress
    offset = _last_modern(broker, shard.tp, committed, start)
    if offset >= 0 and not any(write.first_offset <= offset < write.end_offset for write in waiting):
        yield f"{shard.tp}: {broker.name} serves consumer groups, but their record {offset} is not committed"


def _last_modern(broker: Any, tp: TopicPartition, begin: int, end: int) -> int:
    """Return the offset of the last record of a modern group in a range of offsets; -1 if there is none."""
    found = -1
    inside = f"/{tp.topic}-{tp.partition}/"
    for path in sorted(path for path in broker.disk.files() if inside in path and path.endswith(".log")):
        content = broker.disk.written(path)
        for place, header in iter_headers(content):
            if header.last_offset < begin or header.base_offset >= end or header.is_control:
                continue
            for record in iter_records(content, place):
                if begin <= record.offset < end and record.key is not None:
                    is_modern = int.from_bytes(record.key[:2], "big") >= MODERN_KEYS_FROM
                    found = record.offset if is_modern else found
    return found


def _unfenced(broker: Any, shard: Any, reads: list[tuple[Any, int]]) -> Iterator[str]:
    """The share states that do not know a leader that has read them."""
    for key, leader_epoch in reads:
        state = shard.states.get(key)
        if state is not None and state.leader_epoch < leader_epoch:
            yield (
                f"{key.group_id}: the leader of epoch {leader_epoch} has read partition {key.partition}, "
                f"but {broker.name} fences only those before epoch {state.leader_epoch}"
            )
