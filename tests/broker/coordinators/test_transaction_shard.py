"""A shard of transactions over a log in memory: nothing counts before it is committed, whatever dies in between."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.coordinators.shard_core import ShardState
from barnabas.broker.coordinators.transaction import Producer, Transaction, TxnState
from barnabas.broker.coordinators.transaction_shard import Given
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.transaction_room import T0, T1, TP, Room

NONE, BUSY, AWAY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def room() -> Room:
    return Room()


class TestOneTransaction:
    def test_each_step_is_in_the_log_before_it_is_answered(self, room: Room) -> None:
        room.manager.holds = True
        for ask, state in (
            (room.init, "Empty"),
            (lambda: room.add(T0, T1), "Ongoing"),
            (lambda: room.end(True), "PrepareCommit"),
        ):
            answers = ask()
            assert answers == []
            assert room.written()[-1] == ("x", state)
            room.manager.release()
            assert answers[0] in (NONE, Given(NONE, 100, 0))
        ((completion, partitions),) = room.markers.held
        assert partitions == {T0, T1}
        assert (completion.producer_id, completion.producer_epoch, completion.is_commit) == (100, 0, True)
        assert completion.coordinator_epoch == room.epoch
        assert room.add(T0) == [BUSY]
        completion.shard.marked(completion, [T0])
        assert room.data.partitions == {T1}
        assert room.add(T0) == [BUSY]
        completion.shard.marked(completion, [T1])
        assert room.written()[-1] == ("x", "CompleteCommit")
        assert room.end(True) == [Given(BUSY)]
        answers = room.add(T0)  # the next transaction may begin: its record is behind the end of this one
        assert answers == []
        room.manager.release()
        assert answers == [NONE]
        assert room.data.state is TxnState.ONGOING

    def test_version_2_tells_the_next_epoch(self, room: Room) -> None:
        room.version = 2
        room.init()
        room.add(T0, version=2)
        assert room.end(True, 2) == [Given(NONE, 100, 1)]
        room.markers.deliver()
        assert room.producer == (100, 1)

    def test_an_end_without_partitions_needs_no_markers(self, room: Room) -> None:
        room.version = 2
        room.init()
        assert room.end(False, 2) == [Given(NONE, 100, 1)]
        assert room.markers.held == []
        assert room.written() == [("x", "Empty"), ("x", "PrepareAbort"), ("x", "CompleteAbort")]

    def test_unknown_ids(self, room: Room) -> None:
        answers: list[Any] = []
        room.shard.add_partitions("y", Producer(1, 0), [T0], 0, answers.append)
        room.shard.end("y", Producer(1, 0), True, 0, answers.append)
        assert answers == [ErrorCode.INVALID_PRODUCER_ID_MAPPING, Given(ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        assert room.shard.verify("y", Producer(1, 0), [T0]) == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        with pytest.raises(ApiError) as caught:
            room.shard.look("y")
        assert caught.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def test_an_open_transaction_is_aborted_before_the_next_producer_gets_its_epoch(self, room: Room) -> None:
        room.init()
        room.add(T0)
        assert room.init() == [Given(BUSY)]
        assert room.init() == [Given(BUSY)]
        ((completion, _),) = room.markers.held
        assert (completion.is_commit, completion.producer_epoch) == (False, 1)
        room.markers.deliver()
        assert room.init() == [Given(NONE, 100, 2)]


class TestWaiting:
    """A request that meets a change waits for it, but not for long."""

    @pytest.fixture
    def room(self) -> Room:
        room = Room(2, busy_wait_ms=100)
        room.init()
        room.add(T0, version=2)
        room.end(True, 2)
        return room

    def next_producer(self, room: Room) -> Producer:
        return Producer(room.data.producer_id, room.data.producer_epoch)

    def test_an_addition_waits_until_all_markers_are_written(self, room: Room) -> None:
        answers = room.add(T0, T1, version=2)
        assert answers == []
        assert room.data.state is TxnState.PREPARE_COMMIT
        room.manager.holds = True
        room.markers.deliver()
        assert [state for _, state in room.written()[-2:]] == ["CompleteCommit", "Ongoing"]  # one replication round
        room.manager.release()
        assert answers == [NONE]
        assert room.data.partitions == {T0, T1}

    def test_leaders_that_add_at_once_share_a_round(self, room: Room) -> None:
        room.markers.deliver()
        room.manager.holds = True
        answers = [room.add(tp, version=2) for tp in (T0, T1)]
        room.manager.release()
        assert answers == [[NONE], [NONE]]
        assert room.data.partitions == {T0, T1}

    def test_an_end_of_the_next_epoch_waits_too(self, room: Room) -> None:
        answers = room.end(False, 2)
        assert answers == []
        room.markers.deliver()
        assert answers == [Given(NONE, 100, 2)]

    def test_only_for_a_while(self, room: Room) -> None:
        early = room.add(T0, version=2)
        room.clock.advance_ms(60)
        late = room.end(False, 2)
        room.clock.advance_ms(40)
        room.scheduler.run_due()
        assert (early, late) == ([BUSY], [])
        room.clock.advance_ms(59)
        room.scheduler.run_due()
        assert late == []
        room.clock.advance_ms(1)
        room.scheduler.run_due()
        assert late == [Given(BUSY)]
        room.markers.deliver()
        assert (early, late) == ([BUSY], [Given(BUSY)])
        assert room.data.state is TxnState.COMPLETE_COMMIT

    def test_who_is_late_but_was_tried_again_is_answered_once(self, room: Room) -> None:
        answers = room.add(T0, version=2)
        room.clock.advance_ms(200)
        room.markers.deliver()
        room.scheduler.run_due()
        assert answers == [NONE]

    def test_a_coordinator_that_moves_sends_them_away(self, room: Room) -> None:
        added, ended = room.add(T0, version=2), room.end(False, 2)
        room.shard.close()
        assert (added, ended) == ([ErrorCode.NOT_COORDINATOR], [Given(ErrorCode.NOT_COORDINATOR)])
        room.clock.advance_ms(200)
        room.scheduler.run_due()
        assert (len(added), len(ended)) == (1, 1)

    def test_a_mistake_of_ours_leaves_nobody_unanswered(self, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any) -> None:
            raise ZeroDivisionError

        ended, added = room.end(False, 2), room.add(T0, version=2)
        monkeypatch.setattr(Transaction, "end", fail)
        room.markers.deliver()
        assert ended == [Given(ErrorCode.UNKNOWN_SERVER_ERROR)]
        assert added == [ErrorCode.NOT_COORDINATOR]

    def test_a_fenced_one_is_told_when_it_is_sure(self, room: Room) -> None:
        stranger = room.add(T0, producer=Producer(100, 0), version=2)
        assert stranger == []
        room.markers.deliver()
        assert stranger == [ErrorCode.PRODUCER_FENCED]

    def test_a_change_that_the_log_refuses_lets_the_next_one_try(self, room: Room) -> None:
        room.markers.deliver()
        room.manager.holds = True
        room.add(T0, version=2)
        ended = room.end(True, 2)
        room.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert room.add(T1, version=2) == [AWAY]
        room.manager.refuses = NONE
        room.manager.release()
        room.manager.release()
        assert ended == [Given(NONE, 100, 2)]
        assert room.markers.held[0][1] == {T0}


class TestWritesThatFail:
    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (ErrorCode.NOT_ENOUGH_REPLICAS, AWAY),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_what_the_log_refuses_has_not_happened(self, room: Room, error: ErrorCode, told: ErrorCode) -> None:
        room.init()
        room.manager.refuses = error
        assert room.add(T0) == [told]
        assert room.data.state is TxnState.EMPTY
        room.manager.refuses = NONE
        assert room.add(T0) == [NONE]

    def test_what_was_not_replicated_in_time_is_pending_until_it_is(self, room: Room) -> None:
        room.init()
        room.add(T0)
        room.manager.holds = True
        answers = room.end(True)
        room.manager.release(ErrorCode.REQUEST_TIMED_OUT)
        assert answers == [Given(AWAY)]
        assert room.end(False) == [Given(BUSY)]  # nobody may decide otherwise: the record may be committed yet
        room.manager.logs[TP].high_watermark = room.manager.logs[TP].log_end_offset
        assert room.data.state is TxnState.PREPARE_COMMIT
        assert len(room.markers.held) == 1

    def test_it_takes_effect_without_anybody_asking(self, room: Room) -> None:
        room.init()
        room.add(T0)
        room.manager.holds = True
        room.end(True)
        room.manager.release(ErrorCode.REQUEST_TIMED_OUT)
        room.shard.retry()
        assert room.markers.held == []
        room.manager.logs[TP].high_watermark = room.manager.logs[TP].log_end_offset
        room.shard.retry()
        assert len(room.markers.held) == 1

    def test_an_end_that_cannot_be_written_is_written_later(self, room: Room) -> None:
        room.init()
        room.add(T0)
        room.end(True)
        room.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        room.markers.deliver()
        room.shard.retry()
        assert room.add(T0) == [BUSY]
        assert room.data.state is TxnState.PREPARE_COMMIT
        room.manager.refuses = NONE
        room.shard.retry()
        assert room.data.state is TxnState.COMPLETE_COMMIT

    def test_a_fence_that_cannot_be_written_is_no_fence(self, room: Room) -> None:
        room.init()
        room.add(T0)
        room.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert room.init() == [Given(AWAY)]
        room.manager.refuses = NONE
        assert room.end(True) == [Given(NONE, 100, 0)]


class TestFailover:
    """The coordinator dies in every state; the next one goes on from what is committed."""

    def test_empty_and_ongoing(self, room: Room) -> None:
        room.init()
        room.move()
        assert room.add(T0, T1) == [NONE]
        room.move()
        assert room.data.partitions == {T0, T1}
        assert room.end(True) == [Given(NONE, 100, 0)]

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_prepared_goes_on_with_its_markers(self, room: Room, is_commit: bool) -> None:
        room.init()
        room.add(T0, T1)
        room.end(is_commit)
        ((old, _),) = room.markers.held
        old.shard.marked(old, [T0])
        room.markers.held.clear()
        room.move()
        ((completion, partitions),) = room.markers.held
        assert (completion.is_commit, partitions) == (is_commit, {T0, T1})
        assert completion.coordinator_epoch == old.coordinator_epoch + 1
        old.shard.marked(old, [T1])  # the zombie's news are nothing to anybody
        assert room.data.state in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
        assert not old.shard.is_wanted(old)
        room.markers.deliver()
        assert room.data.state is (TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT)
        room.move()
        assert room.add(T0) == [NONE]

    @pytest.mark.parametrize("step", ["init", "add", "end"])
    def test_what_was_not_committed_is_lost_and_was_never_confirmed(self, room: Room, step: str) -> None:
        if step != "init":
            room.init()
        if step == "end":
            room.add(T0)
        before = None if step == "init" else room.data
        room.manager.holds = True
        answers: list[Any] = {"init": room.init, "add": lambda: room.add(T0), "end": lambda: room.end(True)}[step]()
        room.move()
        assert [getattr(answer, "error", answer) for answer in answers] == [ErrorCode.NOT_COORDINATOR]
        assert room.markers.held == []
        if before is None:
            with pytest.raises(ApiError):
                room.shard.look("x")
        else:
            assert room.data._replace(last_producer_epoch=-1, previous_producer_id=-1) == before._replace(
                last_producer_epoch=-1, previous_producer_id=-1
            )

    def test_the_epoch_of_version_2_survives(self, room: Room) -> None:
        room.version = 2
        room.init()
        room.add(T0, version=2)
        room.end(True, 2)
        room.move()
        room.markers.deliver()
        room.move()
        assert room.producer == (100, 1)
        answers: list[Given] = []
        room.shard.end("x", Producer(100, 0), True, 2, answers.append)
        assert answers == [Given(NONE, 100, 1)]  # the client had not heard of it

    def test_gates(self, room: Room) -> None:
        shard = room.open()
        assert shard.state is ShardState.LOADING
        loading, gone = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
        for expected in (loading, gone):
            answers: list[Any] = []
            shard.init_producer_id("x", 1, None, answers.append)
            shard.add_partitions("x", Producer(1, 0), [T0], 0, answers.append)
            shard.end("x", Producer(1, 0), True, 0, answers.append)
            assert answers == [Given(expected), expected, Given(expected)]
            assert shard.verify("x", Producer(1, 0), [T0]) == {T0: expected}
            for look in (shard.listed, lambda: shard.look("x")):
                with pytest.raises(ApiError) as caught:
                    look()
                assert caught.value.code == expected
            shard.close()

    def test_a_partition_that_knows_a_newer_coordinator_ends_nothing_here(self, room: Room) -> None:
        room.init()
        room.add(T0)
        room.end(True)
        ((completion, _),) = room.markers.held
        completion.shard.abandoned(completion)
        completion.shard.marked(completion, [T0])
        assert room.data.state is TxnState.PREPARE_COMMIT
        assert room.add(T0) == [BUSY]


class TestTime:
    def test_an_open_transaction_is_aborted_and_its_producer_fenced(self, room: Room) -> None:
        room.init()
        room.add(T0)
        producer = room.producer
        room.clock.advance_ms(60_000)
        room.shard.abort_timed_out()
        assert room.data.state is TxnState.ONGOING
        room.clock.advance_ms(1)
        room.shard.abort_timed_out()
        room.markers.deliver()
        assert (room.data.state, room.data.producer_epoch) == (TxnState.COMPLETE_ABORT, 1)
        assert room.add(T0, producer=producer) == [ErrorCode.PRODUCER_FENCED]

    def test_idle_ids_are_forgotten_with_a_tombstone(self, room: Room) -> None:
        room.init()
        room.init(id_="y")
        room.shard.add_partitions("y", Producer(101, 0), [T0], 0, lambda _error: None)
        room.clock.advance_ms(1000)
        room.shard.remove_expired()
        assert room.written()[-1] == ("x", None)
        assert [id_ for id_, _ in room.shard.listed()] == ["y"]
        room.move()
        assert [id_ for id_, _ in room.shard.listed()] == ["y"]

    def test_an_id_is_there_until_its_tombstone_is_committed(self, room: Room) -> None:
        room.init()
        room.clock.advance_ms(1000)
        room.manager.holds = True
        room.shard.remove_expired()
        assert room.init() == [Given(BUSY)]
        room.manager.release()
        room.manager.holds = False
        assert room.init() == [Given(NONE, 101, 0)]

    def test_expiry_that_the_log_refuses_is_no_expiry(self, room: Room) -> None:
        room.init()
        room.clock.advance_ms(1000)
        room.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        room.shard.remove_expired()
        room.manager.refuses = NONE
        assert room.init() == [Given(NONE, 100, 1)]
