"""QuorumController: the state of the cluster, and the only way to change it.

    submit(decide) ... decide(View) -> Decision -> append to the replicated log -> apply to the image
                   ... committed by the quorum -> publish the image -> offer the changes to the senders -> respond

Rules
1. `image` (appended) is ahead of `committed_image` while the quorum does not have the last records. Decisions build on
   `image`; responses, pushes, other threads and a standby controller know `committed_image` only.
2. The log is the truth. A controller replays it and asks no broker. When it becomes active, every registered broker
   has a whole session timeout for its first heartbeat, and receives a FULL push.
3. The raft epoch is the controller epoch. A controller becomes active when everything before its epoch is committed
   and replayed. The first push follows the first committed record of the epoch, so it is above all earlier pushes.
4. When it loses the lead, everything that is not committed is dropped, and answered with NOT_CONTROLLER. A later
   leader may still commit it, and then it is replayed like anything else.
5. In Python's development mode (`python -X dev`), each change is checked against the invariants of image.py before it
   is appended. A decision that breaks one fails, and writes nothing.

Threads: the event thread owns everything except `committed_image` and `leader`, which are replaced whole and read by
any thread. The raft client's thread leaves news for it (`RaftNews`).

Source: QuorumController (Kafka 4.3).
"""

from __future__ import annotations

import logging
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol, TypeVar

from barnabas.common.clock import NS_PER_MS, Clock
from barnabas.config.config import Config
from barnabas.controller.broker_registry import (
    HeartbeatReply,
    fence_lagging_broker,
    fence_stale_broker,
    process_heartbeat,
)
from barnabas.controller.decision import NO_POLICIES, Decision, View, check_broker_epoch
from barnabas.controller.decisions.elections import (
    imbalanced_partitions,
    leaderless_partitions,
    preferred_leader_updates,
    unclean_updates,
)
from barnabas.controller.decisions.registration import (
    Known,
    MissingMetadataError,
    register_broker,
    register_controller,
    unregister_broker,
)
from barnabas.controller.decisions.security.scram import missing_false_salts
from barnabas.controller.decisions.security.tokens import expired_tokens
from barnabas.controller.event_loop import Event, EventLoop, NotControllerError, Observer, Timer
from barnabas.controller.image import Image
from barnabas.controller.image_editor import Delta, ImageEditor
from barnabas.controller.metadata.local_client import ReplayedLog
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.controller.metadata.record_batches import encode_batch
from barnabas.controller.metadata.snapshot import SnapshotWriteError, image_records, unreadable
from barnabas.controller.metadata.uncommitted import Uncommitted
from barnabas.controller.policies.policies import Policies
from barnabas.controller.push.broker_channel import Connect, PushObserver
from barnabas.controller.push.channel_manager import ChannelManager
from barnabas.controller.push.requests import Sender
from barnabas.controller.raft.client.interface import CommittedBatch, LeaderAndEpoch, LoadedSnapshot, RaftListener
from barnabas.controller.raft.client.status import RaftStatus
from barnabas.controller.sessions import Sessions
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.k70_controller_registration import ControllerRegistrationRequest
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
SHUTDOWN_TIMEOUT_MS: Final = 1_000
SNAPSHOT_RETRY_MS: Final = 60_000
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


class ReplicatedLog(Protocol):
    """The part of a RaftClient (controller/raft/client/interface.py) that the controller uses."""

    def register(self, listener: RaftListener) -> None:
        """Let a listener have everything that is committed."""

    def start(self) -> None:
        """Begin to replay and to take part in elections."""

    def append(self, epoch: int, batch: bytearray) -> int:
        """Append a batch; return the offset of its last record."""

    def holds(self, offset: int, epoch: int) -> bool:
        """Return whether the log has the record of `epoch` at `offset`."""

    def create_snapshot(self, end_offset: int, records: Iterable[MetadataRecord], epoch: int) -> int | None:
        """Write a snapshot of everything below `end_offset`; return its size. Raises SnapshotWriteError, OSError."""

    def status(self) -> RaftStatus:
        """Return what this replica knows of the quorum; any thread."""

    def shutdown(self, timeout_ms: int) -> None:
        """Give up the lead and end."""


