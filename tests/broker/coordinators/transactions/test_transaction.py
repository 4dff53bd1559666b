"""One transactional id: every state with every event, then scenarios of several steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.coordinators.transactions.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    MAY_FOLLOW,
    NO_EPOCH,
    PREPARED,
    TWO_PHASE_TIMEOUT_MS,
    Producer,
    Transaction,
    TxnData,
    TxnState,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER_ID, EPOCH, NEXT_ID = 7, 5, 99
NOW = 1_000
NONE, FENCED, MAPPING, BUSY, INVALID, ABORTABLE = (
    ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE,
)  # fmt: skip
SHORT = {"FENCED": FENCED, "MAPPING": MAPPING, "BUSY": BUSY, "INVALID": INVALID, "ABORTABLE": ABORTABLE, "none": NONE}

#: What each event does in each state: an error, "-" for nothing to write, or the state written and its epoch (5 before)
TABLE = """
event                     | Empty          | Ongoing         | PrepareCommit | PrepareAbort | CompleteCommit | CompleteAbort
init                      | Empty 6        | PrepareAbort 6  | BUSY          | BUSY         | Empty 6        | Empty 6
init, fence by version 2  | Empty 6        | PrepareAbort 6  | BUSY          | BUSY         | Empty 6        | Empty 6
init, my epoch            | Empty 6        | PrepareAbort 6  | BUSY          | BUSY         | Empty 6        | Empty 6
init, old epoch           | FENCED         | PrepareAbort 6  | BUSY          | BUSY         | FENCED         | FENCED
init, another id          | FENCED         | FENCED          | FENCED        | FENCED       | FENCED         | FENCED
add                       | Ongoing 5      | Ongoing 5       | BUSY          | BUSY         | Ongoing 5      | Ongoing 5
add the same              | Ongoing 5      | -               | BUSY          | BUSY         | Ongoing 5      | Ongoing 5
add, old epoch            | FENCED         | FENCED          | FENCED        | FENCED       | FENCED         | FENCED
add, another id           | MAPPING        | MAPPING         | MAPPING       | MAPPING      | MAPPING        | MAPPING
verify its own            | ABORTABLE      | none            | BUSY          | BUSY         | ABORTABLE      | ABORTABLE
verify another            | ABORTABLE      | ABORTABLE       | BUSY          | BUSY         | ABORTABLE      | ABORTABLE
verify, old epoch         | FENCED         | FENCED          | FENCED        | FENCED       | FENCED         | FENCED
verify, another id        | MAPPING        | MAPPING         | MAPPING       | MAPPING      | MAPPING        | MAPPING
abort                     | INVALID        | PrepareAbort 5  | INVALID       | BUSY         | INVALID        | -
commit                    | INVALID        | PrepareCommit 5 | BUSY          | INVALID      | -              | INVALID
abort, old epoch          | FENCED         | FENCED          | FENCED        | FENCED       | FENCED         | FENCED
commit, another id        | MAPPING        | MAPPING         | MAPPING       | MAPPING      | MAPPING        | MAPPING
abort v2                  | PrepareAbort 6 | PrepareAbort 6  | FENCED        | FENCED       | PrepareAbort 6 | PrepareAbort 6
commit v2                 | INVALID        | PrepareCommit 6 | FENCED        | FENCED       | INVALID        | INVALID
abort v2, epoch before    | FENCED         | FENCED          | INVALID       | BUSY         | INVALID        | -
commit v2, epoch before   | FENCED         | FENCED          | BUSY          | INVALID      | -              | INVALID
abort v2, old epoch       | FENCED         | FENCED          | FENCED        | FENCED       | FENCED         | FENCED
commit v2, another id     | MAPPING        | MAPPING         | MAPPING       | MAPPING      | MAPPING        | MAPPING
fence                     | INVALID        | PrepareAbort 6  | INVALID       | INVALID      | INVALID        | INVALID
fence by version 2        | INVALID        | PrepareAbort 6  | INVALID       | INVALID      | INVALID        | INVALID
"""  # noqa: E501


def ids() -> Callable[[], int]:
    return lambda: NEXT_ID


def mine(epoch: int = EPOCH) -> Producer:
    return Producer(PRODUCER_ID, epoch)


OTHER = Producer(8, EPOCH)
Event = Callable[[Transaction], "TxnData | ErrorCode | None"]


def init(expected: Producer | None = None, server: int = 0) -> Event:
    return lambda t: t.init_producer_id(60_000, expected, ids(), server, NOW)


def add(tp: TopicPartition = T1, producer: Producer | None = None) -> Event:
    return lambda t: t.add_partitions(producer or mine(), [tp], 0, NOW)


def verify(tp: TopicPartition = T0, producer: Producer | None = None) -> Event:
    return lambda t: t.verify(producer or mine(), [tp])[tp]


def end(is_commit: bool, version: int = 0, producer: Producer | None = None) -> Event:
    return lambda t: t.end(producer or mine(), is_commit, version, ids(), NOW)


EVENTS: dict[str, Event] = {
    "init": init(),
    "init, fence by version 2": init(server=2),
    "init, my epoch": init(mine()),
    "init, old epoch": init(mine(3)),
    "init, another id": init(OTHER),
    "add": add(),
    "add the same": add(T0),
    "add, old epoch": add(producer=mine(4)),
    "add, another id": add(producer=OTHER),
    "verify its own": verify(),
    "verify another": verify(T1),
    "verify, old epoch": verify(producer=mine(4)),
    "verify, another id": verify(producer=OTHER),
    "abort": end(False),
    "commit": end(True),
    "abort, old epoch": end(False, producer=mine(4)),
    "commit, another id": end(True, producer=OTHER),
    "abort v2": end(False, 2),
    "commit v2": end(True, 2),
    "abort v2, epoch before": end(False, 2, mine(4)),
    "commit v2, epoch before": end(True, 2, mine(4)),
    "abort v2, old epoch": end(False, 2, mine(3)),
    "commit v2, another id": end(True, 2, OTHER),
    "fence": lambda t: t.fence(ids(), 0, NOW),
    "fence by version 2": lambda t: t.fence(ids(), 2, NOW),
}
STATES = [state for state in TxnState if state not in (TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE)]
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]
CASES = [
    pytest.param(EVENTS[name], state, cell, id=f"{name} in {state.value}")
    for name, *cells in ROWS[1:]
    for state, cell in zip(STATES, cells, strict=True)
]


def in_state(state: TxnState, **fields: object) -> Transaction:
    has_begun = state is TxnState.ONGOING or state in PREPARED
    data = TxnData(
        PRODUCER_ID, EPOCH, 60_000, state, frozenset({T0}) if has_begun else frozenset(),
        start_ms=500 if has_begun else -1, update_ms=600,
    )._replace(**fields)  # type: ignore[arg-type]  # fmt: skip
    return Transaction("id", data)


def outcome(event: Event, transaction: Transaction) -> str:
    try:
        result = event(transaction)
    except ApiError as error:
        result = error.code
    if result is None:
        return "-"
    if isinstance(result, TxnData):
        assert (transaction.written or transaction.data).state in MAY_FOLLOW[result.state]
        return f"{result.state.value} {result.producer_epoch}"
    return {code: name for name, code in SHORT.items()}[result]


def test_the_table_is_whole() -> None:
    assert [name for name, *_ in ROWS[1:]] == list(EVENTS)
    assert ROWS[0][1:] == [state.value for state in STATES]


@pytest.mark.parametrize(("event", "state", "expected"), CASES)
def test_every_event_in_every_state(event: Event, state: TxnState, expected: str) -> None:
    assert outcome(event, in_state(state)) == expected


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", ["init", "add", "abort", "commit", "abort v2", "fence"])
def test_while_a_change_is_being_written_every_other_has_to_wait(name: str, state: TxnState) -> None:
    transaction = in_state(state)
    transaction.pending = TxnState.ONGOING
    assert outcome(EVENTS[name], transaction) == "BUSY"
    transaction.give_up()
    assert transaction.data == in_state(state).data


def append(transaction: Transaction, target: TxnData | None) -> TxnData:
    """Do what a shard does once the target is in the log."""
    assert target is not None
    transaction.pending, transaction.written = target.state, target
    return target


def write(transaction: Transaction, target: TxnData | None) -> TxnData:
    """Do what a shard does once the target is committed."""
    target = append(transaction, target)
    transaction.complete(target)
    return target


def begin(transaction: Transaction, producer: Producer, version: int = 0) -> None:
    write(transaction, transaction.add_partitions(producer, [T0], version, NOW))


def conclude(transaction: Transaction) -> TxnData:
    transaction.marked(T0)
    assert not transaction.data.partitions
    return write(transaction, transaction.finish(NOW))


def new_transaction() -> Transaction:
    return Transaction("id", TxnData(PRODUCER_ID))


class TestOneLife:
    def test_version_1(self) -> None:
        transaction = new_transaction()
        assert write(transaction, transaction.init_producer_id(60_000, None, ids(), 0, 10)) == TxnData(
            PRODUCER_ID, 0, 60_000, TxnState.EMPTY, update_ms=10, previous_producer_id=PRODUCER_ID
        )
        producer = mine(0)
        write(transaction, transaction.add_partitions(producer, [T0], 0, 20))
        write(transaction, transaction.add_partitions(producer, [T0, T1], 0, 30))
        data = transaction.data
        assert (data.state, data.partitions, data.start_ms, data.update_ms) == (TxnState.ONGOING, {T0, T1}, 20, 30)
        prepared = write(transaction, transaction.end(producer, True, 0, ids(), 40))
        assert (prepared.state, prepared.start_ms, prepared.producer_epoch) == (TxnState.PREPARE_COMMIT, 20, 0)
        transaction.marked(T1)
        assert transaction.data.partitions == {T0}
        done = conclude(transaction)
        assert (done.state, done.partitions, done.producer_epoch) == (TxnState.COMPLETE_COMMIT, frozenset(), 0)
        begin(transaction, producer)
        assert transaction.data.start_ms == NOW

    def test_version_2_raises_the_epoch_with_every_end(self) -> None:
        transaction = new_transaction()
        write(transaction, transaction.init_producer_id(60_000, None, ids(), 2, NOW))
        for epoch, is_commit in enumerate((True, False, True)):
            begin(transaction, mine(epoch), 2)
            write(transaction, transaction.end(mine(epoch), is_commit, 2, ids(), NOW))
            assert transaction.finish(NOW).producer_epoch == epoch + 1
            conclude(transaction)
            assert transaction.end(mine(epoch), is_commit, 2, ids(), NOW) is None  # the same request again
        assert transaction.data.producer_epoch == 3

    def test_version_2_may_abort_what_has_not_begun(self) -> None:
        transaction = in_state(TxnState.COMPLETE_COMMIT, client_version=2)
        target = write(transaction, transaction.end(mine(), False, 2, ids(), NOW))
        assert (target.partitions, target.start_ms, target.producer_epoch) == (frozenset(), NOW, EPOCH + 1)
        assert transaction.finish(NOW).state is TxnState.COMPLETE_ABORT


class TestAdditionsInTheLog:
    """Partitions may be added on top of what is in the log but not committed: leaders ask all at once."""

    def test_additions_follow_each_other(self) -> None:
        transaction = in_state(TxnState.EMPTY)
        first = append(transaction, transaction.add_partitions(mine(), [T0], 2, NOW))
        second = append(transaction, transaction.add_partitions(mine(), [T1], 2, NOW + 1))
        assert (second.partitions, second.start_ms) == ({T0, T1}, NOW)
        transaction.complete(first)
        assert (transaction.data.partitions, transaction.pending) == ({T0}, TxnState.ONGOING)
        assert outcome(end(True, 2), transaction) == "BUSY"
        transaction.complete(second)
        assert (transaction.data, transaction.pending) == (second, None)

    def test_what_is_there_but_not_committed_is_written_again(self) -> None:
        """The answer waits for a commitment, and its own record is the simplest one to wait for."""
        transaction = in_state(TxnState.EMPTY)
        append(transaction, transaction.add_partitions(mine(), [T0], 2, NOW))
        assert transaction.add_partitions(mine(), [T0], 2, NOW) is not None

    def test_an_addition_follows_the_end_of_the_transaction_before(self) -> None:
        transaction = in_state(TxnState.PREPARE_COMMIT, client_version=2, partitions=frozenset())
        done = append(transaction, transaction.finish(NOW))
        started = append(transaction, transaction.add_partitions(mine(), [T1], 2, NOW + 5))
        assert (started.state, started.partitions, started.start_ms) == (TxnState.ONGOING, {T1}, NOW + 5)
        for target in (done, started):
            transaction.complete(target)
        assert (transaction.data, transaction.pending) == (started, None)

    def test_also_under_the_producer_id_that_takes_over(self) -> None:
        transaction = in_state(
            TxnState.PREPARE_COMMIT, client_version=2, partitions=frozenset(), producer_epoch=EPOCH_MAX,
            next_producer_id=NEXT_ID,
        )  # fmt: skip
        transaction.pending = TxnState.COMPLETE_COMMIT
        heir = Producer(NEXT_ID, 0)  # as EndTxn returned it to the producer
        assert outcome(add(producer=heir), transaction) == "BUSY"
        assert outcome(end(True, 2, heir), transaction) == "BUSY"
        append(transaction, transaction.finish(NOW))
        assert outcome(add(producer=heir), transaction) == "Ongoing 0"
        assert outcome(add(), transaction) == "MAPPING"

    @pytest.mark.parametrize("name", ["init, my epoch", "abort v2", "commit v2", "fence"])
    def test_nothing_else_is(self, name: str) -> None:
        transaction = in_state(TxnState.ONGOING)
        append(transaction, transaction.add_partitions(mine(), [T1], 2, NOW))
        assert outcome(EVENTS[name], transaction) == "BUSY"

    def test_nor_on_top_of_anything_else(self) -> None:
        transaction = in_state(TxnState.EMPTY)
        append(transaction, transaction.init_producer_id(60_000, None, ids(), 2, NOW))
        assert outcome(add(), transaction) == "BUSY"


class TestTheNextEpochWhileTheLastTransactionEnds:
    """With version 2 a producer has its next epoch before the markers are written; it is never fenced by that."""

    @pytest.mark.parametrize("is_commit", [True, False])
    @pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH, EPOCH + 1])
    def test_it_is_to_come_again(self, epoch: int, is_commit: bool) -> None:
        transaction = in_state(TxnState.PREPARE_COMMIT, client_version=2)
        transaction.pending = TxnState.COMPLETE_COMMIT
        assert outcome(end(is_commit, 2, mine(epoch)), transaction) == "BUSY"

    def test_and_then_gets_what_it_wants(self) -> None:
        transaction = in_state(TxnState.PREPARE_COMMIT, client_version=2)
        transaction.pending = TxnState.COMPLETE_COMMIT
        conclude(transaction)
        assert outcome(end(False, 2), transaction) == f"PrepareAbort {EPOCH + 1}"
        assert outcome(end(False, 2, mine(EPOCH - 2)), transaction) == "FENCED"
        assert outcome(end(False, 2, OTHER), transaction) == "MAPPING"


class TestFencing:
    def test_a_second_producer_fences_the_first(self) -> None:
        transaction = in_state(TxnState.ONGOING)
        prepared = write(transaction, transaction.init_producer_id(60_000, None, ids(), 0, NOW))
        assert (prepared.state, prepared.producer_epoch, prepared.timeout_ms) == (TxnState.PREPARE_ABORT, 6, 60_000)
        conclude(transaction)
        assert write(transaction, transaction.init_producer_id(9_000, None, ids(), 0, NOW))[:3] == (7, 7, 9_000)
        assert outcome(end(True), transaction) == "FENCED"

    def test_a_timeout_fences_the_producer(self) -> None:
        transaction = in_state(TxnState.ONGOING, start_ms=500, timeout_ms=400)
        assert not transaction.is_timed_out(900)
        assert transaction.is_timed_out(901)
        write(transaction, transaction.fence(ids(), 0, 901))
        assert not transaction.is_timed_out(10_000)
        assert outcome(end(True), transaction) == "FENCED"

    def test_a_two_phase_transaction_never_times_out(self) -> None:
        transaction = in_state(TxnState.ONGOING, start_ms=500, timeout_ms=TWO_PHASE_TIMEOUT_MS)
        assert not transaction.is_timed_out(2**40)

    def test_a_fence_that_could_not_be_written_raises_the_epoch_no_further(self) -> None:
        transaction = in_state(TxnState.ONGOING)
        for _ in range(3):
            target = transaction.fence(ids(), 0, NOW)
            transaction.pending = target.state
            transaction.give_up()
            assert target.producer_epoch == EPOCH + 1

    def test_the_epoch_kept_for_fencing(self) -> None:
        transaction = in_state(TxnState.ONGOING, producer_epoch=LAST_EPOCH)
        assert transaction.fence(ids(), 0, NOW).producer_epoch == EPOCH_MAX
        transaction = in_state(TxnState.ONGOING, producer_epoch=EPOCH_MAX)
        assert transaction.fence(ids(), 2, NOW).producer_epoch == EPOCH_MAX


class TestKip360:
    """A producer that sends its id and epoch gets the next epoch once, however often it retries."""

    def test_the_epoch_is_raised_and_a_repeated_request_gets_the_same(self) -> None:
        transaction = in_state(TxnState.EMPTY)
        for _ in range(2):
            target = write(transaction, transaction.init_producer_id(60_000, mine(), ids(), 0, NOW))
            assert (target.producer_epoch, target.last_producer_epoch) == (6, 5)

    def test_after_another_producer_came_the_first_is_fenced(self) -> None:
        transaction = in_state(TxnState.EMPTY)
        write(transaction, transaction.init_producer_id(60_000, mine(), ids(), 0, NOW))
        write(transaction, transaction.init_producer_id(60_000, None, ids(), 0, NOW))
        assert outcome(init(mine()), transaction) == "FENCED"

    def test_a_forgotten_id_takes_its_producer_back(self) -> None:
        transaction = new_transaction()
        assert outcome(init(Producer(1234, 77)), transaction) == "Empty 0"


class TestLastEpoch:
    def test_another_producer_id_takes_over(self) -> None:
        transaction = in_state(TxnState.EMPTY, producer_epoch=LAST_EPOCH)
        target = write(transaction, transaction.init_producer_id(60_000, None, ids(), 0, NOW))
        assert (target.producer_id, target.producer_epoch, target.last_producer_epoch) == (NEXT_ID, 0, NO_EPOCH)
        assert target.previous_producer_id == PRODUCER_ID

    def test_and_a_repeated_request_is_known_by_the_old_one(self) -> None:
        transaction = in_state(TxnState.EMPTY, producer_epoch=LAST_EPOCH)
        for _ in range(2):
            target = write(transaction, transaction.init_producer_id(60_000, mine(LAST_EPOCH), ids(), 0, NOW))
            assert (target.producer_id, target.producer_epoch) == (NEXT_ID, 0)

    def test_in_version_2_it_takes_over_with_the_end(self) -> None:
        transaction = in_state(TxnState.ONGOING, producer_epoch=LAST_EPOCH)
        prepared = write(transaction, transaction.end(mine(LAST_EPOCH), True, 2, ids(), NOW))
        assert prepared[:2] == (PRODUCER_ID, EPOCH_MAX)
        assert prepared.next_producer_id == NEXT_ID
        done = conclude(transaction)
        assert (done.producer_id, done.producer_epoch, done.next_producer_id) == (NEXT_ID, 0, -1)
        assert transaction.end(mine(LAST_EPOCH), True, 2, ids(), NOW) is None
        begin(transaction, Producer(NEXT_ID, 0), 2)

    @pytest.mark.parametrize("name", ["fence by version 2", "init, fence by version 2"])
    def test_in_version_2_it_takes_over_with_a_fence_too(self, name: str) -> None:
        """A producer must not go on with the last epoch, which is there to fence it."""
        transaction = in_state(TxnState.ONGOING, producer_epoch=LAST_EPOCH)
        prepared = EVENTS[name](transaction)
        assert isinstance(prepared, TxnData)
        write(transaction, prepared)
        assert (prepared[:2], prepared.next_producer_id) == ((PRODUCER_ID, EPOCH_MAX), NEXT_ID)
        done = conclude(transaction)
        assert (done.state, done.producer_id, done.producer_epoch) == (TxnState.COMPLETE_ABORT, NEXT_ID, 0)
        assert transaction.end(mine(LAST_EPOCH), False, 2, ids(), NOW) is None  # it gets the new id
        again = transaction.init_producer_id(60_000, mine(LAST_EPOCH), ids(), 2, NOW)
        assert (again.producer_id, again.producer_epoch) == (NEXT_ID, 0)

    def test_in_version_1_it_does_not(self) -> None:
        transaction = in_state(TxnState.ONGOING, producer_epoch=LAST_EPOCH)
        write(transaction, transaction.fence(ids(), 0, NOW))
        assert conclude(transaction)[:2] == (PRODUCER_ID, EPOCH_MAX)


class TestExpiry:
    @pytest.mark.parametrize("state", STATES)
    def test_only_idle_ids_expire(self, state: TxnState) -> None:
        transaction = in_state(state, update_ms=1_000)
        is_idle = state in MAY_FOLLOW[TxnState.DEAD]
        assert not transaction.is_expired(1_099, 100)
        assert transaction.is_expired(1_100, 100) == is_idle
        transaction.pending = TxnState.ONGOING
        assert not transaction.is_expired(5_000, 100)

    def test_a_dead_one_answers_nobody(self) -> None:
        transaction = in_state(TxnState.EMPTY)
        transaction.pending = transaction.expire().state
        assert outcome(init(), transaction) == outcome(add(), transaction) == "BUSY"
