"""The controller's metrics, under Kafka's names.

Threads: the event thread and the senders record. The scraper reads the gauges, from `committed_image` and plain
numbers.

Source: QuorumControllerMetrics, ControllerMetadataMetrics (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from barnabas.broker.monitoring.broker_metrics import levels
from barnabas.common.clock import NS_PER_MS, NS_PER_S, Clock
from barnabas.controller.image import NO_LEADER, RECOVERING, Broker, Image
from barnabas.controller.image_editor import Delta
from barnabas.controller.raft.client.raft_metrics import show_quorum
from barnabas.metrics.meters import Window
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue as rows

if TYPE_CHECKING:
    from barnabas.controller.quorum_controller import QuorumController

_OF_A_BROKER = (
    rows.BROKER_REGISTRATION_STATE,
    rows.TIME_SINCE_LAST_HEARTBEAT_RECEIVED_MS,
    rows.PUSH_QUEUE_SIZE,
    rows.PUSH_LAG,
    rows.PUSH_TIME_MS,
    rows.PUSH_FAILURES_PER_SEC,
)
_FENCED, _SHUTTING_DOWN, _ACTIVE, _UNREGISTERED = 10, 20, 30, -1


class ControllerMetrics:
    """Counts the work of the event thread and the senders, and shows gauges of the committed image."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry  # fixed before start
        self._clock = clock  # fixed before start
        self._queue_time = registry.histogram(rows.EVENT_QUEUE_TIME_MS)
        self._processing_time = registry.histogram(rows.EVENT_QUEUE_PROCESSING_TIME_MS)
        self._unclean_elections = registry.meter(rows.UNCLEAN_LEADER_ELECTIONS_PER_SEC)
        self._elections_from_elr = registry.meter(rows.ELECTION_FROM_ELIGIBLE_LEADER_REPLICAS_PER_SEC)
        self._appended = registry.sensor(rows.RAFT_APPEND_RECORDS)
        self._commit_latency = registry.avg_max(rows.RAFT_COMMIT_LATENCY)
        # Owner: event thread; the scraper reads them.
        self.events_started = 0
        self.events_timed_out = 0
        self.errors = 0
        self.sessions_timed_out = 0
        self.leaders_seen = 0
        self.last_applied_wall_ms = 0
        self._busy_ns = 0
        self._shown_brokers: set[int] = set()
        self._snapshot = (clock.wall_ms(), 0)  # of the newest snapshot: (wall time, bytes)
        # Owner: scraper.
        self._busy = Window(registry.now_s())
        self._counted: tuple[Image | None, tuple[int, int, int]] = (None, (0, 0, 0))

    # -- the loop's observer

    def event_started(self, queue_time_ns: int) -> None:
        """Count an event taken from the queue."""
        self.events_started += 1
        self._queue_time.update(queue_time_ns / NS_PER_MS)

    def event_processed(self, processing_time_ns: int) -> None:
        """Count an event that was decided and appended."""
        self._busy_ns += processing_time_ns
        self._processing_time.update(processing_time_ns / NS_PER_MS)

    def event_timed_out(self) -> None:
        """Count an event that started after its deadline."""
        self.events_timed_out += 1

    def event_failed(self) -> None:
        """Count an unexpected exception."""
        self.errors += 1

    def session_timed_out(self) -> None:
        """Count a broker that is fenced because its session timed out."""
        self.sessions_timed_out += 1

    def committed(self, deltas: Iterable[Delta], image: Image) -> None:
        """Note the time of a commit, and count its elections outside the ISR; `image` is the image after the commit."""
        self.last_applied_wall_ms = self._clock.wall_ms()
        for delta in deltas:
            for key, before in delta.previous.items():
                after = image.partition(key)
                if after and after.recovery_state == RECOVERING != before.recovery_state:
                    self._unclean_elections.mark()
                if after and after.leader in before.elr:
                    self._elections_from_elr.mark()

    def appended(self, count: int) -> None:
        """Count records appended to the metadata log."""
        self._appended.record(count)

    def commit_took(self, duration_ns: int) -> None:
        """Record the time from a group of appends to its commit."""
        self._commit_latency.record(duration_ns / NS_PER_MS)

    def leader_changed(self) -> None:
        """Count a new active controller."""
        self.leaders_seen += 1

    def snapshot_written(self, size_bytes: int) -> None:
        """Record the size and the time of a new snapshot."""
        self._snapshot = (self._clock.wall_ms(), size_bytes)

    # -- the senders' observer

    def pushed(self, broker_id: int, waited_ns: int) -> None:
        """Record a push that was acknowledged `waited_ns` after the oldest change in it."""
        self._registry.timer(rows.PUSH_TIME_MS, broker=broker_id).update(waited_ns / NS_PER_MS)

    def push_failed(self, broker_id: int) -> None:
        """Count a push that failed; another attempt follows."""
        self._registry.meter(rows.PUSH_FAILURES_PER_SEC, broker=broker_id).mark()

    # -- gauges

    def watch(self, controller: QuorumController) -> None:
        """Show the gauges of a controller that has started."""

        def image() -> Image:
            return controller.committed_image

        gauges: dict[Any, Callable[[], float]] = {
            rows.ACTIVE_CONTROLLER_COUNT: lambda: int(controller.is_active),
            rows.ACTIVE_BROKER_COUNT: lambda: _count(image(), lambda b: not b.is_fenced),
            rows.FENCED_BROKER_COUNT: lambda: _count(image(), lambda b: b.is_fenced),
            rows.CONTROLLED_SHUTDOWN_BROKER_COUNT: lambda: _count(image(), lambda b: b.in_controlled_shutdown),
            rows.GLOBAL_TOPIC_COUNT: lambda: len(image().topics),
            rows.GLOBAL_PARTITION_COUNT: lambda: self._partition_counts(image())[0],
            rows.OFFLINE_PARTITIONS_COUNT: lambda: self._partition_counts(image())[1],
            rows.PREFERRED_REPLICA_IMBALANCE_COUNT: lambda: self._partition_counts(image())[2],
            rows.METADATA_ERROR_COUNT: lambda: self.errors,
            rows.LAST_APPLIED_RECORD_OFFSET: lambda: image().offset,
            rows.LAST_COMMITTED_RECORD_OFFSET: lambda: image().offset,
            rows.LAST_APPLIED_RECORD_TIMESTAMP: lambda: self.last_applied_wall_ms,
            rows.LAST_APPLIED_RECORD_LAG_MS: lambda: self._lag_ms(controller),
            rows.TIMED_OUT_BROKER_HEARTBEAT_COUNT: lambda: self.sessions_timed_out,
            rows.EVENT_QUEUE_OPERATIONS_STARTED_COUNT: lambda: self.events_started,
            rows.EVENT_QUEUE_OPERATIONS_TIMED_OUT_COUNT: lambda: self.events_timed_out,
            rows.NEW_ACTIVE_CONTROLLERS_COUNT: lambda: self.leaders_seen,
            rows.IGNORED_STATIC_VOTERS: lambda: _ignores_static_voters(controller),
            rows.EVENT_QUEUE_SIZE: controller.loop.queue_size,
            rows.EVENT_QUEUE_AVG_IDLE_RATIO: self.idle_ratio,
            rows.SNAPSHOT_AGE_MS: lambda: self._clock.wall_ms() - self._snapshot[0],
            rows.SNAPSHOT_BYTES: lambda: self._snapshot[1],
        }
        show_quorum(self._registry, controller.quorum, lambda: len(image().brokers))
        self._registry.table((rows.FINALIZED_LEVEL,), lambda: levels(image().features))
        self._registry.gauge(rows.CURRENT_CONTROLLER_ID, lambda: leader_id(controller))
        for row, read in gauges.items():
            self._registry.gauge(row, read)
        self.show_brokers(controller)

    def show_brokers(self, controller: QuorumController) -> None:
        """Show one set of gauges for each registered broker."""
        brokers = set(controller.committed_image.brokers)
        for broker_id in brokers - self._shown_brokers:
            self._show_broker(controller, broker_id)
        for broker_id in self._shown_brokers - brokers:
            for row in _OF_A_BROKER:
                self._registry.remove(row, broker=broker_id)
        self._shown_brokers = brokers

    def _show_broker(self, controller: QuorumController, broker_id: int) -> None:
        def state() -> float:
            return _registration_state(controller.committed_image.brokers.get(broker_id))

        def age() -> float:
            return controller.sessions.contact_age_ms(broker_id, self._clock.monotonic_ms())

        def pending() -> float:
            channel = controller.channels.channels.get(broker_id) if controller.channels else None
            return 0 if channel is None else channel.queue_size()

        def unacknowledged() -> float:
            image = controller.committed_image
            broker = image.brokers.get(broker_id)
            if broker is None or controller.channels is None:
                return 0
            return max(0, controller.pushed_offset - controller.channels.applied_offset(broker))

        self._registry.gauge(rows.BROKER_REGISTRATION_STATE, state, broker=broker_id)
        self._registry.gauge(rows.TIME_SINCE_LAST_HEARTBEAT_RECEIVED_MS, age, broker=broker_id)
        self._registry.gauge(rows.PUSH_QUEUE_SIZE, pending, broker=broker_id)
        self._registry.gauge(rows.PUSH_LAG, unacknowledged, broker=broker_id)
        self._registry.timer(rows.PUSH_TIME_MS, broker=broker_id)
        self._registry.meter(rows.PUSH_FAILURES_PER_SEC, broker=broker_id)

    def _partition_counts(self, image: Image) -> tuple[int, int, int]:
        """Count the partitions: all, leaderless, not led by the preferred replica; counted once an image."""
        if self._counted[0] is not image:
            total = offline = imbalanced = 0
            for _, _, partition in image.each_partition():
                total += 1
                offline += partition.leader == NO_LEADER
                imbalanced += partition.leader != partition.preferred_leader
            self._counted = (image, (total, offline, imbalanced))
        return self._counted[1]

    def _lag_ms(self, controller: QuorumController) -> int:
        """Return since when a standby controller lacks what it knows to be committed."""
        if controller.is_active or controller.committed_image.offset + 1 >= controller.quorum().high_watermark:
            return 0
        return self._clock.wall_ms() - self.last_applied_wall_ms

    def idle_ratio(self) -> float:
        """Return the idle share of the event thread, over the last 30 to 60 seconds."""
        return max(0.0, 1 - self._busy.rate(self._busy_ns, self._registry.now_s()) / NS_PER_S)


def leader_id(controller: QuorumController) -> int:
    """Return the id of the active controller; -1 if it is not known."""
    leader = controller.leader.leader_id
    return -1 if leader is None else leader


def _ignores_static_voters(controller: QuorumController) -> int:
    return int(controller.quorum().kraft_version > 0 and bool(controller.config.controller_quorum_voters))


def _count(image: Image, test: Callable[[Broker], bool]) -> int:
    return sum(test(broker) for broker in image.brokers.values())


def _registration_state(broker: Broker | None) -> int:
    if broker is None:
        return _UNREGISTERED
    if broker.is_fenced:
        return _FENCED
    return _SHUTTING_DOWN if broker.in_controlled_shutdown else _ACTIVE