class RaftNews:
    """Hands what the log reports to the event thread; see RaftListener."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller  # fixed before start

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Take committed batches."""
        self._controller.loop.call(lambda: self._controller.take_committed(batches))

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Begin again with a snapshot."""
        self._controller.loop.call(lambda: self._controller.load(snapshot))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Become active or standby."""
        self._controller.loop.call(lambda: self._controller.take_leader(leader))

    def begin_shutdown(self) -> None:
        """Nothing else follows."""


class ControllerObserver(Observer, PushObserver, Protocol):
    """Records what the controller does, for metrics; called by the event thread and by the senders."""

    def watch(self, controller: QuorumController) -> None:
        """Show the gauges of a controller that has started."""

    def show_brokers(self, controller: QuorumController) -> None:
        """Show one set of gauges for each registered broker."""

    def appended(self, count: int) -> None:
        """Count records appended to the metadata log."""

    def commit_took(self, duration_ns: int) -> None:
        """Record the time from a group of appends to its commit."""

    def leader_changed(self) -> None:
        """Count a new active controller, this one or another."""

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
        raft: ReplicatedLog,
        bootstrap: Callable[[], list[MetadataRecord]],
        clock: Clock,
        connect: Connect,
        metrics: ControllerObserver,
        rng: random.Random | None = None,
        policies: Policies = NO_POLICIES,
        start_threads: bool = True,
        on_hopeless: Callable[[str], None] = lambda _: None,
        on_committed: Callable[[Image], None] = lambda _: None,
        checks_invariants: bool = sys.flags.dev_mode,
        moved_clock: Clock | None = None,
        flush: Callable[[], object] = lambda: None,
        registration: ControllerRegistrationRequest | None = None,
        max_idle_ms: int = 0,
    ) -> None:
        """`bootstrap` returns the first records of an empty log; `flush` is called after each group of appends.

        `registration` is that of this process. The active controller writes a record at the latest `max_idle_ms` after
        the last one; 0 for never.
        """
        self.config = config  # fixed before start
        self._on_hopeless = on_hopeless  # fixed before start; called with the reason why this process must end
        self._on_committed = on_committed  # fixed before start; called by the event thread with each new image
        self.cluster_id = cluster_id  # fixed before start
        self.node_id = int(config.node_id)  # fixed before start
        self._raft = raft  # fixed before start
        self._bootstrap = bootstrap  # fixed before start
        self._flush = flush  # fixed before start
        self.registration = registration  # fixed before start
        self._clock = clock  # fixed before start
        self._moved_clock = clock if moved_clock is None else moved_clock  # fixed before start; of what expires
        self._rng = rng or random.Random()
        self._policies = policies  # fixed before start
        self._metrics = metrics  # fixed before start
        self._checks_invariants = checks_invariants  # fixed before start
        self.leader = LeaderAndEpoch(None, 0)  # replaced whole by the event thread
        self.is_active = False  # owner: event thread; any thread reads it
        self.active_since_ms: int | None = None  # owner: event thread; wall clock, any thread reads it
        self.image = Image()  # owner: event thread; replaced whole
        self.committed_image = self.image  # replaced whole by the event thread, after each commit
        self._committed_epoch = -1  # owner: event thread; of the last committed record
        self._uncommitted = Uncommitted()  # owner: event thread
        self._is_flushed = True  # owner: event thread
        self._groups: deque[tuple[int, int]] = deque()  # owner: event thread; uncommitted: (last offset, time in ns)
        self._log_bytes = 0  # owner: event thread; of the log that no snapshot replaces
        self._snapshot_bytes = int(config.metadata_log_max_record_bytes_between_snapshots)  # fixed before start
        self._snapshot_interval_ms = int(config.metadata_log_max_snapshot_interval_ms)  # fixed before start; 0: never
        self._last_snapshot_ms = clock.monotonic_ms()  # owner: event thread
        self._no_snapshot_before_ms = 0  # owner: event thread; after one that could not be written
        self._max_idle_ms = max_idle_ms  # fixed before start
        self._last_append_ms = clock.monotonic_ms()  # owner: event thread
        self.sessions = Sessions(  # owner: event thread
            int(config.broker_session_timeout_ms), int(config.barnabas_metadata_lag_max_ms)
        )
        self._last_check_ms: dict[str, int] = {}  # owner: event thread; by name of the periodic timer
        self._connect = connect  # fixed before start
        self._start_threads = start_threads  # fixed before start
        self.channels: ChannelManager | None = None  # replaced by the event thread; None while nothing is pushed
        self._retired: list[ChannelManager] = []  # owner: event thread; of earlier epochs, their threads may still end
        self.loop = EventLoop(
            name=f"quorum-controller-{self.node_id}-event-handler",
            clock=clock,
            machine=self,
            observer=metrics,
            timers=self._timers(),
        )

    # -- start and stop

    def start(self) -> None:
        """Replay the log and start the threads; raises DirectoryError if the log cannot be read."""
        self._raft.register(RaftNews(self))
        self._raft.start()
        self.loop.run_calls()
        self._metrics.watch(self)
        if self._start_threads:
            self.loop.start()

    def stop(self) -> None:
        """Finish the queued events, end the threads, close the log."""
        if self._start_threads:
            self.loop.stop()
        for manager in (*self._retired, self.channels):
            if manager is not None:
                manager.stop()
        try:
            self._raft.shutdown(SHUTDOWN_TIMEOUT_MS)
        except ApiError as error:
            # Why no more: everything answered is flushed, and the next start recovers a log that was not closed.
            log.error("The metadata log could not be closed: %s", error)

    @property
    def pushed_offset(self) -> int:
        """The offset of the last committed record that is pushed; any thread.

        Those after it are of no use to brokers: of the quorum, of producer ids, and those that change nothing.
        """
        return self.sessions.pushed_offset

    @property
    def epoch(self) -> int:
        """The controller epoch that this controller knows."""
        return self.leader.epoch

    # -- called by the event loop

    def prepare(self, records: Sequence[MetadataRecord]) -> Prepared:
        """Encode records as one atomic batch and apply them to a copy of the image; changes nothing.

        Raises ApiError(RECORD_LIST_TOO_LARGE), EncodeError.
        """
        batch = encode_batch(records, self._clock.wall_ms())
        editor = ImageEditor(self.image)
        editor.apply_all(records, self.image.offset + 1)
        image = editor.image()
        if self._checks_invariants:
            image.invariants()
            editor.delta.invariants(image)
        return Prepared(batch, len(records), image, editor.delta)

    def append(self, prepared: Prepared) -> None:
        """Append a batch and install its image.

        Raises NotControllerError. Any other error ends the process: OSError, ApiError(KAFKA_STORAGE_ERROR).
        """
        try:
            last_offset = self._raft.append(self.leader.epoch, prepared.batch)
        except ApiError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise NotControllerError(str(error)) from error
            raise
        image = prepared.image
        assert last_offset >= image.offset, "the image does not pass the end of the log"
        if last_offset > image.offset:  # control records of the quorum lie between
            image = replace(image, offset=last_offset)
        self.image = image
        self._uncommitted.append(image, prepared.delta)
        self._last_append_ms = self._clock.monotonic_ms()
        self._is_flushed = False
        self._metrics.appended(prepared.record_count)

    def flush(self) -> None:
        """Let the appended records be committed."""
        if self._is_flushed:
            return
        self._is_flushed = True
        self._groups.append((self.image.offset, self._clock.monotonic_ns()))
        self._flush()

    @property
    def appended_offset(self) -> int:
        """The offset of the last record that a decision has seen."""
        return self.image.offset

    @property
    def committed_offset(self) -> int:
        """The offset of the last committed record."""
        return self.committed_image.offset

    # -- news of the log, on the event thread

    def take_committed(self, batches: Sequence[CommittedBatch]) -> None:
        """Publish what the quorum has; a standby controller replays it first."""
        if self.is_active and any(batch.epoch != self.leader.epoch for batch in batches):
            self._renounce(LeaderAndEpoch(None, self.leader.epoch))  # another leader wrote them
        last = batches[-1]
        self._log_bytes += sum(batch.size_in_bytes for batch in batches)
        if self.is_active:
            image, deltas = self._uncommitted.take(last.last_offset)
            image = self.committed_image if image is None else image
            if any(batch.is_control for batch in batches) and self.channels is not None:
                deltas = [*deltas, Delta(has_features=True)]  # perhaps another kraft.version
        else:
            image, deltas = self._replayed(batches)
        if image.offset < last.last_offset:  # the rest are control records
            image = replace(image, offset=last.last_offset)
        if not self._uncommitted:
            self.image = image
        while self._groups and self._groups[0][0] <= last.last_offset:
            self._metrics.commit_took(self._clock.monotonic_ns() - self._groups.popleft()[1])
        self._committed_epoch = last.epoch
        self._publish(image, deltas)

    def _replayed(self, batches: Sequence[CommittedBatch]) -> tuple[Image, list[Delta]]:
        """Return the image after batches of another controller; raises DirectoryError for what cannot be read."""
        editor = ImageEditor(self.committed_image)
        for batch in batches:
            try:
                editor.apply_all(batch.records(), batch.base_offset)
            except Exception as error:  # Why all: no record may end the controller without a clear error line
                raise DirectoryError(unreadable("the metadata log", batch.base_offset, error)) from error
        return editor.image(), [editor.delta]

    def _publish(self, image: Image, deltas: list[Delta]) -> None:
        """Show a committed image to other threads, and offer its changes to the senders."""
        self.committed_image = image
        self._on_committed(image)
        if self.is_active:
            if any(deltas):
                self.sessions.pushed_offset = image.offset
            if self.channels is None:
                self._start_channels()
            else:
                self.channels.publish(image, deltas)
        self._metrics.committed(deltas, image)
        if any(name == UNCLEAN_ELECTION_KEY for delta in deltas for _, _, name in delta.configs):
            self._last_check_ms["electUnclean"] -= UNCLEAN_CHECK_INTERVAL_MS  # Why: the new setting applies at once
        if any(delta.brokers for delta in deltas):
            self._metrics.show_brokers(self)

    def load(self, snapshot: LoadedSnapshot) -> None:
        """Begin again with a snapshot; raises DirectoryError if a record cannot be read."""
        self._renounce(LeaderAndEpoch(None, self.leader.epoch))
        if isinstance(snapshot, ReplayedLog):
            image, self._log_bytes = snapshot.image, snapshot.log_bytes
        else:
            image, self._log_bytes = self._image_of(snapshot), 0
        self._committed_epoch = snapshot.id.epoch
        self.image = image
        self._publish(image, [])
        self._metrics.show_brokers(self)

    def _image_of(self, snapshot: LoadedSnapshot) -> Image:
        editor = ImageEditor(Image())
        try:
            editor.apply_all(snapshot.records(), 0)
        except OSError:
            raise
        except Exception as error:  # Why all: see above
            raise DirectoryError(unreadable(snapshot.path, 0, error)) from error
        return editor.image(snapshot.id.offset - 1)

    def take_leader(self, leader: LeaderAndEpoch) -> None:
        """Become active, or standby."""
        if leader != self.leader:
            self._renounce(leader)
            if leader.leader_id is not None:
                self._metrics.leader_changed()
        self.leader = leader
        if leader.leader_id == self.node_id and not self.is_active:
            self._claim()

    def _claim(self) -> None:
        """Become the active controller: everything before this epoch is replayed (rule 3)."""
        now_ms = self._clock.monotonic_ms()
        self.is_active = True
        self.active_since_ms = self._clock.wall_ms()
        self.sessions.pushed_offset = self.image.offset
        self.sessions.start(self.image, now_ms)
        self._last_check_ms = dict.fromkeys(self._last_check_ms, now_ms)
        try:
            self._append_first_records()
        except NotControllerError as error:  # the news of the next leader is on its way
            log.info("Controller %d has lost the lead already: %s", self.node_id, error)
        if not self._uncommitted:
            self._start_channels()
        self.flush()
        log.info(
            "Controller %d is active in epoch %d: %d brokers, %d topics, next offset %d",
            self.node_id, self.epoch, len(self.image.brokers), len(self.image.topics), self.image.offset + 1,
        )  # fmt: skip

    def _append_first_records(self) -> None:
        """Append an empty log's features and this controller's registration; at least a record of this epoch."""
        if not self.image.features:
            self.append(self.prepare(self._bootstrap()))
        security = self.image.security
        secret = missing_false_salts(security) if security.credentials else []
        records = [*secret, *self._own_registration()]
        if not records and not self._uncommitted and self._committed_epoch != self.epoch:
            records = [NoOpRecord()]
        if records:
            self.append(self.prepare(records))

    def _own_registration(self) -> Sequence[MetadataRecord]:
        if self.registration is None:
            return []
        try:
            return register_controller(self.view(), self.registration).records
        except ApiError as error:  # an old metadata.version has no such record
            log.info("Controller %d is not registered: %s", self.node_id, error)
            return []

    def _kraft_version(self) -> int:
        return self._raft.status().kraft_version

    def _start_channels(self) -> None:
        """Begin to push the committed image, which has a record of this epoch."""
        listener = inter_broker_listener(self.config)
        sender = Sender(self.node_id, self.epoch, listener, self.cluster_id, self._kraft_version)
        self.channels = ChannelManager(
            sender, self._connect, observer=self._metrics, clock=self._clock, start_threads=self._start_threads
        )
        self.channels.start(self.committed_image)

    def _renounce(self, leader: LeaderAndEpoch) -> None:
        """Stop being active (rule 4); `leader` is what is known of another leader."""
        if not self.is_active:
            return
        self.is_active = False
        self.active_since_ms = None
        log.info(
            "Controller %d is no longer active: epoch %d has ended at offset %d, %s",
            self.node_id, self.epoch, self.committed_offset, leader_text(leader),
        )  # fmt: skip
        if self.channels is not None:
            self.channels.end()
            self._retired = [manager for manager in self._retired if manager.is_alive()] + [self.channels]
            self.channels = None
        self._uncommitted.drop()
        self._groups.clear()
        self.loop.fail_deferred(NotControllerError(leader_text(leader)))
        self.image = self.committed_image
        self.sessions.clear()

    # -- any thread

    def quorum(self) -> RaftStatus:
        """Return what this controller knows of the quorum."""
        return self._raft.status()

    def expire_tokens(self, then: Callable[[object], None]) -> None:
        """Remove expired delegation tokens now: their clock was moved. `then` is called once that is committed."""
        now_ms = self._moved_clock.wall_ms()
        tokens = self.committed_image.security.tokens.values()
        if self.config.delegation_token_secret_key is None or not any(token.is_expired(now_ms) for token in tokens):
            then(None)
            return
        # Why again: a decision removes some of them.
        again = Event("expireDelegationTokens", self._expire_tokens, lambda _: self.expire_tokens(then), then)
        self.loop.submit(again)

    def submit(
        self,
        name: str,
        decide: Callable[[View], Decision[R]],
        succeeded: Callable[[R], object],
        failed: Callable[[ApiError], None],
        timeout_ms: int | None = None,
    ) -> None:
        """Submit a decision to the event thread, which calls one of the callbacks after the commit.

        `timeout_ms` bounds the time in the queue; a later start fails with REQUEST_TIMED_OUT. With 0 every start is
        late, as in Kafka.
        """
        deadline_ns = None if timeout_ms is None else self._clock.monotonic_ns() + timeout_ms * NS_PER_MS
        self.loop.submit(Event(name, lambda: decide(self.view()), succeeded, failed, deadline_ns))

    def heartbeat_arrived(self, broker_id: int, broker_epoch: int) -> None:
        """Keep the session of a broker whose heartbeat is about to be submitted."""
        self.sessions.arrived(broker_id, broker_epoch, self._clock.monotonic_ms())

    # -- the event thread

    def view(self) -> View:
        """Return what decisions may read now; raises NotControllerError unless this controller is active."""
        if not self.is_active:
            raise NotControllerError(leader_text(self.leader))
        return View(self.image, self.config, self._rng, self._policies)

    def register(self, view: View, request: BrokerRegistrationRequest) -> Decision[int]:
        """Decide a registration and open its session."""
        now_ms = self._clock.monotonic_ms()
        existing = view.image.brokers.get(request.broker_id)
        known = Known(
            cluster_id=self.cluster_id,
            keeps_id=lambda broker_id: self.sessions.keeps_id(broker_id, now_ms),
            uses_address=lambda broker_id: self.sessions.uses_address(broker_id, now_ms),
            holds=lambda applied: self._raft.holds(applied.offset, applied.epoch),
        )
        try:
            decision = register_broker(view, request, known)
        except MissingMetadataError as error:
            log.error("Refused: %s. %s", error, HOW_TO_GO_ON)
            if not view.image.brokers and not view.image.topics:
                self._on_hopeless(f"this controller's metadata log is empty, but {error}. {HOW_TO_GO_ON}")
            raise
        is_new = existing is None or existing.incarnation_id != request.incarnation_id
        self.sessions.open(request.broker_id, decision.response, now_ms, is_new_incarnation=is_new)
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
        if applied is not None and not self._raft.holds(applied.offset, applied.epoch):
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
        timers.append(
            self._periodic("electUnclean", UNCLEAN_CHECK_INTERVAL_MS, self._has_leaderless, self._elect_unclean)
        )
        if self.config.delegation_token_secret_key is not None:
            interval_ms = int(self.config.delegation_token_expiry_check_interval_ms)
            timers.append(self._periodic("expireDelegationTokens", interval_ms, self._has_tokens, self._expire_tokens))
        if self._max_idle_ms:
            timers.append(Timer("writeNoOpRecord", self._next_no_op_ms, lambda: Decision([NoOpRecord()], None)))
        snapshot = Timer("generateSnapshot", self._next_snapshot_ms, self._write_snapshot)
        return [snapshot, *(self._while_active(timer) for timer in timers)]

    def _while_active(self, timer: Timer) -> Timer:
        """Return a timer that a standby controller does not have."""
        return Timer(timer.name, lambda: timer.next_due_ms() if self.is_active else None, timer.decide)

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

    def _next_no_op_ms(self) -> int:
        """Return when an idle quorum shows that it still commits (KIP-835)."""
        return self._last_append_ms + self._max_idle_ms

    def _next_snapshot_ms(self) -> int | None:
        if self._log_bytes > self._snapshot_bytes:
            return max(self._clock.monotonic_ms(), self._no_snapshot_before_ms)
        is_timed = self._log_bytes > 0 and self._snapshot_interval_ms > 0
        due_ms = self._last_snapshot_ms + self._snapshot_interval_ms
        return max(due_ms, self._no_snapshot_before_ms) if is_timed else None

    def _write_snapshot(self) -> Decision[None]:
        image = self.committed_image
        try:
            size = self._raft.create_snapshot(image.offset + 1, image_records(image), self._committed_epoch)
        except SnapshotWriteError as error:  # the log still has everything
            log.error("No snapshot, the next attempt follows in %d s: %s", SNAPSHOT_RETRY_MS // 1_000, error)
            self._metrics.event_failed()
            self._no_snapshot_before_ms = self._clock.monotonic_ms() + SNAPSHOT_RETRY_MS
            return Decision([], None)
        self._log_bytes = 0
        self._last_snapshot_ms = self._clock.monotonic_ms()
        if size is not None:
            self._metrics.snapshot_written(size)
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
        expired = expired_tokens(self.view(), self._moved_clock.wall_ms(), MAX_ELECTIONS_PER_ROUND)
        for token in expired:
            log.info("Delegation token expired for token: %s for owner: %s", token.token_id, token.owner)
        return Decision([RemoveDelegationTokenRecord(token_id=token.token_id) for token in expired], None)


def leader_text(leader: LeaderAndEpoch) -> str:
    """Return where the active controller is, for a person."""
    if leader.leader_id is None:
        return "No controller appears to be active."
    return f"The active controller appears to be node {leader.leader_id}."


def inter_broker_listener(config: Config) -> str | None:
    """Return the name of the inter-broker listener, or None if the controller's config does not set it.

    With None, each broker is reached at the listener that its registration lists first.
    """
    is_set = {"inter.broker.listener.name", "security.inter.broker.protocol"} & config.originals.keys()
    return str(config.inter_broker_listener_name) if is_set else None
