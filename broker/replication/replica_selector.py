"""Selects the replica that a consumer should fetch from: the leader, or one in its own rack (KIP-392).

A consumer names its rack in Fetch (client.rack). The leader answers with a preferred read replica; the consumer fetches
there until that replica refuses it or metadata.max.age.ms is over. Only replicas of the ISR that have the consumer's
offset are candidates: one that lags would send it back at once.

Threads: any handler.
Source: Kafka's ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config.checks import LEADER_SELECTOR, RACK_AWARE_SELECTOR

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.replication.partition import Partition
    from barnabas.common.clock import Clock


class ReplicaView(NamedTuple):
    """A replica that a consumer may fetch from."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: int  # since it last had all that the leader has; 0 for the leader


Select = Callable[[str, ReplicaView, Sequence[ReplicaView]], ReplicaView]
"""(client's rack, leader, other candidates) -> the replica to fetch from."""

ReplicaSelector = Callable[["Partition", str, str, int], "int | None"]
"""(partition led here, client's rack, its listener, its offset) -> id of the broker to fetch from; None: the leader."""


def rack_aware(rack: str, leader: ReplicaView, others: Sequence[ReplicaView]) -> ReplicaView:
    """The most caught-up replica in the rack; the leader if it is in the rack itself, or if no replica is."""
    near = [replica for replica in others if replica.rack == rack]
    if leader.rack == rack or not near:
        return leader
    return max(near, key=lambda replica: (replica.log_end_offset, -replica.behind_ms, replica.broker_id))


def always_leader(_rack: str, leader: ReplicaView, _others: Sequence[ReplicaView]) -> ReplicaView:
    """The leader, whatever the rack."""
    return leader


SELECTORS: Final[dict[str, Select]] = {RACK_AWARE_SELECTOR: rack_aware, LEADER_SELECTOR: always_leader}


def make_selector(class_name: str | None, cache: MetadataCache, clock: Clock) -> ReplicaSelector | None:
    """The selector that `replica.selector.class` names; None if it names none."""
    if not class_name:
        return None
    choose = SELECTORS[class_name]

    def select(partition: Partition, rack: str, listener_name: str, fetch_offset: int) -> int | None:
        log = partition.log
        if log is None:
            return None
        nodes = {node.id: node for node in cache.snapshot.nodes(listener_name)}
        now_ms = clock.monotonic_ms()
        others = [
            ReplicaView(f.broker_id, nodes[f.broker_id].rack, f.log_end_offset, now_ms - f.last_caught_up_ms)
            for f in partition.followers
            if f.broker_id in partition.isr
            and f.broker_id in nodes
            and f.log_start_offset <= fetch_offset <= f.log_end_offset
        ]
        leader_node = nodes.get(partition.leader_id)
        leader_rack = None if leader_node is None else leader_node.rack
        leader = ReplicaView(partition.leader_id, leader_rack, log.log_end_offset, 0)
        chosen = choose(rack, leader, others)
        return None if chosen is leader else chosen.broker_id

    return select
