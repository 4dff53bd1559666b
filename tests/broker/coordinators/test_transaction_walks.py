"""Random walks of transactions, seeded: producers come and go, writes hang, coordinators die at any step.

What must hold, whatever happens
1. What is committed is a way through the state machine: each record of an id may follow the one before it. So a
   transaction whose commitment was decided is never aborted, nor the other way round.
2. A marker says what a committed record says, under that record's epoch, from the coordinator that wrote or loaded it.
3. Who was told that a transaction is committed (aborted) finds it so in the log.
4. Epochs only go up; no two producers are told the same one.
5. In the end, when nothing fails any more, every prepared transaction comes to its end.
"""

from __future__ import annotations

import itertools
import random

import pytest

from barnabas.broker.coordinators.transaction import MAY_FOLLOW, PREPARED, Producer, TxnData, TxnState
from barnabas.broker.coordinators.transaction_shard import Given
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.transaction_room import T0, T1, TP, Room

STEPS = 150
IDS = ("x", "y")


class Walk:
    """Two ids, each with the producers that believe they own it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.version = self.random.choice([0, 2])
        self.room = Room(self.version, busy_wait_ms=self.random.choice([0, 100]))
        self.known: dict[str, list[Producer]] = {id_: [] for id_ in IDS}
        self.told: list[tuple[str, bool, Producer, Given]] = []  # ends that were confirmed
        self.given: list[tuple[str, Producer]] = []  # by InitProducerId

    def run(self) -> None:
        steps = [self.init] * 2 + [self.add] * 5 + [self.end] * 4 + [self.markers] * 3 + [
            self.settle, self.settle, self.hold, self.refuse, self.move, self.time_out,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check_markers()
        self.come_to_rest()
        self.check_log()

    # Steps

    def producer(self, id_: str) -> Producer:
        return self.random.choice(self.known[id_][-2:] or [Producer(999, 0)])

    def init(self) -> None:
        id_ = self.random.choice(IDS)
        expected = self.producer(id_) if self.random.random() < 0.3 else None

        def reply(given: Given) -> None:
            if not given.error:
                self.known[id_].append(Producer(given.producer_id, given.epoch))
                if expected is None:
                    self.given.append((id_, Producer(given.producer_id, given.epoch)))

        self.room.shard.init_producer_id(id_, 60_000, expected, reply)

    def add(self) -> None:
        id_ = self.random.choice(IDS)
        partitions = self.random.choice([[T0], [T1], [T0, T1]])
        self.room.shard.add_partitions(id_, self.producer(id_), partitions, self.version, lambda _error: None)

    def end(self) -> None:
        id_, is_commit = self.random.choice(IDS), self.random.random() < 0.6
        producer = self.producer(id_)

        def reply(given: Given) -> None:
            if not given.error:
                self.told.append((id_, is_commit, producer, given))
                if self.version == 2:
                    self.known[id_].append(Producer(given.producer_id, given.epoch))

        self.room.shard.end(id_, producer, is_commit, self.version, reply)

    def markers(self) -> None:
        held = self.room.markers.held
        if held:
            completion, partitions = held.pop(self.random.randrange(len(held)))
            left = list(partitions)
            self.random.shuffle(left)
            done = left[: self.random.randint(1, len(left))]
            completion.shard.marked(completion, done)
            if rest := left[len(done) :]:
                held.append((completion, rest))

    def hold(self) -> None:
        self.room.manager.holds = True

    def settle(self) -> None:
        """The followers have caught up; or only time has run out."""
        self.room.manager.refuses = ErrorCode.NONE
        if self.random.random() < 0.3:
            self.room.manager.release(ErrorCode.REQUEST_TIMED_OUT)
        else:
            self.room.manager.holds = False
            self.room.manager.release()

    def refuse(self) -> None:
        self.room.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS

    def move(self) -> None:
        self.room.manager.holds = False
        self.room.manager.refuses = ErrorCode.NONE
        self.room.move()

    def time_out(self) -> None:
        self.room.clock.advance_ms(self.random.choice([100, 70_000]))
        self.room.scheduler.run_due()
        self.room.shard.abort_timed_out()
        self.room.shard.retry()

    def come_to_rest(self) -> None:
        self.room.manager.holds = False
        self.room.manager.refuses = ErrorCode.NONE
        self.room.manager.release()
        log = self.room.manager.logs[TP]
        log.high_watermark = log.log_end_offset
        for _ in range(5):
            self.room.shard.retry()
            self.room.markers.deliver()
        for transaction in self.room.shard.transactions.values():
            assert transaction.pending is None
            assert transaction.data.state not in PREPARED

    # What must hold

    def committed(self, id_: str) -> list[TxnData]:
        high_watermark = self.room.manager.logs[TP].high_watermark
        return [data for of, data in self.room.records()[:high_watermark] if of == id_ and data is not None]

    def check_markers(self) -> None:
        for completion, _ in self.room.markers.held:
            wanted = TxnState.PREPARE_COMMIT if completion.is_commit else TxnState.PREPARE_ABORT
            assert any(
                (data.state, data.producer_id, data.producer_epoch)
                == (wanted, completion.producer_id, completion.producer_epoch)
                for data in self.committed(completion.transactional_id)
            )
            assert completion.coordinator_epoch <= self.room.epoch

    def check_log(self) -> None:
        for id_ in IDS:
            way = self.committed(id_)
            for before, after in itertools.pairwise(way):
                assert before.state in MAY_FOLLOW[after.state], f"{before} then {after}"
                assert (after.producer_id, after.producer_epoch) >= (before.producer_id, before.producer_epoch)
        for id_, is_commit, producer, given in self.told:
            wanted = TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT
            epoch = given.epoch if self.version == 2 else producer.epoch
            assert any((d.state, d.producer_epoch) == (wanted, epoch) for d in self.committed(id_))
        assert len(set(self.given)) == len(self.given)


@pytest.mark.parametrize("seed", range(150))
def test_whatever_happens(seed: int) -> None:
    Walk(seed).run()


def test_the_walks_reach_everything() -> None:
    """A check that cannot fail proves nothing: together the walks see every state and confirm both ends."""
    states: set[TxnState] = set()
    ends: set[bool] = set()
    moves = 0
    for seed in range(30):
        walk = Walk(seed)
        walk.run()
        states |= {data.state for id_ in IDS for data in walk.committed(id_)}
        ends |= {is_commit for _, is_commit, _, _ in walk.told}
        moves += walk.room.epoch - 1
    assert states == set(TxnState) - {TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE}
    assert ends == {True, False}
    assert moves > 30
