"""The gauges of the coordinators, which the server registers.

Threads: the scraper's. It takes no lock of a shard, so it may see groups of different moments.
Source: Kafka's GroupCoordinatorMetrics, TransactionStateManager, TransactionMarkerChannelManager (4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.coordinators.classic.events import GroupState
from barnabas.broker.coordinators.consumer.values import GroupState as ConsumerGroupState
from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.broker.coordinators.share_groups.values import GroupState as ShareGroupState
from barnabas.broker.coordinators.streams_groups.values import GroupState as StreamsGroupState
from barnabas.broker.coordinators.transactions.transaction import TxnState
from barnabas.metrics.channel_metrics import ChannelMetrics
from barnabas.metrics.table import catalogue as c

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.broker.coordinators.groups.shard import Shard
    from barnabas.broker.coordinators.persister.persister import SharePersister
    from barnabas.broker.coordinators.share_state.coordinator import ShareCoordinator
    from barnabas.broker.coordinators.share_state.shard import ShareStateShard
    from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.broker.coordinators.transactions.markers import MarkerSender
    from barnabas.broker.coordinators.transactions.verification import TransactionVerification
    from barnabas.metrics.registry import Labels, Registry

STATE_GAUGES: Final = {
    GroupState.EMPTY: c.NUM_GROUPS_EMPTY,
    GroupState.PREPARING_REBALANCE: c.NUM_GROUPS_PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE: c.NUM_GROUPS_COMPLETING_REBALANCE,
    GroupState.STABLE: c.NUM_GROUPS_STABLE,
    GroupState.DEAD: c.NUM_GROUPS_DEAD,
}
#: Kafka's names of the states of a shard; a closed one no longer exists.
_SHARD_STATES: Final = {ShardState.LOADING: "loading", ShardState.ACTIVE: "active", ShardState.FAILED: "failed"}


def register_groups(registry: Registry, coordinator: GroupCoordinator) -> None:
    """Register the gauges of the group coordinator's groups and partitions."""

    def classic(state: GroupState) -> Callable[[], int]:
        return lambda: sum(
            group.state is state for shard in coordinator.shards() for group in list(shard.groups.values())
        )

    registry.gauge(c.NUM_OFFSETS, lambda: sum(shard.offsets.count for shard in coordinator.shards()))
    registry.gauge(c.NUM_GROUPS, lambda: sum(shard.group_count for shard in coordinator.shards()))
    for state, row in STATE_GAUGES.items():
        registry.gauge(row, classic(state))
    registry.table((c.GROUP_NUM_PARTITIONS,), lambda: _shard_states(coordinator.shards()))
    registry.table(
        (c.GROUP_COUNT,),
        lambda: [
            (("classic",), (sum(len(shard.groups) for shard in coordinator.shards()),)),
            (("consumer",), (sum(len(shard.consumer_groups) for shard in coordinator.shards()),)),
            (("share",), (sum(len(shard.share_groups) for shard in coordinator.shards()),)),
            (("streams",), (sum(len(shard.streams_groups) for shard in coordinator.shards()),)),
        ],
    )
    registry.table((c.CONSUMER_GROUP_COUNT,), lambda: _consumer_states(coordinator.shards()))
    registry.table((c.SHARE_GROUP_COUNT,), lambda: _share_states(coordinator.shards()))
    registry.table((c.STREAMS_GROUP_COUNT,), lambda: _streams_states(coordinator.shards()))


def _shard_states(shards: list[Shard] | list[ShareStateShard]) -> list[tuple[Labels, tuple[int]]]:
    counts = Counter(shard.state for shard in shards)
    return [((name,), (counts[state],)) for state, name in _SHARD_STATES.items()]


def _consumer_states(shards: list[Shard]) -> list[tuple[Labels, tuple[int]]]:
    counts = Counter(group.state for shard in shards for group in list(shard.consumer_groups.values()))
    return [((state.value,), (counts[state],)) for state in ConsumerGroupState]


def register_share_state(registry: Registry, coordinator: ShareCoordinator, persister: SharePersister) -> None:
    """Register the gauges of the share coordinator, and the persister's traffic. Call it before the start."""
    persister.senders.traffic = ChannelMetrics(registry, "Persister-channel")
    registry.table((c.SHARE_STATE_NUM_PARTITIONS,), lambda: _shard_states(coordinator.shards()))
    registry.table(
        (c.SHARE_STATE_LAST_PRUNED_OFFSET,),
        lambda: [
            ((shard.tp.topic, str(shard.tp.partition)), (shard.pruned_offset,))
            for shard in coordinator.shards()
            if shard.pruned_offset >= 0
        ],
    )


def _share_states(shards: list[Shard]) -> list[tuple[Labels, tuple[int]]]:
    counts = Counter(group.state for shard in shards for group in list(shard.share_groups.values()))
    return [((state.value,), (counts[state],)) for state in ShareGroupState]


def _streams_states(shards: list[Shard]) -> list[tuple[Labels, tuple[int]]]:
    counts = Counter(group.state for shard in shards for group in list(shard.streams_groups.values()))
    return [((state.value,), (counts[state],)) for state in StreamsGroupState]


def register_transactions(
    registry: Registry,
    coordinator: TransactionCoordinator,
    markers: MarkerSender,
    verification: TransactionVerification,
    log_size: Callable[[], int],
) -> None:
    """Register the gauges and sensors of transactions; `log_size()` is the bytes of __transaction_state here.

    Call it before the start.
    """
    verification.set_sensors(
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
