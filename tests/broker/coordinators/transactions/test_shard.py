"""A shard of transactions over a log in memory: nothing takes effect before it is committed, whatever fails.

Tests `coordinators/transactions/loader.py`, too.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.broker.coordinators.transactions.shard import ProducerResult
from barnabas.broker.coordinators.transactions.transaction import LAST_EPOCH, Producer, Transaction, TxnState
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.transaction_rig import T0, T1, TP, TransactionShardRig

NONE, BUSY, AWAY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def rig() -> TransactionShardRig:
    return TransactionShardRig()


class TestOneTransaction:
    def test_each_step_is_in_the_log_before_it_is_answered(self, rig: TransactionShardRig) -> None:
        rig.manager.holds = True
        for ask, state in (
            (rig.init, "Empty"),
            (lambda: rig.add(T0, T1), "Ongoing"),
            (lambda: rig.end(True), "PrepareCommit"),
        ):
            answers = ask()
            assert answers == []
            assert rig.written()[-1] == ("x", state)
            rig.manager.release()
            assert answers[0] in (NONE, ProducerResult(NONE, 100, 0))
        ((completion, partitions),) = rig.markers.held
        assert partitions == {T0, T1}
        assert (completion.producer_id, completion.producer_epoch, completion.is_commit) == (100, 0, True)
        assert completion.coordinator_epoch == rig.epoch
        assert rig.add(T0) == [BUSY]
        completion.shard.marked(completion, [T0])
        assert rig.data.partitions == {T1}
        assert rig.add(T0) == [BUSY]
        completion.shard.marked(completion, [T1])
        assert rig.written()[-1] == ("x", "CompleteCommit")
        assert rig.end(True) == [ProducerResult(BUSY)]
        answers = rig.add(T0)  # the next transaction may begin: its record is behind the end of this one
        assert answers == []
        rig.manager.release()
        assert answers == [NONE]
        assert rig.data.state is TxnState.ONGOING

    def test_version_2_tells_the_next_epoch(self, rig: TransactionShardRig) -> None:
        rig.version = 2
        rig.init()
        rig.add(T0, version=2)
        assert rig.end(True, 2) == [ProducerResult(NONE, 100, 1)]
        rig.markers.deliver()
        assert rig.producer == (100, 1)

    def test_an_end_without_partitions_needs_no_markers(self, rig: TransactionShardRig) -> None:
        rig.version = 2
        rig.init()
        assert rig.end(False, 2) == [ProducerResult(NONE, 100, 1)]
        assert rig.markers.held == []
        assert rig.written() == [("x", "Empty"), ("x", "PrepareAbort"), ("x", "CompleteAbort")]

    def test_unknown_ids(self, rig: TransactionShardRig) -> None:
        answers: list[Any] = []
        rig.shard.add_partitions("y", Producer(1, 0), [T0], 0, answers.append)
        rig.shard.end("y", Producer(1, 0), True, 0, answers.append)
        assert answers == [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ProducerResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        assert rig.shard.verify("y", Producer(1, 0), [T0]) == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        with pytest.raises(ApiError) as caught:
            rig.shard.describe("y")
        assert caught.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def test_an_open_transaction_is_aborted_before_the_next_producer_gets_its_epoch(
        self, rig: TransactionShardRig
    ) -> None:
        rig.init()
        rig.add(T0)
        assert rig.init() == [ProducerResult(BUSY)]
        assert rig.init() == [ProducerResult(BUSY)]
        ((completion, _),) = rig.markers.held
        assert (completion.is_commit, completion.producer_epoch) == (False, 1)
        rig.markers.deliver()
        assert rig.init() == [ProducerResult(NONE, 100, 2)]


class TestWaiting:
    """A request that meets a change waits for it, but not for long."""

    @pytest.fixture
    def rig(self) -> TransactionShardRig:
        rig = TransactionShardRig(2, busy_wait_ms=100)
        rig.init()
        rig.add(T0, version=2)
        rig.end(True, 2)
        return rig

    def test_an_addition_waits_until_all_markers_are_written(self, rig: TransactionShardRig) -> None:
        answers = rig.add(T0, T1, version=2)
        assert answers == []
        assert rig.data.state is TxnState.PREPARE_COMMIT
        rig.manager.holds = True
        rig.markers.deliver()
        assert [state for _, state in rig.written()[-2:]] == ["CompleteCommit", "Ongoing"]  # one replication round
        rig.manager.release()
        assert answers == [NONE]
        assert rig.data.partitions == {T0, T1}

    def test_leaders_that_add_at_once_share_a_round(self, rig: TransactionShardRig) -> None:
        rig.markers.deliver()
        rig.manager.holds = True
        answers = [rig.add(tp, version=2) for tp in (T0, T1)]
        rig.manager.release()
        assert answers == [[NONE], [NONE]]
        assert rig.data.partitions == {T0, T1}

    def test_an_end_of_the_next_epoch_waits_too(self, rig: TransactionShardRig) -> None:
        answers = rig.end(False, 2)
        assert answers == []
        rig.markers.deliver()
        assert answers == [ProducerResult(NONE, 100, 2)]

    def test_only_for_a_while(self, rig: TransactionShardRig) -> None:
        early = rig.add(T0, version=2)
        rig.clock.advance_ms(60)
        late = rig.end(False, 2)
        rig.clock.advance_ms(40)
        rig.scheduler.run_due()
        assert (early, late) == ([BUSY], [])
        rig.clock.advance_ms(59)
        rig.scheduler.run_due()
        assert late == []
        rig.clock.advance_ms(1)
        rig.scheduler.run_due()
        assert late == [ProducerResult(BUSY)]
        rig.markers.deliver()
        assert (early, late) == ([BUSY], [ProducerResult(BUSY)])
        assert rig.data.state is TxnState.COMPLETE_COMMIT

    def test_who_is_late_but_was_tried_again_is_answered_once(self, rig: TransactionShardRig) -> None:
        answers = rig.add(T0, version=2)
        rig.clock.advance_ms(200)
        rig.markers.deliver()
        rig.scheduler.run_due()
        assert answers == [NONE]

    def test_a_coordinator_that_moves_sends_them_away(self, rig: TransactionShardRig) -> None:
        added, ended = rig.add(T0, version=2), rig.end(False, 2)
        rig.shard.close()
        assert (added, ended) == ([ErrorCode.NOT_COORDINATOR], [ProducerResult(ErrorCode.NOT_COORDINATOR)])
        rig.clock.advance_ms(200)
        rig.scheduler.run_due()
        assert (len(added), len(ended)) == (1, 1)

    def test_a_mistake_of_ours_leaves_nobody_unanswered(
        self, rig: TransactionShardRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> None:
            raise ZeroDivisionError

        ended, added = rig.end(False, 2), rig.add(T0, version=2)
        monkeypatch.setattr(Transaction, "end", fail)
        rig.markers.deliver()
        assert ended == [ProducerResult(ErrorCode.UNKNOWN_SERVER_ERROR)]
        assert added == [ErrorCode.NOT_COORDINATOR]

    def test_a_fenced_one_is_told_when_it_is_sure(self, rig: TransactionShardRig) -> None:
        stranger = rig.add(T0, producer=Producer(100, 0), version=2)
        assert stranger == []
        rig.markers.deliver()
        assert stranger == [ErrorCode.PRODUCER_FENCED]

    def test_a_change_that_the_log_refuses_lets_the_next_one_try(self, rig: TransactionShardRig) -> None:
        rig.markers.deliver()
        rig.manager.holds = True
        rig.add(T0, version=2)
        ended = rig.end(True, 2)
        rig.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert rig.add(T1, version=2) == [AWAY]
        rig.manager.refuses = NONE
        rig.manager.release()
        rig.manager.release()
        assert ended == [ProducerResult(NONE, 100, 2)]
        assert rig.markers.held[0][1] == {T0}


class TestWritesThatFail:
    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (ErrorCode.NOT_ENOUGH_REPLICAS, AWAY),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_what_the_log_refuses_has_not_happened(
        self, rig: TransactionShardRig, error: ErrorCode, expected: ErrorCode
    ) -> None:
        rig.init()
        rig.manager.refuses = error
        assert rig.add(T0) == [expected]
        assert rig.data.state is TxnState.EMPTY
        rig.manager.refuses = NONE
        assert rig.add(T0) == [NONE]

    def test_what_was_not_replicated_in_time_is_pending_until_it_is(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.add(T0)
        rig.manager.holds = True
        answers = rig.end(True)
        rig.manager.release(ErrorCode.REQUEST_TIMED_OUT)
        assert answers == [ProducerResult(AWAY)]
        assert rig.end(False) == [ProducerResult(BUSY)]  # no other end may be decided: the record may still commit
        rig.manager.logs[TP].high_watermark = rig.manager.logs[TP].log_end_offset
        assert rig.data.state is TxnState.PREPARE_COMMIT
        assert len(rig.markers.held) == 1

    def test_it_takes_effect_without_anybody_asking(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.add(T0)
        rig.manager.holds = True
        rig.end(True)
        rig.manager.release(ErrorCode.REQUEST_TIMED_OUT)
        rig.shard.retry()
        assert rig.markers.held == []
        rig.manager.logs[TP].high_watermark = rig.manager.logs[TP].log_end_offset
        rig.shard.retry()
        assert len(rig.markers.held) == 1

    def test_an_end_that_cannot_be_written_is_written_later(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.add(T0)
        rig.end(True)
        rig.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        rig.markers.deliver()
        rig.shard.retry()
        assert rig.add(T0) == [BUSY]
        assert rig.data.state is TxnState.PREPARE_COMMIT
        rig.manager.refuses = NONE
        rig.shard.retry()
        assert rig.data.state is TxnState.COMPLETE_COMMIT

    def test_a_fence_that_cannot_be_written_is_no_fence(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.add(T0)
        rig.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert rig.init() == [ProducerResult(AWAY)]
        rig.manager.refuses = NONE
        assert rig.end(True) == [ProducerResult(NONE, 100, 0)]


class TestFailover:
    """The coordinator dies in every state; the next one goes on from what is committed."""

    def test_empty_and_ongoing(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.move()
        assert rig.add(T0, T1) == [NONE]
        rig.move()
        assert rig.data.partitions == {T0, T1}
        assert rig.end(True) == [ProducerResult(NONE, 100, 0)]

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_prepared_goes_on_with_its_markers(self, rig: TransactionShardRig, is_commit: bool) -> None:
        rig.init()
        rig.add(T0, T1)
        rig.end(is_commit)
        ((old, _),) = rig.markers.held
        old.shard.marked(old, [T0])
        rig.markers.held.clear()
        rig.move()
        ((completion, partitions),) = rig.markers.held
        assert (completion.is_commit, partitions) == (is_commit, {T0, T1})
        assert completion.coordinator_epoch == old.coordinator_epoch + 1
        old.shard.marked(old, [T1])  # the zombie's news are nothing to anybody
        assert rig.data.state in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
        assert not old.shard.is_wanted(old)
        rig.markers.deliver()
        assert rig.data.state is (TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT)
        rig.move()
        assert rig.add(T0) == [NONE]

    @pytest.mark.parametrize("step", ["init", "add", "end"])
    def test_what_was_not_committed_is_lost_and_was_never_confirmed(self, rig: TransactionShardRig, step: str) -> None:
        if step != "init":
            rig.init()
        if step == "end":
            rig.add(T0)
        before = None if step == "init" else rig.data
        rig.manager.holds = True
        answers: list[Any] = {"init": rig.init, "add": lambda: rig.add(T0), "end": lambda: rig.end(True)}[step]()
        rig.move()
        assert [getattr(answer, "error", answer) for answer in answers] == [ErrorCode.NOT_COORDINATOR]
        assert rig.markers.held == []
        if before is None:
            with pytest.raises(ApiError):
                rig.shard.describe("x")
        else:
            assert rig.data._replace(last_producer_epoch=-1, previous_producer_id=-1) == before._replace(
                last_producer_epoch=-1, previous_producer_id=-1
            )

    def test_the_epoch_of_version_2_survives(self, rig: TransactionShardRig) -> None:
        rig.version = 2
        rig.init()
        rig.add(T0, version=2)
        rig.end(True, 2)
        rig.move()
        rig.markers.deliver()
        rig.move()
        assert rig.producer == (100, 1)
        answers: list[ProducerResult] = []
        rig.shard.end("x", Producer(100, 0), True, 2, answers.append)
        assert answers == [ProducerResult(NONE, 100, 1)]  # the client has no response yet

    def test_gates(self, rig: TransactionShardRig) -> None:
        shard = rig.open()
        assert shard.state is ShardState.LOADING
        loading, gone = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
        for expected in (loading, gone):
            answers: list[Any] = []
            shard.init_producer_id("x", 1, None, answers.append)
            shard.add_partitions("x", Producer(1, 0), [T0], 0, answers.append)
            shard.end("x", Producer(1, 0), True, 0, answers.append)
            assert answers == [ProducerResult(expected), expected, ProducerResult(expected)]
            assert shard.verify("x", Producer(1, 0), [T0]) == {T0: expected}
            for look in (shard.listed, lambda: shard.describe("x")):
                with pytest.raises(ApiError) as caught:
                    look()
                assert caught.value.code == expected
            shard.close()

    def test_a_partition_that_knows_a_newer_coordinator_ends_nothing_here(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.add(T0)
        rig.end(True)
        ((completion, _),) = rig.markers.held
        completion.shard.abandoned(completion)
        completion.shard.marked(completion, [T0])
        assert rig.data.state is TxnState.PREPARE_COMMIT
        assert rig.add(T0) == [BUSY]


class TestTime:
    def test_an_open_transaction_is_aborted_and_its_producer_fenced(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.add(T0)
        producer = rig.producer
        rig.clock.advance_ms(60_000)
        rig.shard.abort_timed_out()
        assert rig.data.state is TxnState.ONGOING
        rig.clock.advance_ms(1)
        rig.shard.abort_timed_out()
        rig.markers.deliver()
        assert (rig.data.state, rig.data.producer_epoch) == (TxnState.COMPLETE_ABORT, 1)
        assert rig.add(T0, producer=producer) == [ErrorCode.PRODUCER_FENCED]

    def test_it_is_aborted_later_while_there_is_no_producer_id_to_go_on_with(self) -> None:
        rig = TransactionShardRig(version=2)
        rig.init()
        last = rig.data._replace(producer_epoch=LAST_EPOCH)
        rig.shard.transactions["x"].data = last
        rig.add(T0, version=2)
        rig.clock.advance_ms(60_001)
        new_id = rig.context.new_producer_id

        def no_id() -> int:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        rig.context.new_producer_id = no_id
        rig.shard.abort_timed_out()
        assert rig.data.state is TxnState.ONGOING
        rig.context.new_producer_id = new_id
        rig.shard.abort_timed_out()
        rig.markers.deliver()
        assert (rig.data.state, rig.producer) == (TxnState.COMPLETE_ABORT, Producer(101, 0))

    def test_idle_ids_are_forgotten_with_a_tombstone(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.init(id_="y")
        rig.shard.add_partitions("y", Producer(101, 0), [T0], 0, lambda _error: None)
        rig.clock.advance_ms(1000)
        rig.shard.remove_expired()
        assert rig.written()[-1] == ("x", None)
        assert [id_ for id_, _ in rig.shard.listed()] == ["y"]
        rig.move()
        assert [id_ for id_, _ in rig.shard.listed()] == ["y"]

    def test_an_id_is_there_until_its_tombstone_is_committed(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.clock.advance_ms(1000)
        rig.manager.holds = True
        rig.shard.remove_expired()
        assert rig.init() == [ProducerResult(BUSY)]
        rig.manager.release()
        rig.manager.holds = False
        assert rig.init() == [ProducerResult(NONE, 101, 0)]

    def test_expiry_that_the_log_refuses_is_no_expiry(self, rig: TransactionShardRig) -> None:
        rig.init()
        rig.clock.advance_ms(1000)
        rig.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        rig.shard.remove_expired()
        rig.manager.refuses = NONE
        assert rig.init() == [ProducerResult(NONE, 100, 1)]
