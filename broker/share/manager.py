"""SharePartitionManager: the share partitions that this broker leads, and the sessions of the members that fetch them.

Rules
1. A share partition is made by the first fetch of a group, on the leader of its topic partition, and reads its state
   before it delivers anything.
2. It is dropped when this broker no longer leads the partition, when its state is fenced or gone, when it cannot be
   loaded, and when the group has no session here any more. The next fetch makes it again.
3. A share partition of an idle group is dropped only after its last write has ended, so that the state read later
   includes that write.
4. At most LED_MAX share partitions are in memory: a fetch may name groups that do not exist, and while no coordinator
   answers, each of them stays for some seconds. A fetch of another one gets UNKNOWN_SERVER_ERROR.

Threads: any handler, the persister's, the processors' (`disconnected`), the reaper of the share fetch purgatory, the
pushes' (`on_resignation`). `_lock` guards the tables, and is a leaf.
Source: Kafka's SharePartitionManager, SharePartitionCache (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from barnabas.broker.coordinators.share_state.values import SharePartitionKey
from barnabas.broker.requests.gathering import Gathering
from barnabas.broker.share.led_partition import DONE, LedSharePartition, Outcome, Parts
from barnabas.broker.share.sensors import GroupSensors, ShareSensors
from barnabas.broker.share.sessions import Member, Place, ShareSessions
from barnabas.broker.share.settings import ShareSettings
from barnabas.broker.share.start_offset import start_offset
from barnabas.broker.share.wakes import Wakes
from barnabas.broker.timing_wheel import CallbackTask
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.meters import Gauge
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.share_state.values import Persister
    from barnabas.broker.purgatory import Purgatory
    from barnabas.broker.replication.hosted_partitions import HostedPartitions
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.requests.request import ClientConnection
    from barnabas.broker.settings.dynamic_config import DynamicConfig
    from barnabas.broker.share.partition.values import Acknowledgement
    from barnabas.common.clock import Clock
    from barnabas.config import Config
    from barnabas.metrics.registry import Instrument, Labels, Registry

log = logging.getLogger("barnabas.share")

UNKNOWN: Final = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
#: As many as twelve groups have that read 4,000 partitions each. One takes 4 to 14 kB.
LED_MAX: Final = 50_000
#: When the share partitions of a group without sessions are looked at again (rule 3).
IDLE_MS: Final = 1000
Outcomes = dict[Place, Outcome]
CLOSING: Final = "share"  # among what follows a connection


class SharePartitionManager:
    """See the module."""

    def __init__(
        self,
        *,
        config: Config,
        clock: Clock,
        registry: Registry,
        dynamic_config: DynamicConfig,
        hosted: HostedPartitions,
        purgatory: Purgatory,
        persister: Persister,
    ) -> None:
        # Fixed before start.
        self._clock = clock
        self._hosted = hosted
        self.purgatory: Final = purgatory
        self.settings: Final = ShareSettings(dynamic_config)
        self.sensors: Final = ShareSensors(registry)
        self.sessions: Final = ShareSessions(registry, config.group_share_max_share_sessions, hosted.count)
        self.wakes: Final = Wakes(purgatory)
        self._parts = Parts(persister, self.settings, purgatory.timer, self.wakes, self.sensors)
        self._lock = threading.Lock()
        self._led: dict[SharePartitionKey, LedSharePartition] = {}  # guarded by: _lock (lookups need none)
        self._by_tp: dict[TopicPartition, set[SharePartitionKey]] = {}  # guarded by: _lock
        self._by_group: dict[str, set[SharePartitionKey]] = {}  # guarded by: _lock
        self._is_full = False  # guarded by: _lock; that is in the log (rule 4)
        self._group_sensors: dict[str, GroupSensors] = {}  # guarded by: _lock; of the groups in _by_group
        self._idle: set[str] = set()  # guarded by: _lock; groups that a timer task looks at (rule 3)
        registry.source(self._instruments)

    # Share partitions

    def find(self, group_id: str, place: Place) -> LedSharePartition | None:
        """Return a share partition that is in memory."""
        return self._led.get(SharePartitionKey(group_id, place.topic_id, place.partition))

    def get(self, group_id: str, topic: str, place: Place) -> LedSharePartition:
        """Return a share partition, whose state is being read if it was not in memory.

        Raises ApiError if this broker does not lead the partition.
        """
        key = SharePartitionKey(group_id, place.topic_id, place.partition)
        found = self._led.get(key)
        if found is not None:
            return found
        tp = TopicPartition(topic, place.partition)
        partition = self._require_leader(tp, place.topic_id)
        epoch = partition.leader_epoch
        find_start = partial(self._start, group_id, tp, epoch)
        with self._lock:
            if len(self._led) >= LED_MAX and key not in self._led:
                self._refuse_locked()
            of_group = self._group_sensors.get(group_id)
            if of_group is None:
                of_group = self._group_sensors[group_id] = self.sensors.of_group()
            sensors = self.sensors.of_partition(of_group)
            made = LedSharePartition(key, tp, epoch, self._parts, sensors, find_start, self._drop)
            found = self._led.setdefault(key, made)
            self._by_tp.setdefault(tp, set()).add(key)
            self._by_group.setdefault(group_id, set()).add(key)
        try:
            # Why again: a resignation just before did not find the share partition in the table.
            self._require_leader(tp, place.topic_id)
        except ApiError as error:
            self._end(found, error.code)
            raise
        if not self.sessions.has_group(group_id):  # its connection was closed before the table had this
            self._look_again(group_id)
        found.load()
        return found

    def _refuse_locked(self) -> NoReturn:
        """Refuse another share partition, and note in the log that it begins (rule 4)."""
        if not self._is_full:
            self._is_full = True
            log.error("no more share partitions are delivered: %d are in memory", len(self._led))
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _require_leader(self, tp: TopicPartition, topic_id: bytes) -> Partition:
        partition = self._hosted.get(tp)
        partition.require_topic_id(topic_id)
        partition.leader_log()
        return partition

    def _start(self, group_id: str, tp: TopicPartition, leader_epoch: int) -> int:
        """Return where a share partition begins that has no start offset."""
        strategy = self.settings.of(group_id).offset_reset
        return start_offset(self._hosted.get(tp), leader_epoch, strategy, self._clock.wall_ms())

    def led(self) -> list[LedSharePartition]:
        """Return all share partitions in memory."""
        with self._lock:
            return list(self._led.values())

    def _drop(self, led: LedSharePartition) -> None:
        """Forget a share partition."""
        with self._lock:
            if self._led.get(led.key) is not led:
                return
            del self._led[led.key]
            self._is_full = False
            keys = self._by_tp[led.tp]
            keys.discard(led.key)
            if not keys:
                del self._by_tp[led.tp]
            of_group = self._by_group[led.key.group_id]
            of_group.discard(led.key)
            if not of_group:
                del self._by_group[led.key.group_id]
                self._group_sensors.pop(led.key.group_id, None)

    def _end(self, led: LedSharePartition, error: ErrorCode) -> None:
        """Fence a share partition, forget it, and answer those who wait for it."""
        led.fence(error)
        self._drop(led)
        led.wake()

    # Leadership (rule 2)

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Do nothing: the first fetch makes a share partition."""

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        """End the share partitions of a partition that this broker leads no more."""
        with self._lock:
            gone = [self._led[key] for key in self._by_tp.get(tp, ())]
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if leader_epoch is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        for led in gone:
            self._end(led, error)

    # Acknowledging

    def acknowledge(
        self,
        member: Member,
        acknowledgements: dict[Place, Sequence[Acknowledgement]],
        reply: Callable[[Outcomes], object],
    ) -> None:
        """Apply a member's acknowledgements; `reply` is called once with the outcome of each partition."""
        gathering: Gathering[Place, Outcome] = Gathering(len(acknowledgements), reply)
        for place, wanted in acknowledgements.items():
            led = self.find(member.group_id, place)
            if led is None:
                gathering.add(place, UNKNOWN)
            else:
                led.acknowledge(member.member_id, wanted, partial(self._acknowledged, gathering, place, led, wanted))

    def _acknowledged(
        self,
        gathering: Gathering[Place, Outcome],
        place: Place,
        led: LedSharePartition,
        wanted: Sequence[Acknowledgement],
        outcome: Outcome,
    ) -> None:
        if outcome is DONE:
            self.sensors.acknowledged(wanted)
        gathering.add(place, outcome)
        self._drop_if_idle(led)

    # Sessions

    def end_session(self, member: Member) -> None:
        """End a member's session: what it holds is released.

        Why no share partition is dropped yet: the member may begin again over its connection.
        """
        places = self.sessions.end(member)
        if places is not None:
            self._release(member, places, lambda _led, _outcome: None)

    def follow_connection(self, member: Member, connection: ClientConnection | None, connection_id: str) -> None:
        """End the session with its connection."""
        if connection is None:
            return
        former = connection.on_closed.get(CLOSING)
        connection.on_closed[CLOSING] = closing = partial(self.disconnected, member, connection_id)
        # Why: else a client could fill the cache over one connection, with sessions that do not end with it.
        if isinstance(former, partial) and former.args != closing.args:
            former()
        if connection.is_closed:  # perhaps before that was set
            self.disconnected(member, connection_id)

    def disconnected(self, member: Member, connection_id: str) -> None:
        """Note that the connection of a session was closed."""
        places = self.sessions.disconnected(member, connection_id)
        if places is not None or not self.sessions.has_group(member.group_id):
            # Why not here: this is a network thread, and a member may hold records of many partitions.
            self.purgatory.timer.add(CallbackTask(1, partial(self._after_disconnect, member, places or ())))

    def _after_disconnect(self, member: Member, places: Sequence[Place]) -> None:
        """Release what a member holds; on the reaper's thread."""
        self._release(member, places, self._released)
        self._drop_idle(member.group_id)

    def _drop_idle(self, group_id: str) -> None:
        """Drop the share partitions of a group without sessions; those in use are looked at again later (rule 3)."""
        if self.sessions.has_group(group_id):
            return
        with self._lock:
            found = [self._led[key] for key in self._by_group.get(group_id, ())]
        for led in found:
            self._drop_if_idle(led)
        if group_id in self._by_group:
            self._look_again(group_id)

    def _look_again(self, group_id: str) -> None:
        with self._lock:
            if group_id in self._idle:
                return
            self._idle.add(group_id)
        self.purgatory.timer.add(CallbackTask(IDLE_MS, partial(self._look, group_id)))

    def _look(self, group_id: str) -> None:
        """Look again; on the reaper's thread."""
        with self._lock:
            self._idle.discard(group_id)
        self._drop_idle(group_id)

    def _release(
        self, member: Member, places: Sequence[Place], then: Callable[[LedSharePartition, Outcome], None]
    ) -> None:
        for place in places:
            led = self.find(member.group_id, place)
            if led is not None:
                led.release(member.member_id, partial(then, led))

    def _released(self, led: LedSharePartition, _outcome: Outcome) -> None:
        self._drop_if_idle(led)

    def _drop_if_idle(self, led: LedSharePartition) -> None:
        """Drop a share partition of a group without sessions (rule 3)."""
        if not self.sessions.has_group(led.key.group_id) and led.fence_if_idle(ErrorCode.LEADER_NOT_AVAILABLE):
            self._drop(led)
            led.wake()

    # Metrics

    def _instruments(self) -> Iterator[tuple[catalogue.Metric, Labels, Instrument]]:
        for led in self.led():
            labels = (led.key.group_id, led.tp.topic, str(led.tp.partition))
            yield catalogue.SHARE_IN_FLIGHT_MESSAGES, labels, Gauge(partial(getattr, led, "in_flight_count"))
            yield catalogue.SHARE_IN_FLIGHT_BATCHES, labels, Gauge(partial(getattr, led, "batch_count"))
            yield catalogue.SHARE_LOCK_TIMEOUTS_PER_SEC, labels, led.sensors.lock_timeouts
        with self._lock:
            groups = list(self._group_sensors.items())
        for group_id, sensors in groups:
            yield from sensors.instruments(group_id)
