"""What the coordinators tell of themselves: sensors that shards record into, and numbers read off their state.

Threads: sensors by whoever holds a shard; the rest on the scraper's thread, which takes no lock of a shard and may see
groups of different moments.
Source: Kafka's GroupCoordinatorMetrics, TransactionStateManager, TransactionMarkerChannelManager (4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.coordinators.consumer_group_types import GroupState as ConsumerGroupState
from barnabas.broker.coordinators.group_events import GroupState
from barnabas.broker.coordinators.shard_core import ShardState
from barnabas.broker.coordinators.transaction import TxnState
from barnabas.metrics import catalogue as c
from barnabas.metrics.channel_metrics import ChannelMetrics

if TYPE_CHECKING:
    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.broker.coordinators.shard import Shard
    from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from barnabas.broker.coordinators.transaction_markers import MarkerSender
    from barnabas.broker.coordinators.transaction_verification import TransactionVerification
    from barnabas.metrics.registry import Labels, Registry

STATE_GAUGES: Final = {
    GroupState.EMPTY: c.NUM_GROUPS_EMPTY,
    GroupState.PREPARING_REBALANCE: c.NUM_GROUPS_PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE: c.NUM_GROUPS_COMPLETING_REBALANCE,
    GroupState.STABLE: c.NUM_GROUPS_STABLE,
    GroupState.DEAD: c.NUM_GROUPS_DEAD,
}
#: Kafka's words for the states of a shard; a closed one is gone.
_SHARD_STATES: Final = {ShardState.LOADING: "loading", ShardState.ACTIVE: "active", ShardState.FAILED: "failed"}


class GroupSensors:
    """What shards count as it happens."""

    def __init__(self, registry: Registry) -> None:
        self.commits = registry.sensor(c.OFFSET_COMMIT)
        self.expirations = registry.sensor(c.OFFSET_EXPIRATION)
        self.deletions = registry.sensor(c.OFFSET_DELETION)
        self.completed_rebalances = registry.sensor(c.GROUP_COMPLETED_REBALANCE)
        self.consumer_rebalances = registry.sensor(c.CONSUMER_GROUP_REBALANCE)
        self.load_time = registry.avg_max(c.GROUP_PARTITION_LOAD_TIME)


def register_groups(registry: Registry, coordinator: GroupCoordinator) -> None:
    """Show the group coordinator's groups and partitions."""

    def shards() -> list[Shard]:
        return coordinator.shards()

    def classic(state: GroupState) -> Callable[[], int]:
        return lambda: sum(group.state is state for shard in shards() for group in list(shard.groups.values()))

    registry.gauge(c.NUM_OFFSETS, lambda: sum(shard.offsets.count for shard in shards()))
    registry.gauge(c.NUM_GROUPS, lambda: sum(shard.group_count for shard in shards()))
    for state, row in STATE_GAUGES.items():
        registry.gauge(row, classic(state))
    registry.table((c.GROUP_NUM_PARTITIONS,), lambda: _shard_states(shards()))
    registry.table(
        (c.GROUP_COUNT,),
        lambda: [
            (("classic",), (sum(len(shard.groups) for shard in shards()),)),
            (("consumer",), (sum(len(shard.consumer_groups) for shard in shards()),)),
        ],
    )
    registry.table((c.CONSUMER_GROUP_COUNT,), lambda: _consumer_states(shards()))


def _shard_states(shards: list[Shard]) -> list[tuple[Labels, tuple[int]]]:
    counts = Counter(shard.state for shard in shards)
    return [((name,), (counts[state],)) for state, name in _SHARD_STATES.items()]


def _consumer_states(shards: list[Shard]) -> list[tuple[Labels, tuple[int]]]:
    counts = Counter(group.state for shard in shards for group in list(shard.consumer_groups.values()))
    return [((state.value,), (counts[state],)) for state in ConsumerGroupState]


def register_transactions(
    registry: Registry,
    coordinator: TransactionCoordinator,
    markers: MarkerSender,
    verification: TransactionVerification,
    log_size: Callable[[], int],
) -> None:
    """Show the transaction coordinator's transactions; `log_size`: bytes of __transaction_state here."""
    verification.measure(
        registry.histogram(c.TXN_VERIFICATION_TIME_MS).update,
        registry.meter(c.TXN_VERIFICATION_FAILURE_RATE).mark,
        ChannelMetrics(registry, "AddPartitionsManager-channel"),
    )
    markers.senders.traffic = ChannelMetrics(registry, "txn-marker-channel")
    coordinator.load_time = registry.avg_max(c.TXN_PARTITION_LOAD_TIME)
    registry.table(
        (c.TXN_TRANSACTIONAL_ID_COUNT,),
        lambda: [((state.value,), (coordinator.count([state]),)) for state in TxnState],
    )
    gauges: dict[Any, Callable[[], int]] = {
        c.TXN_PARTITIONS_TOTAL_SIZE: log_size,
        c.TXN_UNKNOWN_DESTINATION_QUEUE_SIZE: markers.unknown_destinations,
        c.TXN_LOG_APPEND_RETRY_QUEUE_SIZE: coordinator.unwritten_ends,
    }
    for row, read in gauges.items():
        registry.gauge(row, read)
