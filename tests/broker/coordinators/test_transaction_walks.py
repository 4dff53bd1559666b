"""Random walks of transactions, seeded: producers start and stop, writes hang, coordinators fail at any step.

What must always hold
1. The committed records of an id are a path through the state machine. So a transaction whose commit was decided is
   never aborted, nor the other way round.
2. A marker agrees with a committed record, under that record's epoch, and comes from the coordinator that wrote or
   loaded it.
3. A client that got the answer "committed" ("aborted") finds that in the log.
4. Epochs only rise; no two producers get the same one.
5. At the end, when nothing fails any more, every prepared transaction is completed.
"""

from __future__ import annotations

import itertools
import random

import pytest

from barnabas.broker.coordinators.transactions.shard import ProducerResult
from barnabas.broker.coordinators.transactions.transaction import MAY_FOLLOW, PREPARED, Producer, TxnData, TxnState
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.transaction_rig import T0, T1, TP, TransactionShardRig
from tests.support.sample import sample

STEPS = 150
IDS = ("x", "y")


class Walk:
    """Two ids, each with the producers that believe they own it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.version = self.random.choice([0, 2])
        self.rig = TransactionShardRig(self.version, busy_wait_ms=self.random.choice([0, 100]))
        self.known: dict[str, list[Producer]] = {id_: [] for id_ in IDS}
        self.confirmed: list[tuple[str, bool, Producer, ProducerResult]] = []  # ends
        self.given: list[tuple[str, Producer]] = []  # by InitProducerId

    def run(self) -> None:
        steps = [self.init] * 2 + [self.add] * 5 + [self.end] * 4 + [self.markers] * 3 + [
            self.settle, self.settle, self.hold, self.refuse, self.move, self.time_out,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check_markers()
            self.rig.shard.invariants()
        self.come_to_rest()
        self.check_log()

    # Steps

    def producer(self, id_: str) -> Producer:
        return self.random.choice(self.known[id_][-2:] or [Producer(999, 0)])

    def init(self) -> None:
        id_ = self.random.choice(IDS)
        expected = self.producer(id_) if self.random.random() < 0.3 else None

        def reply(given: ProducerResult) -> None:
            if not given.error:
                self.known[id_].append(Producer(given.producer_id, given.epoch))
                if expected is None:
                    self.given.append((id_, Producer(given.producer_id, given.epoch)))

        self.rig.shard.init_producer_id(id_, 60_000, expected, reply)

    def add(self) -> None:
        id_ = self.random.choice(IDS)
        partitions = self.random.choice([[T0], [T1], [T0, T1]])
        self.rig.shard.add_partitions(id_, self.producer(id_), partitions, self.version, lambda _error: None)

    def end(self) -> None:
        id_, is_commit = self.random.choice(IDS), self.random.random() < 0.6
        producer = self.producer(id_)

        def reply(given: ProducerResult) -> None:
            if not given.error:
                self.confirmed.append((id_, is_commit, producer, given))
                if self.version == 2:
                    self.known[id_].append(Producer(given.producer_id, given.epoch))

        self.rig.shard.end(id_, producer, is_commit, self.version, reply)

    def markers(self) -> None:
        held = self.rig.markers.held
        if held:
            completion, partitions = held.pop(self.random.randrange(len(held)))
            left = list(partitions)
            self.random.shuffle(left)
            done = left[: self.random.randint(1, len(left))]
            completion.shard.marked(completion, done)
            if rest := left[len(done) :]:
                held.append((completion, rest))

    def hold(self) -> None:
        self.rig.manager.holds = True

    def settle(self) -> None:
        """The followers have caught up; or only time has run out."""
        self.rig.manager.refuses = ErrorCode.NONE
        if self.random.random() < 0.3:
            self.rig.manager.release(ErrorCode.REQUEST_TIMED_OUT)
        else:
            self.rig.manager.holds = False
            self.rig.manager.release()

    def refuse(self) -> None:
        self.rig.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS

    def move(self) -> None:
        self.rig.manager.holds = False
        self.rig.manager.refuses = ErrorCode.NONE
        self.rig.move()

    def time_out(self) -> None:
        self.rig.clock.advance_ms(self.random.choice([100, 70_000]))
        self.rig.scheduler.run_due()
        self.rig.shard.abort_timed_out()
        self.rig.shard.retry()

    def come_to_rest(self) -> None:
        self.rig.manager.holds = False
        self.rig.manager.refuses = ErrorCode.NONE
        self.rig.manager.release()
        log = self.rig.manager.logs[TP]
        log.high_watermark = log.log_end_offset
        for _ in range(5):
            self.rig.shard.retry()
            self.rig.markers.deliver()
        for transaction in self.rig.shard.transactions.values():
            assert transaction.pending is None
            assert transaction.data.state not in PREPARED

    # What must hold

    def committed(self, id_: str) -> list[TxnData]:
        high_watermark = self.rig.manager.logs[TP].high_watermark
        return [data for of, data in self.rig.records()[:high_watermark] if of == id_ and data is not None]

    def check_markers(self) -> None:
        for completion, _ in self.rig.markers.held:
            wanted = TxnState.PREPARE_COMMIT if completion.is_commit else TxnState.PREPARE_ABORT
            assert any(
                (data.state, data.producer_id, data.producer_epoch)
                == (wanted, completion.producer_id, completion.producer_epoch)
                for data in self.committed(completion.transactional_id)
            )
            assert completion.coordinator_epoch <= self.rig.epoch

    def check_log(self) -> None:
        for id_ in IDS:
            way = self.committed(id_)
            for before, after in itertools.pairwise(way):
                assert before.state in MAY_FOLLOW[after.state], f"{before} then {after}"
                assert (after.producer_id, after.producer_epoch) >= (before.producer_id, before.producer_epoch)
        for id_, is_commit, producer, given in self.confirmed:
            wanted = TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT
            epoch = given.epoch if self.version == 2 else producer.epoch
            assert any((d.state, d.producer_epoch) == (wanted, epoch) for d in self.committed(id_))
        assert len(set(self.given)) == len(self.given)


@pytest.mark.parametrize("seed", sample(range(150), 3))
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
        ends |= {is_commit for _, is_commit, _, _ in walk.confirmed}
        moves += walk.rig.epoch - 1
    assert states == set(TxnState) - {TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE}
    assert ends == {True, False}
    assert moves > 30
