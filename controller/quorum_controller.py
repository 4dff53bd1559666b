"""QuorumController: the state of the cluster, and the only way to change it.

    submit(decide) ... decide(View) -> Decision -> append to the metadata log -> apply to the image
                   ... commit (fsync) -> the image is published -> senders are told -> the answer

Rules
1. `image` (appended) may be ahead of `committed_image` only between an append and the commit of its group.
2. The log is the truth: a controller that starts replays it and asks no broker anything; then every registered broker
   has a whole session timeout to report itself, and is told everything.
3. A quorum of controllers will replace `MetadataLog.flush` (what "committed" means) and nothing else.

Threads: the event thread owns everything but `committed_image`, which is replaced whole and read by any thread.

Source: QuorumController (Kafka 4.3).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.common.clock import Clock
from barnabas.controller.broker_registry import (
    HeartbeatReply,
    fence_lagging_broker,
    fence_stale_broker,
    process_heartbeat,
)
from barnabas.controller.channel_manager import ChannelManager, Connect
from barnabas.controller.controller_metrics import ControllerMetrics
from barnabas.controller.decision import Decision, View, check_broker_epoch
from barnabas.controller.elections import (
    imbalanced_partitions,
    leaderless_partitions,
    preferred_leader_updates,
    unclean_updates,
)
from barnabas.controller.event_loop import Event, EventLoop, Timer
from barnabas.controller.image import Delta, Image, ImageEditor
from barnabas.controller.metadata_log import MetadataLog
from barnabas.controller.push import Sender
from barnabas.controller.registration import Known, MissingMetadataError, register_broker, unregister_broker
from barnabas.controller.sessions import Sessions
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.metadata_records import NoOpRecord, UnregisterBrokerRecord
from barnabas.protocol.registration_tags import applied_of

log = logging.getLogger("barnabas.controller")

R = TypeVar("R")

MAX_ELECTIONS_PER_ROUND: Final = 1_000
UNCLEAN_CHECK_INTERVAL_MS: Final = 300_000
UNCLEAN_ELECTION_KEY: Final = "unclean.leader.election.enable"

HOW_TO_GO_ON: Final = (
    "Nothing is lost: the brokers keep their data. Give this controller its own metadata log back, or stop it and "
    "rebuild the log with: barnabas controller recover FILE --from-brokers HOST:PORT,..."
)


class Prepared(NamedTuple):
    """Records that can be appended: their batch, and the image after them."""

    batch: bytearray
    record_count: int
    image: Image
    delta: Delta


class QuorumController:
    """See the module; built by `main`, given to the APIs as part of their services."""

    def __init__(
        self,
        *,
        config: Any,
        cluster_id: str,
        metadata_log: MetadataLog,
        clock: Clock,
        connect: Connect,
        metrics: ControllerMetrics,
        rng: random.Random | None = None,
        start_threads: bool = True,
        on_hopeless: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.config = config  # fixed before start
        self._on_hopeless = on_hopeless  # fixed before start; told why this process must end
        self.cluster_id = cluster_id  # fixed before start
        self.node_id = int(config.node_id)  # fixed before start
        self._log = metadata_log  # owner: event thread
        self._clock = clock  # fixed before start
        self._rng = rng or random.Random()
        self._metrics = metrics
        self.image = Image()  # owner: event thread; replaced whole
        self.committed_image = self.image  # replaced whole by the event thread, after each commit
        self._deltas: list[Delta] = []  # owner: event thread; appended but not committed
        self.sessions = Sessions(  # owner: event thread
            int(config.broker_session_timeout_ms), int(config.barnabas_metadata_lag_max_ms)
        )
        self._last_check_ms: dict[str, int] = {}  # owner: event thread
        self._connect = connect  # fixed before start
        self._start_threads = start_threads  # fixed before start
        self.channels: ChannelManager | None = None  # fixed by start()
        self.loop = EventLoop(
            name=f"quorum-controller-{self.node_id}-event-handler",
            clock=clock,
            machine=self,
            observer=metrics,
            timers=self._timers(),
        )

    # -- life

    def start(self) -> None:
        """Replay the log, open an epoch, and begin to work; raises DirectoryError if it cannot be understood."""
        self.image = self.committed_image = self._log.image()
        self.sessions.told_offset = self.image.offset
        self.sessions.start(self.image, self._clock.monotonic_ms())
        self._log.open_epoch()
        self.append(self.prepare(self._first_records()))
        sender = Sender(self.node_id, self._log.epoch, inter_broker_listener(self.config), self.cluster_id)
        self.channels = ChannelManager(
            sender,
            self._connect,
            observer=self._metrics,
            clock=self._clock,
            start_threads=self._start_threads,
        )
        self.commit()
        self.channels.start(self.committed_image)
        self._metrics.watch(self)
        log.info(
            "Controller %d is active in epoch %d: %d brokers, %d topics, next offset %d",
            self.node_id, self._log.epoch, len(self.image.brokers), len(self.image.topics), self.image.offset + 1,
        )  # fmt: skip
        if self._start_threads:
            self.loop.start()

    def _first_records(self) -> list[Any]:
        """What a new epoch writes: an empty log's features, or a record that makes the epoch durable."""
        if self.image.features:
            return [NoOpRecord()]
        return self._log.bootstrap_records()

    def stop(self) -> None:
        """Answer what is queued, end the threads, close the log."""
        if self._start_threads:
            self.loop.stop()
        if self.channels is not None:
            self.channels.stop()
        self._log.close()

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self._log.epoch

    # -- what the loop drives

    def prepare(self, records: Sequence[Any]) -> Prepared:
        """Encode records as one atomic batch and apply them to a copy of the image; changes nothing.

        Raises ApiError(RECORD_LIST_TOO_LARGE), EncodeError.
        """
        batch = self._log.encode(records)
        editor = ImageEditor(self.image)
        editor.apply_all(records, self.image.offset + 1)
        return Prepared(batch, len(records), editor.image(), editor.delta)

    def append(self, prepared: Prepared) -> None:
        """Append a batch and take over its image; raises OSError, after which the process must end."""
        base_offset = self._log.append(prepared.batch)
        assert base_offset == self.image.offset + 1, "the image and the log are one"
        self.image = prepared.image
        self._deltas.append(prepared.delta)
        self._metrics.appended(prepared.record_count)

    def commit(self) -> None:
        """Make what was appended durable, publish it, tell the senders."""
        if self.image is self.committed_image:
            return
        started_ns = self._clock.monotonic_ns()
        self._log.flush()
        self._metrics.flushed(self._clock.monotonic_ns() - started_ns)
        self.committed_image = self.image
        deltas, self._deltas = self._deltas, []
        if any(deltas):
            self.sessions.told_offset = self.committed_image.offset
        if self.channels is not None:
            self.channels.publish(self.committed_image, deltas)
        self._metrics.committed(deltas, self.committed_image)
        if any(name == UNCLEAN_ELECTION_KEY for delta in deltas for _, _, name in delta.configs):
            self._last_check_ms["electUnclean"] -= UNCLEAN_CHECK_INTERVAL_MS  # Why: who allows it wants it now
        if any(delta.brokers for delta in deltas):
            self._metrics.show_brokers(self)

    # -- any thread

    def submit(
        self,
        name: str,
        decide: Callable[[View], Decision[R]],
        succeeded: Callable[[R], None],
        failed: Callable[[ApiError], None],
        timeout_ms: int | None = None,
    ) -> None:
        """Have something decided; one of the callbacks is called on the event thread once it is committed."""
        deadline_ms = None if timeout_ms is None else self._clock.monotonic_ms() + max(0, timeout_ms)
        self.loop.submit(Event(name, lambda: decide(self.view()), succeeded, failed, deadline_ms))

    # -- the event thread

    def view(self) -> View:
        """What decisions read."""
        return View(self.image, self.config, self._rng)

    def register(self, view: View, request: BrokerRegistrationRequest) -> Decision[int]:
        """Decide a registration and open its session."""
        now_ms = self._clock.monotonic_ms()
        existing = view.image.brokers.get(request.broker_id)
        known = Known(
            cluster_id=self.cluster_id,
            has_valid_session=lambda broker: self.sessions.is_valid(broker, now_ms),
            uses_address=lambda broker_id: self.sessions.uses_address(broker_id, now_ms),
            holds=lambda applied: self._log.holds(applied.offset, applied.epoch),
        )
        try:
            decision = register_broker(view, request, known)
        except MissingMetadataError as error:
            log.error("Refused: %s. %s", error, HOW_TO_GO_ON)
            if not view.image.brokers and not view.image.topics:
                self._on_hopeless(f"this controller's metadata log is empty, but {error}. {HOW_TO_GO_ON}")
            raise
        is_new = existing is None or existing.incarnation_id != request.incarnation_id
        self.sessions.open(request.broker_id, now_ms, is_new_incarnation=is_new)
        for record in decision.records:
            if isinstance(record, UnregisterBrokerRecord):
                self.sessions.close(record.broker_id)
        return decision

    def heartbeat(self, view: View, request: BrokerHeartbeatRequest) -> Decision[HeartbeatReply]:
        """Decide a heartbeat; what all brokers acknowledged to the senders counts as reported.

        Raises STALE_BROKER_EPOCH, also if the broker has applied what this log does not hold: its registration is then
        refused, in a line that says why (registration.py).
        """
        check_broker_epoch(view.image, request.broker_id, request.broker_epoch)
        applied = applied_of(request)
        if applied is not None and not self._log.holds(applied.offset, applied.epoch):
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {request.broker_id} has applied metadata offset {applied.offset}, which this controller's "
                "log does not hold",
            )
        self._note_applied()
        return process_heartbeat(view, self.sessions, request, self._clock.monotonic_ms())

    def _note_applied(self) -> None:
        """Take in what brokers acknowledged to the senders."""
        if self.channels is not None:
            for broker in self.image.brokers.values():
                self.sessions.note_applied(broker.id, self.channels.applied_offset(broker))

    def unregister(self, view: View, broker_id: int) -> Decision[None]:
        """Decide an unregistration and close the session."""
        decision = unregister_broker(view, broker_id)
        self.sessions.close(broker_id)
        return decision

    def _timers(self) -> list[Timer]:
        timers = [Timer("maybeFenceStaleBroker", self._next_fencing_ms, self._fence_stale)]
        if self.config.auto_leader_rebalance_enable:
            interval_ms = int(self.config.leader_imbalance_check_interval_seconds) * 1000
            timers.append(self._periodic("electPreferred", interval_ms, self._has_imbalance, self._rebalance))
        timers.append(Timer("generateSnapshot", self._next_snapshot_ms, self._write_snapshot))
        timers.append(
            self._periodic("electUnclean", UNCLEAN_CHECK_INTERVAL_MS, self._has_leaderless, self._elect_unclean)
        )
        return timers

    def _periodic(
        self, name: str, interval_ms: int, is_needed: Callable[[], bool], decide: Callable[[], Decision[Any]]
    ) -> Timer:
        """A timer every `interval_ms`, which only does something while it is needed."""
        self._last_check_ms[name] = self._clock.monotonic_ms()

        def run() -> Decision[Any]:
            self._last_check_ms[name] = self._clock.monotonic_ms()
            decision = decide() if is_needed() else Decision([], None)
            if len(decision.records) >= MAX_ELECTIONS_PER_ROUND:
                self._last_check_ms[name] -= interval_ms  # there is more to do: go on after what else has come
            return decision

        return Timer(name, lambda: self._last_check_ms[name] + interval_ms, run)

    def _next_snapshot_ms(self) -> int | None:
        return self._clock.monotonic_ms() if self._log.is_long else None

    def _write_snapshot(self) -> Decision[Any]:
        try:
            if self.image is self.committed_image:
                self._metrics.snapshot_written(self._log.write_snapshot(self.committed_image))
        except ApiError as error:  # of the log: its disk failed
            raise OSError(str(error)) from error
        return Decision([], None)

    def _next_fencing_ms(self) -> int | None:
        return self.sessions.next_expiry_ms(self.image)

    def _fence_stale(self) -> Decision[Any]:
        now_ms = self._clock.monotonic_ms()
        due_ms = self._next_fencing_ms()
        if due_ms is not None and now_ms - due_ms > self.sessions.session_timeout_ms // 2:
            # We slept ourselves (a stopped process, a suspended machine): the silence may be ours, not the brokers'.
            log.warning("The controller stood still; every broker gets a new session")
            self.sessions.start(self.image, now_ms)
            return Decision([], None)
        decision = fence_stale_broker(self.view(), self.sessions, now_ms)
        if decision.response is not None:
            self._metrics.session_timed_out()
            return decision
        self._note_applied()
        return fence_lagging_broker(self.view(), self.sessions, now_ms)

    def _has_imbalance(self) -> bool:
        return any(True for _ in imbalanced_partitions(self.image))

    def _rebalance(self) -> Decision[Any]:
        records = preferred_leader_updates(self.view(), MAX_ELECTIONS_PER_ROUND)
        if records:
            log.info("Electing %d preferred leaders", len(records))
        return Decision(records, None)

    def _has_leaderless(self) -> bool:
        return any(True for _ in leaderless_partitions(self.image))

    def _elect_unclean(self) -> Decision[Any]:
        return Decision(unclean_updates(self.view(), MAX_ELECTIONS_PER_ROUND), None)


def inter_broker_listener(config: Any) -> str | None:
    """The name of the listener on which brokers talk to each other if the controller's config says it; else None: the
    one that each broker names first in its registration.
    """
    is_said = {"inter.broker.listener.name", "security.inter.broker.protocol"} & config.originals.keys()
    return str(config.inter_broker_listener_name) if is_said else None
