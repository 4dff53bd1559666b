"""RaftDriver: a replica of the quorum in a process. It is the RaftClient of the active controller (interface.py).

Rules
1. The replica is guarded by a lock, and each input is one call under it. The effects go to one queue, in the order of
   the inputs. The raft thread alone carries them out, so a change is durable before a message reports it.
2. One flush serves all inputs whose effects were queued meanwhile: messages wait for it, in their order. Every other
   change of the disk comes after the messages before it.
3. An error of the disk ends the thread, and so the process: the replica may have promised something that the disk does
   not have. (A snapshot that cannot be written promises nothing: `create_snapshot` raises, and the log goes on.)
4. A listener has every committed batch once (interface.py). It is called by the raft thread.

Threads: any for the methods of RaftClient; `kafka-<id>-raft-io-thread` runs `run`; tests call `step`.

Source: KafkaRaftClient, KafkaRaftClientDriver (Kafka 4.3).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final, Protocol

from barnabas.common.clock import Clock
from barnabas.common.threads import ServiceThread
from barnabas.controller.raft import effects as fx
from barnabas.controller.raft.client.interface import CommittedBatch, LeaderAndEpoch, RaftListener
from barnabas.controller.raft.client.notes import NoteLog
from barnabas.controller.raft.client.raft_log import RaftLog, decode_fetched
from barnabas.controller.raft.client.status import Entry, History, RaftStatus, status_of
from barnabas.controller.raft.quorum import FOREVER
from barnabas.controller.raft.raft_config import RaftConfig
from barnabas.controller.raft.replica import RaftReplica
from barnabas.controller.raft.roles import Resigned
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k01_fetch import FetchResponse
from barnabas.protocol.messages.k55_describe_quorum import DescribeQuorumResponse
from barnabas.protocol.messages.k59_fetch_snapshot import FetchSnapshotResponse
from barnabas.protocol.metadata_records import MetadataRecord
from barnabas.protocol.records.batch import read_header, set_offset_and_epoch
from barnabas.protocol.schema import Message

log = logging.getLogger("barnabas.controller.raft")

WAIT_MS_MAX: Final = 60_000
_MESSAGES: Final = (fx.Send, fx.Reply, fx.ReplySnapshot, fx.Committed, fx.LeaderChanged, fx.Note)

Report = Callable[[int, int, Message | None], None]


class RequestSender(Protocol):
    """Sends requests to other nodes (senders.py)."""

    def send(self, effect: fx.Send, report: Report) -> None:
        """Send a request without waiting; `report` is called by another thread."""

    def stop(self) -> None:
        """End all threads."""


class RaftDriver:
    """See the module."""

    def __init__(
        self,
        config: RaftConfig,
        key: ReplicaKey,
        raft_log: RaftLog,
        sender: RequestSender,
        clock: Clock,
        random: Random | None = None,
    ) -> None:
        self._clock = clock  # fixed before start
        self._log = raft_log  # owner: raft thread, once started
        self._sender = sender  # fixed before start
        self._fetch_max_bytes = config.fetch_max_bytes  # fixed before start
        self._node_id = key.id  # fixed before start
        self._changed = threading.Condition()
        self._replica = RaftReplica(  # guarded by: _changed
            config, key, raft_log.outline, raft_log.election(), random or Random(), decode_fetched
        )
        self._effects: list[fx.Effect] = []  # guarded by: _changed
        self._wake_ms = 0  # guarded by: _changed; when the raft thread ends its wait by itself
        self._is_stopping = False  # guarded by: _changed
        self._stop_by_ms = 0  # guarded by: _changed; while it stops
        self._leader = LeaderAndEpoch(None, 0)  # replaced whole by the raft thread
        self._high_watermark = -1  # owner: raft thread, read by any
        self._listener: RaftListener | None = None  # fixed before start
        self._next_offset = 0  # owner: raft thread; the listener has everything below it
        self._leading: LeaderAndEpoch | None = None  # owner: raft thread; a lead that the listener waits for
        self._uncommitted: deque[CommittedBatch] = deque()  # owner: raft thread; appended, and not delivered
        self._notes = NoteLog(clock)  # owner: raft thread
        self.history = History()  # guarded by: _changed
        self.fetched_records = 0  # guarded by: _changed, read by any
        self.idle_ns = 0  # owner: raft thread, read by any
        self._worker = ServiceThread(f"kafka-{key.id}-raft-io-thread", "raft-io", self.run)

    # For the controller; any thread

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """See RaftClient."""
        return self._leader

    @property
    def high_watermark(self) -> int:
        """See RaftClient."""
        return self._high_watermark

    @property
    def end_offset(self) -> int:
        """See RaftClient."""
        with self._changed:
            return self._replica.quorum.outline.end_offset

    @property
    def kraft_version(self) -> int:
        """See RaftClient."""
        with self._changed:
            return self._replica.quorum.outline.membership.kraft_version

    def register(self, listener: RaftListener) -> None:
        """See RaftClient."""
        assert self._listener is None, "there is one listener"
        self._listener = listener

    def start(self) -> None:
        """See RaftClient."""
        self.begin()
        self._worker.start()

    def begin(self) -> None:
        """Let the replica begin with what is on disk; `start` without the thread."""
        with self._changed:
            self._add(self._replica.start(self._clock.monotonic_ms()))

    def append(self, epoch: int, batch: bytearray) -> int:
        """See RaftClient."""
        count = read_header(batch, 0).last_offset_delta + 1
        with self._changed:
            quorum = self._replica.quorum
            if self._is_stopping or not self._replica.is_leader or quorum.epoch != epoch:
                raise ApiError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This controller does not lead the quorum in epoch {epoch}."
                )
            set_offset_and_epoch(batch, quorum.outline.end_offset, epoch)
            last_offset, effects = self._replica.append(count, batch, self._clock.monotonic_ms())
            self._add(effects)
            return last_offset

    def upgrade_kraft_version(self, epoch: int, version: int, *, validate_only: bool) -> None:
        """See RaftClient."""
        with self._changed:
            if self._is_stopping or self._replica.quorum.epoch != epoch:
                raise ApiError(ErrorCode.NOT_CONTROLLER, f"This controller does not lead epoch {epoch}.")
            now_ms = self._clock.monotonic_ms()
            self._add(self._replica.upgrade_kraft_version(version, now_ms, validate_only=validate_only))

    def resign(self, epoch: int) -> None:
        """See RaftClient."""
        with self._changed:
            if self._replica.is_leader and self._replica.quorum.epoch == epoch:
                self._add(self._replica.resign(self._clock.monotonic_ms()))

    def create_snapshot(self, end_offset: int, records: Iterable[MetadataRecord], epoch: int) -> int | None:
        """See RaftClient."""
        assert end_offset <= self._high_watermark, "a snapshot holds what is committed"
        with self._changed:
            outline = self._replica.quorum.outline
            if end_offset <= outline.start_offset:
                return None
            snapshot, membership = outline.snapshot_id(end_offset), outline.membership_at(end_offset)
        assert snapshot.epoch == epoch, "the epoch is that of the last record"
        size = self._log.snapshots.write(snapshot, records, membership, self._clock.wall_ms())
        with self._changed:
            self._add(self._replica.snapshot_written(end_offset, self._clock.monotonic_ms()))
        return size

    def holds(self, offset: int, epoch: int) -> bool:
        """See RaftClient."""
        with self._changed:
            outline = self._replica.quorum.outline
            if offset >= outline.end_offset or epoch > outline.last_epoch:
                return False
            if epoch < 0 or offset < outline.start_offset:
                return True
            end = outline.end_offset_for_epoch(epoch)
            return end.epoch == epoch and offset < end.offset

    def handle_request(self, request: Message, reply: Callable[[Message], object]) -> None:
        """See RaftClient."""
        with self._changed:
            self._add(self._replica.handle_request(request, reply, self._clock.monotonic_ms()))

    def describe(self) -> DescribeQuorumResponse:
        """See RaftClient."""
        with self._changed:
            return self._replica.describe(self._clock.monotonic_ms(), self._clock.wall_ms())

    def status(self) -> RaftStatus:
        """Return what the replica knows of the quorum."""
        with self._changed:
            return status_of(self._replica.quorum, self._clock.monotonic_ms())

    def elections(self) -> Sequence[Entry]:
        """Return the last roles of the replica and their reasons, the oldest first."""
        with self._changed:
            return self.history.entries()

    def shutdown(self, timeout_ms: int) -> None:
        """See RaftClient."""
        with self._changed:
            self._is_stopping = True
            self._stop_by_ms = self._clock.monotonic_ms() + timeout_ms
            self._add(self._replica.resign(self._clock.monotonic_ms()))
            self._changed.notify()
        if self._worker.is_alive():
            self._worker.join()
        self._sender.stop()
        self._log.close()

    # The queue of effects

    def _add(self, effects: Sequence[fx.Effect]) -> None:
        """Queue the effects of an input; the caller holds `_changed`."""
        self._effects += effects
        self._note_transitions()
        # Why when stopping: the input may be the last one that the end waits for.
        if self._effects or self._is_stopping or self._replica.next_poll_ms < self._wake_ms:
            self._changed.notify()

    def _note_transitions(self) -> None:
        if transitions := self._replica.quorum.transitions:
            self.history.note(transitions, self._clock.monotonic_ms(), self._clock.wall_ms())

    def _responded(self, node_id: int, correlation_id: int, response: Message | None) -> None:
        """Take a response; called by the sender's threads."""
        with self._changed:
            now_ms = self._clock.monotonic_ms()
            outline = self._replica.quorum.outline
            end_offset = outline.end_offset
            try:
                effects = self._replica.handle_response(node_id, correlation_id, response, now_ms)
            except Exception:  # Why all: no response of another node ends this one
                log.exception("The response %r of controller %d makes no sense", type(response).__name__, node_id)
                effects = self._replica.poll(now_ms)
            if isinstance(response, FetchResponse):
                self.fetched_records += max(0, outline.end_offset - end_offset)
            self._add(effects)

    # The raft thread

    def run(self) -> None:
        """Carry out effects until the client is shut down; the body of the raft thread."""
        while self.step(WAIT_MS_MAX):
            pass
        if self._listener is not None:
            self._listener.begin_shutdown()

    def step(self, wait_ms: int = 0) -> bool:
        """Carry out the effects that are queued or due; wait for them at most `wait_ms`. False at the end."""
        effects = self._take(wait_ms)
        if effects is None:
            return False
        self._carry_out(effects)
        return True

    def _take(self, wait_ms: int) -> list[fx.Effect] | None:
        with self._changed:
            now_ms = self._clock.monotonic_ms()
            until_ms = now_ms + wait_ms
            while not self._effects:
                if self._replica.next_poll_ms <= now_ms:
                    self._effects += self._replica.poll(now_ms)
                    self._note_transitions()
                    if self._effects:
                        break
                if self._is_over(now_ms):
                    return None
                # Why at least 1: a replica that is due again at once must not keep the lock.
                self._wake_ms = min(until_ms, max(self._replica.next_poll_ms, now_ms + 1), self._end_ms)
                if until_ms <= now_ms:
                    return []
                began_ns = self._clock.monotonic_ns()
                self._changed.wait((self._wake_ms - now_ms) / 1000)
                self.idle_ns += self._clock.monotonic_ns() - began_ns
                now_ms = self._clock.monotonic_ms()
            effects, self._effects = self._effects, []
            return effects

    @property
    def _end_ms(self) -> int:
        return self._stop_by_ms if self._is_stopping else FOREVER

    def _is_over(self, now_ms: int) -> bool:
        """Return whether nothing is left to do before the end: every voter knows that this leader has resigned."""
        role = self._replica.quorum.role
        return self._is_stopping and (
            now_ms >= self._stop_by_ms or not isinstance(role, Resigned) or not role.unacknowledged
        )

    def _carry_out(self, effects: Sequence[fx.Effect]) -> None:
        """Carry out effects with one flush, unless the disk changes in other ways, too (rule 2)."""
        messages: list[fx.Effect] = []
        must_flush = False
        for effect in effects:
            if isinstance(effect, fx.Append):
                self._uncommitted.extend(self._log.append(effect.batches))
            elif isinstance(effect, fx.Flush):
                must_flush = True
            elif isinstance(effect, _MESSAGES):
                messages.append(effect)
            else:
                self._release(messages, must_flush=must_flush)
                messages, must_flush = [], False
                self._change_disk(effect)
        self._release(messages, must_flush=must_flush)

    def _release(self, messages: Sequence[fx.Effect], *, must_flush: bool) -> None:
        """Flush, then let the messages go."""
        if must_flush:
            self._log.flush()
        for effect in messages:
            if isinstance(effect, fx.Send):
                self._sender.send(effect, self._responded)
            elif isinstance(effect, fx.Reply):
                self._reply(effect)
            elif isinstance(effect, fx.ReplySnapshot):
                self._reply_snapshot(effect)
            elif isinstance(effect, fx.Committed):
                self._high_watermark = effect.offset
                self._deliver()
            elif isinstance(effect, fx.LeaderChanged):
                self._leader_changed(LeaderAndEpoch(effect.leader_id, effect.epoch))
            elif isinstance(effect, fx.Note):
                self._notes.note(effect.text)

    def _change_disk(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Persist):
            self._log.persist(effect)
        elif isinstance(effect, fx.Truncate):
            self._log.truncate(effect.offset)
            while self._uncommitted and self._uncommitted[-1].last_offset >= effect.offset:
                self._uncommitted.pop()
        elif isinstance(effect, fx.WriteSnapshot):
            self._log.snapshots.write_part(effect.id, effect.position, _bytes_of(effect.data))
        elif isinstance(effect, fx.LoadSnapshot):
            membership = self._log.snapshots.load_part(effect.id)
            with self._changed:
                self._add(self._replica.snapshot_received(effect.id, membership, self._clock.monotonic_ms()))
        elif isinstance(effect, fx.ReplaceLog):
            self._log.replace(effect.id)
            self._uncommitted.clear()
        elif isinstance(effect, fx.DeletePrefix):
            self._log.delete_prefix(effect.id)

    # Answers

    def _reply(self, effect: fx.Reply) -> None:
        response = effect.response
        if effect.read is not None:
            assert isinstance(response, FetchResponse)
            response.responses[0].partitions[0].records = self._log.read(effect.read, self._fetch_max_bytes)
        self._answer(effect.token, response)

    def _reply_snapshot(self, effect: fx.ReplySnapshot) -> None:
        response = effect.response
        assert isinstance(response, FetchSnapshotResponse)
        partition = response.topics[0].partitions[0]
        found = self._log.snapshots.read(effect.id, effect.position, effect.max_bytes)
        if found is None:
            partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= effect.position < found[0]:
            partition.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            partition.size, partition.unaligned_records = found
        self._answer(effect.token, response)

    def _answer(self, token: object, response: Message) -> None:
        assert callable(token)
        try:
            token(response)
        except Exception:  # Why all: the end of one connection must not end the replica
            log.exception("A response could not be sent")

    # The listener (rule 4)

    def _deliver(self) -> None:
        """Let the listener have what is committed."""
        end_offset = self._high_watermark
        snapshot = self._log.snapshot
        if snapshot is not None and self._next_offset < snapshot.id.offset <= end_offset:
            if self._listener is not None:
                self._listener.handle_load_snapshot(self._log.snapshots.hand_over(snapshot))
            self._next_offset = snapshot.id.offset
        while self._uncommitted and self._uncommitted[0].last_offset < self._next_offset:
            self._uncommitted.popleft()
        # Why from the disk: at start, and after a snapshot, nothing is held in memory.
        held_from = min(self._uncommitted[0].base_offset if self._uncommitted else end_offset, end_offset)
        if self._next_offset < held_from:
            for read in self._log.committed(self._next_offset, held_from):
                self._hand_over(read)
        held: list[CommittedBatch] = []
        while self._uncommitted and self._uncommitted[0].last_offset < end_offset:
            held.append(self._uncommitted.popleft())
        if held:
            self._hand_over(held)

    def _hand_over(self, batches: list[CommittedBatch]) -> None:
        self._next_offset = batches[-1].last_offset + 1
        listener, leading = self._listener, self._leading
        if listener is None:
            return
        listener.handle_commit(batches)
        if leading is not None and batches[-1].epoch >= leading.epoch:
            self._leading = None
            listener.handle_leader_change(leading)

    def _leader_changed(self, leader: LeaderAndEpoch) -> None:
        self._leader = leader
        log.info("Controller %d: epoch %d is led by %s", self._node_id, leader.epoch, leader.leader_id)
        self._leading = leader if leader.leader_id == self._node_id else None
        if self._listener is not None and self._leading is None:
            self._listener.handle_leader_change(leader)


def _bytes_of(records: object) -> bytes | bytearray | memoryview:
    assert isinstance(records, bytes | bytearray | memoryview)
    return records
