"""QuorumController: the state of the cluster, and the only way to change it.

    submit(decide) ... decide(View) -> Decision -> append to the metadata log -> apply to the image
                   ... commit (fsync) -> publish the image -> offer the changes to the senders -> respond

Rules
1. `image` (appended) is ahead of `committed_image` only between an append and the commit of its group of events.
2. The log is the truth. A controller replays it at start and asks no broker. Then every registered broker has a whole
   session timeout for its first heartbeat, and receives a FULL push.
3. A quorum of controllers will replace `MetadataLog.flush`, which defines "committed", and nothing else.
4. In Python's development mode (`python -X dev`), each change is checked against the invariants of image.py before it
   is appended. A decision that breaks one fails, and writes nothing.

Threads: the event thread owns everything except `committed_image`, which is replaced whole and read by any thread.

Source: QuorumController (Kafka 4.3).
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from barnabas.common.clock import Clock
from barnabas.config.config import Config
from barnabas.controller.broker_registry import (
    HeartbeatReply,
    fence_lagging_broker,
    fence_stale_broker,
    process_heartbeat,
)
from barnabas.controller.decision import Decision, View, check_broker_epoch
from barnabas.controller.decisions.elections import (
    imbalanced_partitions,
    leaderless_partitions,
    preferred_leader_updates,
    unclean_updates,
)
from barnabas.controller.decisions.registration import Known, MissingMetadataError, register_broker, unregister_broker
from barnabas.controller.decisions.security.tokens import expired_tokens
from barnabas.controller.event_loop import Event, EventLoop, Observer, Timer
from barnabas.controller.image import Image
from barnabas.controller.image_editor import Delta, ImageEditor
from barnabas.controller.metadata.metadata_log import MetadataLog
from barnabas.controller.push.broker_channel import Connect, PushObserver
from barnabas.controller.push.channel_manager import ChannelManager
from barnabas.controller.push.requests import Sender
from barnabas.controller.sessions import Sessions
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.metadata_records import (
    MetadataRecord,
    NoOpRecord,
    RemoveDelegationTokenRecord,
    UnregisterBrokerRecord,
)
from barnabas.protocol.push_tags import applied_of

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


class ControllerObserver(Observer, PushObserver, Protocol):
    """Records what the controller does, for metrics; called by the event thread and by the senders."""

    def watch(self, controller: QuorumController) -> None:
        """Show the gauges of a controller that has started."""

    def show_brokers(self, controller: QuorumController) -> None:
        """Show one set of gauges for each registered broker."""

    def appended(self, count: int) -> None:
        """Count records appended to the metadata log."""

    def flushed(self, duration_ns: int) -> None:
        """Record how long it took to make records durable."""

    def committed(self, deltas: Iterable[Delta], image: Image) -> None:
        """Record the changes of a commit; `image` is the image after them."""

    def snapshot_written(self, size_bytes: int) -> None:
        """Record the size of a new snapshot."""

    def session_timed_out(self) -> None:
        """Count a broker that is fenced because its session timed out."""


class QuorumController:
    """See the module. `main` builds it and gives it to the APIs as part of their services."""

    def __init__(
        self,
        *,
        config: Config,
        cluster_id: str,
        metadata_log: MetadataLog,
        clock: Clock,
        connect: Connect,
        metrics: ControllerObserver,
        rng: random.Random | None = None,
        start_threads: bool = True,
        on_hopeless: Callable[[str], None] = lambda _: None,
        on_committed: Callable[[Image], None] = lambda _: None,
        checks_invariants: bool = sys.flags.dev_mode,
    ) -> None:
        self.config = config  # fixed before start
        self._on_hopeless = on_hopeless  # fixed before start; called with the reason why this process must end
        self._on_committed = on_committed  # fixed before start; called by the event thread with each new image
        self.cluster_id = cluster_id  # fixed before start
        self.node_id = int(config.node_id)  # fixed before start
        self._log = metadata_log  # owner: event thread
        self._clock = clock  # fixed before start
        self._rng = rng or random.Random()
        self._metrics = metrics  # fixed before start
        self._checks_invariants = checks_invariants  # fixed before start
        self.image = Image()  # owner: event thread; replaced whole
        self.committed_image = self.image  # replaced whole by the event thread, after each commit
        self._deltas: list[Delta] = []  # owner: event thread; changes appended but not committed
        self.sessions = Sessions(  # owner: event thread
            int(config.broker_session_timeout_ms), int(config.barnabas_metadata_lag_max_ms)
        )
        self._last_check_ms: dict[str, int] = {}  # owner: event thread; by name of the periodic timer
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

    # -- start and stop

    def start(self) -> None:
        """Replay the log, open an epoch and start the threads; raises DirectoryError if the log cannot be read."""
        self.image = self.committed_image = self._log.image()
        self.sessions.pushed_offset = self.image.offset
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

    def _first_records(self) -> list[MetadataRecord]:
        """Return the first records of an epoch: an empty log's features, or a record that makes the epoch durable."""
        if self.image.features:
            return [NoOpRecord()]
        return self._log.bootstrap_records()

    def stop(self) -> None:
        """Finish the queued events, end the threads, close the log."""
        if self._start_threads:
            self.loop.stop()
        if self.channels is not None:
            self.channels.stop()
        self._log.close()

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self._log.epoch

    # -- called by the event loop

    def prepare(self, records: Sequence[MetadataRecord]) -> Prepared:
        """Encode records as one atomic batch and apply them to a copy of the image; changes nothing.

        Raises ApiError(RECORD_LIST_TOO_LARGE), EncodeError.
        """
        batch = self._log.encode(records)
        editor = ImageEditor(self.image)
        editor.apply_all(records, self.image.offset + 1)
        image = editor.image()
        if self._checks_invariants:
            image.invariants()
            editor.delta.invariants(image)
        return Prepared(batch, len(records), image, editor.delta)

    def append(self, prepared: Prepared) -> None:
        """Append a batch and install its image; raises OSError, after which the process must end."""
        base_offset = self._log.append(prepared.batch)
        assert base_offset == self.image.offset + 1, "the image matches the end of the log"
        self.image = prepared.image
        self._deltas.append(prepared.delta)
        self._metrics.appended(prepared.record_count)

    def commit(self) -> None:
        """Make the appended records durable, publish the image and offer the changes to the senders."""
        if self.image is self.committed_image:
            return
        started_ns = self._clock.monotonic_ns()
        self._log.flush()
        self._metrics.flushed(self._clock.monotonic_ns() - started_ns)
        self.committed_image = self.image
        self._on_committed(self.committed_image)
        deltas, self._deltas = self._deltas, []
        if any(deltas):
            self.sessions.pushed_offset = self.committed_image.offset
        if self.channels is not None:
            self.channels.publish(self.committed_image, deltas)
        self._metrics.committed(deltas, self.committed_image)
        if any(name == UNCLEAN_ELECTION_KEY for delta in deltas for _, _, name in delta.configs):
            self._last_check_ms["electUnclean"] -= UNCLEAN_CHECK_INTERVAL_MS  # Why: the new setting applies at once
        if any(delta.brokers for delta in deltas):
            self._metrics.show_brokers(self)

    # -- any thread

    def submit(
        self,
        name: str,
        decide: Callable[[View], Decision[R]],
        succeeded: Callable[[R], object],
        failed: Callable[[ApiError], None],
        timeout_ms: int | None = None,
    ) -> None:
        """Submit a decision to the event thread, which calls one of the callbacks after the commit.

        `timeout_ms` bounds the time in the queue; a later start fails with REQUEST_TIMED_OUT.
        """
        deadline_ms = None if timeout_ms is None else self._clock.monotonic_ms() + max(0, timeout_ms)
        self.loop.submit(Event(name, lambda: decide(self.view()), succeeded, failed, deadline_ms))

    # -- the event thread

    def view(self) -> View:
        """Return what decisions may read now."""
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
        """Decide a heartbeat; offsets that brokers acknowledged to the senders count like reported ones.

        Raises STALE_BROKER_EPOCH, also if the broker has applied metadata that this log does not hold. The broker then
        registers again, and the refusal of that registration names the reason (registration.py).
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
        """Take over the offsets that brokers have acknowledged to the senders."""
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
        if self.config.delegation_token_secret_key is not None:
            interval_ms = int(self.config.delegation_token_expiry_check_interval_ms)
            timers.append(self._periodic("expireDelegationTokens", interval_ms, self._has_tokens, self._expire_tokens))
        return timers

    def _periodic(
        self, name: str, interval_ms: int, is_needed: Callable[[], bool], decide: Callable[[], Decision[None]]
    ) -> Timer:
        """Return a timer that calls `decide` every `interval_ms`, if `is_needed()` then."""
        self._last_check_ms[name] = self._clock.monotonic_ms()

        def run() -> Decision[None]:
            self._last_check_ms[name] = self._clock.monotonic_ms()
            decision = decide() if is_needed() else Decision([], None)
            if len(decision.records) >= MAX_ELECTIONS_PER_ROUND:
                self._last_check_ms[name] -= interval_ms  # there is more to do: continue after the queued events
            return decision

        return Timer(name, lambda: self._last_check_ms[name] + interval_ms, run)

    def _next_snapshot_ms(self) -> int | None:
        return self._clock.monotonic_ms() if self._log.is_long else None

    def _write_snapshot(self) -> Decision[None]:
        try:
            if self.image is self.committed_image:
                self._metrics.snapshot_written(self._log.write_snapshot(self.committed_image))
        except ApiError as error:  # the log raises it when its disk has failed
            raise OSError(str(error)) from error
        return Decision([], None)

    def _next_fencing_ms(self) -> int | None:
        return self.sessions.next_expiry_ms(self.image)

    def _fence_stale(self) -> Decision[int | None]:
        now_ms = self._clock.monotonic_ms()
        due_ms = self._next_fencing_ms()
        if due_ms is not None and now_ms - due_ms > self.sessions.session_timeout_ms // 2:
            # This process did not run for a while (SIGSTOP, a suspended machine), so it may have missed heartbeats.
            log.warning("The controller did not run for a while; every broker gets a new session")
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

    def _rebalance(self) -> Decision[None]:
        records = preferred_leader_updates(self.view(), MAX_ELECTIONS_PER_ROUND)
        if records:
            log.info("Electing %d preferred leaders", len(records))
        return Decision(records, None)

    def _has_leaderless(self) -> bool:
        return any(True for _ in leaderless_partitions(self.image))

    def _elect_unclean(self) -> Decision[None]:
        return Decision(unclean_updates(self.view(), MAX_ELECTIONS_PER_ROUND), None)

    def _has_tokens(self) -> bool:
        return bool(self.image.security.tokens)

    def _expire_tokens(self) -> Decision[None]:
        expired = expired_tokens(self.view(), self._clock.wall_ms(), MAX_ELECTIONS_PER_ROUND)
        for token in expired:
            log.info("Delegation token expired for token: %s for owner: %s", token.token_id, token.owner)
        return Decision([RemoveDelegationTokenRecord(token_id=token.token_id) for token in expired], None)


def inter_broker_listener(config: Config) -> str | None:
    """Return the name of the inter-broker listener, or None if the controller's config does not set it.

    With None, each broker is reached at the listener that its registration lists first.
    """
    is_set = {"inter.broker.listener.name", "security.inter.broker.protocol"} & config.originals.keys()
    return str(config.inter_broker_listener_name) if is_set else None
