"""Sessions with idle partitions answer as those without: the same events at two brokers, one of which reads everything.

Two followers and two consumers fetch from both in sessions, while records come, transactions end, watermarks move,
leaders change, records are deleted, ISRs shrink and grow, brokers are fenced and register again, logs move to another
directory, and a topic is deleted and made again. Each response must name the same partitions with the same contents,
at the same moment, and the same changes of ISRs must be proposed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.broker.fetch_sessions import session as sessions
from barnabas.broker.replication.role import IsrOutcome
from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k01_fetch as wire
from barnabas.protocol.messages import k21_delete_records as delete_wire
from barnabas.protocol.metadata_records import RemoveTopicRecord
from barnabas.protocol.records.batch import ControlType, end_txn_marker, iter_headers
from tests.support.broker.broker_rig import BrokerRig, batch, fetch_changes, produce, registration, state, topic_id
from tests.support.broker.parked import Waiting
from tests.support.sample import sample

PARTITIONS = 5
REPLICAS = (1, 2, 3)
STEPS = 150
EVENTS = (
    *("produce", "produce", "produce", "fetch", "fetch", "fetch", "fetch", "advance", "advance"),
    *("leader", "isr", "delete", "shrink", "concluded", "again", "close"),
    *("transact", "transact", "forget", "register", "move"),
)


class Client:
    """A client of one broker, in a session: it follows what it is answered."""

    def __init__(self, rig: BrokerRig, replica_id: int, isolation_level: int = 0) -> None:
        self._rig = rig
        self._replica_id = replica_id
        self._isolation_level = isolation_level
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)
        self._starts = dict.fromkeys(range(PARTITIONS), 0)
        self._sent: dict[int, tuple[int, int, int]] = {}
        self._session_id = 0
        self._epoch = 0
        self.broker_epoch = 33
        self.names_no_epoch = False  # of the leader; brokers always do
        self.forgotten: set[int] = set()
        self.waiting: Waiting | None = None

    def fetch(self, epochs: dict[int, int], id_: bytes, wait_ms: int) -> Any:
        """Ask for what changed since the last request; returns the answer, or None if it waits."""
        wanted = {
            p: (offset, -1 if self.names_no_epoch else epochs[p], self._starts[p])
            for p, offset in self.offsets.items()
            if p not in self.forgotten
        }
        changed = {p: item for p, item in wanted.items() if self._sent.get(p) != item}
        gone = sorted(self._sent.keys() - wanted.keys())
        self._sent = wanted
        request = fetch_changes(
            (
                (p, offset, epoch, start if self.is_follower else -1)
                for p, (offset, epoch, start) in sorted(changed.items())
            ),
            gone,
            id_=id_,
            replica_state=wire.ReplicaState(
                replica_id=self._replica_id, replica_epoch=self.broker_epoch if self.is_follower else -1
            ),
            isolation_level=self._isolation_level,
            max_wait_ms=wait_ms,
            session_id=self._session_id,
            session_epoch=self._epoch,
        )
        answer = self._rig.answer(request, 17)
        if isinstance(answer, Waiting):
            self.waiting = answer
            return None
        return self.take(answer)

    @property
    def is_follower(self) -> bool:
        return self._replica_id >= 0

    def completed(self) -> Any:
        """What a waiting request was answered since the last step, if anything."""
        if self.waiting is None or self.waiting.response is None:
            return None
        response, self.waiting = self.waiting.response, None
        return self.take(response)

    def take(self, response: Any) -> Any:
        if response.error_code:
            self.restart()
            return ErrorCode(response.error_code)
        self._session_id = response.session_id
        self._epoch += 1
        if not self._session_id:
            self.restart()
        found = {}
        for topic in response.responses:
            for data in topic.partitions:
                records = data.records if isinstance(data.records, bytes) else data.records.read()
                found[data.partition_index] = (
                    ErrorCode(data.error_code).name, data.high_watermark, data.log_start_offset, bytes(records)
                )  # fmt: skip
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.offsets[data.partition_index] = 0
                    continue
                if data.error_code == 0:
                    self._starts[data.partition_index] = data.log_start_offset
                    self.offsets[data.partition_index] = max(self.offsets[data.partition_index], data.log_start_offset)
                for _, header in iter_headers(records):
                    self.offsets[data.partition_index] = header.base_offset + header.last_offset_delta + 1
        return found

    def restart(self) -> None:
        """Begin a new session with the next request, which ends this one."""
        self._epoch = 0
        self._sent = {}

    def lose(self) -> None:
        """Begin a new session, and leave this one behind."""
        self._session_id = 0
        self.restart()


class Broker:
    """One of the two brokers, with its clients."""

    def __init__(self, idle_from: int) -> None:
        self._idle_from = idle_from
        with self._rules():
            self.rig = BrokerRig(log_dirs="/d1,/d2", transaction_partition_verification_enable="false")
            self.registered = {2: 33, 3: 33}
            self.alive = {1, 2, 3}
            self.transactions: dict[tuple[int, int], int] = {}  # the next sequence number, by partition and producer
            self.epochs = dict.fromkeys(range(PARTITIONS), 0)
            self.partition_epochs = dict.fromkeys(range(PARTITIONS), 0)
            self.incarnation = 0
            self.push(dict.fromkeys(range(PARTITIONS), 1))
        self.clients = [Client(self.rig, 2), Client(self.rig, 3), Client(self.rig, -1), Client(self.rig, -1, 1)]
        self.idle_most = 0

    @contextmanager
    def _rules(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sessions, "IDLE_FROM", self._idle_from)
            yield

    def push(self, leaders: dict[int, int], isr: tuple[int, ...] = REPLICAS) -> None:
        states = [
            state(
                leaders.get(p, 1), REPLICAS, isr, leader_epoch=self.epochs[p], partition_epoch=self.partition_epochs[p]
            )
            for p in range(PARTITIONS)
        ]
        self.rig.push({"t": states}, incarnation=self.incarnation, brokers=sorted(self.alive))

    def step(self, event: str, choose: random.Random) -> Any:
        """Let something happen; returns all that can be seen of it."""
        with self._rules():
            seen = getattr(self, event)(choose)
            answers = [client.completed() for client in self.clients]
        proposals = sorted((tp, p) for tp, p, _ in self.rig.isr_changes.submitted)  # their order means nothing
        waits = [client.waiting is not None for client in self.clients]
        marks = [
            (p.tp, p.high_watermark, None if p.log is None else p.log.log_end_offset, p.role)
            for p in sorted(self.rig.manager.hosted.online(), key=lambda p: p.tp)
        ]
        held = self.rig.services.fetch_sessions._sessions.values()
        self.idle_most = max([self.idle_most, *(len(session.idle) for session in held)])
        return seen, answers, proposals, waits, marks

    # Events

    def produce(self, choose: random.Random) -> Any:
        request = produce(batch(b"x" * choose.randrange(1, 50)), partition=choose.randrange(PARTITIONS))
        answer = self.rig.answer(request, 9)
        return answer.responses[0].partition_responses[0].error_code

    def fetch(self, choose: random.Random) -> Any:
        client = choose.choice(self.clients)
        wait_ms = choose.choice((0, 500))
        if client.waiting is not None:
            return None
        return client.fetch(self.epochs, topic_id("t", self.incarnation), wait_ms)

    def advance(self, choose: random.Random) -> None:
        self.rig.advance_ms(choose.choice((1, 100, 501, 3000, 11_000)))

    def leader(self, choose: random.Random) -> None:
        partition = choose.randrange(PARTITIONS)
        leader = choose.choice((1, 1, 2))
        if self.rig.isr_changes.submitted:
            return
        self.epochs[partition] += 1
        self.partition_epochs[partition] += 1
        self.push({partition: leader})

    def isr(self, choose: random.Random) -> None:
        partition = choose.randrange(PARTITIONS)
        isr = choose.choice((REPLICAS, (1, 2), (1,)))
        if self.rig.isr_changes.submitted:
            return
        self.partition_epochs[partition] += 1
        found = self.rig.manager.hosted.find(TopicPartition("t", partition))
        self.push({partition: 1 if found is None else found.leader_id}, isr)

    def delete(self, choose: random.Random) -> None:
        partition = delete_wire.DeleteRecordsPartition(partition_index=choose.randrange(PARTITIONS), offset=-1)
        topics = [delete_wire.DeleteRecordsTopic(name="t", partitions=[partition])]
        self.rig.answer(delete_wire.DeleteRecordsRequest(topics=topics, timeout_ms=1), 2)

    def shrink(self, _choose: random.Random) -> None:
        self.rig.manager.maybe_shrink_isrs()

    def concluded(self, choose: random.Random) -> None:
        submitted, self.rig.isr_changes.submitted = self.rig.isr_changes.submitted, []
        for tp, proposal, on_done in sorted(submitted, key=lambda each: each[0]):
            if choose.random() < 0.7:
                self.partition_epochs[tp.partition] += 1
                isr = tuple(id_ for id_, _ in proposal.isr)
                epoch = self.partition_epochs[tp.partition]
                on_done(IsrOutcome(ErrorCode.NONE, 1, proposal.leader_epoch, isr, epoch))
            else:
                on_done(IsrOutcome(ErrorCode.INELIGIBLE_REPLICA))

    def transact(self, choose: random.Random) -> Any:
        """Append a record of a transaction, or end it."""
        key = partition, producer = choose.randrange(PARTITIONS), choose.choice((7, 8))
        about = {"producer_id": producer, "producer_epoch": 0}
        if key in self.transactions and choose.random() < 0.5:
            type_ = choose.choice((ControlType.COMMIT, ControlType.ABORT))
            data = end_txn_marker(type_, coordinator_epoch=0, timestamp_ms=1_700_000_000_000, **about)
            origin = AppendOrigin.COORDINATOR
        else:
            data = batch(b"t", base_sequence=self.transactions.get(key, 0), is_transactional=True, **about)
            origin = AppendOrigin.CLIENT
        tp = TopicPartition("t", partition)
        try:
            self.rig.manager.append_one(tp, memoryview(bytearray(data)), required_acks=1, origin=origin)
        except ApiError as error:
            return error.code
        if origin is AppendOrigin.CLIENT:
            self.transactions[key] = self.transactions.get(key, 0) + 1
        self.rig.manager.complete_delayed(tp)
        return None

    def forget(self, choose: random.Random) -> None:
        client, partition = choose.choice(self.clients), choose.randrange(PARTITIONS)
        client.forgotten ^= {partition}
        if choose.random() < 0.2 and not client.is_follower:
            client.names_no_epoch = not client.names_no_epoch

    def register(self, choose: random.Random) -> None:
        """A follower registers again, is fenced or unfenced; it may learn late of its new epoch, or restart."""
        id_, kind = choose.choice((2, 3)), choose.choice(("epoch", "learns", "fence", "restart"))
        client = self.clients[id_ - 2]
        if kind == "fence":
            self.alive ^= {id_}
        elif kind == "epoch":
            # Why not while it waits: that answer names its idle partitions only next time, as those of another broker.
            self.registered[id_] += client.waiting is None
        else:
            client.broker_epoch = self.registered[id_]
            if kind == "restart" and client.waiting is None:
                client.lose()
            return
        records = [
            registration(each, epoch=epoch, fenced=each not in self.alive) for each, epoch in self.registered.items()
        ]
        self.rig.answer(self.rig.update_metadata({}, brokers=sorted(self.alive), registrations=records), 8)

    def move(self, choose: random.Random) -> None:
        partition = self.rig.manager.hosted.find(TopicPartition("t", choose.randrange(PARTITIONS)))
        if partition is not None and partition.log is not None:
            path = "/d2" if partition.log.directory.startswith("/d1") else "/d1"
            self.rig.log_dir_moves.move(partition.tp, path)
            self.rig.log_dir_moves.turn()

    def again(self, choose: random.Random) -> None:
        if choose.random() < 0.8:
            return
        self.transactions.clear()
        self.rig.isr_changes.submitted = []
        for partition in range(PARTITIONS):
            about = [RemoveTopicRecord(topic_id=topic_id("t", self.incarnation))]
            self.rig.stop_replica(TopicPartition("t", partition), leader_epoch=-2, delete=True, records=about)
            self.epochs[partition] = self.partition_epochs[partition] = 0
        self.incarnation += 1
        self.push(dict.fromkeys(range(PARTITIONS), 1))
        for client in self.clients:
            client.restart()
            client.offsets = dict.fromkeys(range(PARTITIONS), 0)

    def close(self, choose: random.Random) -> None:
        client = choose.choice(self.clients)
        if client.waiting is None and choose.random() < 0.3:
            client.restart()


@pytest.mark.parametrize("seed", sample(range(40), 2))
def test_both_answer_alike(seed: int) -> None:
    reads_all, has_idle = Broker(10**9), Broker(0)
    choose = random.Random(seed)
    story = []
    for _ in range(STEPS):
        event, step_seed = choose.choice(EVENTS), choose.random()
        story.append(event)
        first, second = (broker.step(event, random.Random(step_seed)) for broker in (reads_all, has_idle))
        assert first == second, story
    assert reads_all.idle_most == 0
    for broker in (reads_all, has_idle):
        broker.rig.close()
    assert has_idle.idle_most > 1, "nothing was tried"
