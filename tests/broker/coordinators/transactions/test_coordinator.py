"""The transaction coordinator without threads: the shard of an id, when it serves, queries of all shards.

Tests `coordinators/runtime/led_shards.py`, too.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.coordinators.runtime.partitioning import partition_for
from barnabas.broker.coordinators.transactions.coordinator import RETRY_MS, Filters, TransactionCoordinator
from barnabas.broker.coordinators.transactions.shard import ProducerResult, TransactionShard
from barnabas.broker.coordinators.transactions.transaction import Producer, TxnState
from barnabas.broker.metadata.metadata_cache import TRANSACTION_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse
from tests.support.broker.broker_rig import BrokerRig, state

T0 = TopicPartition("t", 0)
LOADING, AWAY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR


class TransactionCoordinatorRig(BrokerRig):
    """Broker 1 leads __transaction_state-0, broker 2 leads __transaction_state-1."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self.coordinator: TransactionCoordinator = self.transaction_coordinator
        self.lead()
        self.producer_ids.prefetch()
        self.channel.sent[0][1](AllocateProducerIdsResponse(producer_id_start=100, producer_id_len=100))

    def lead(self, leader: int = 1, epoch: int = 0, **more: Any) -> None:
        first = state(leader, [1, 2], leader_epoch=epoch, partition_epoch=epoch, **more)
        self.push({TRANSACTION_STATE_TOPIC: [first, state(2, [1, 2])], "t": [state(1)]})

    def load(self) -> None:
        self.coordinator.run_pending_jobs()

    def init(self, id_: str, timeout_ms: int = 60_000, **more: Any) -> list[ProducerResult]:
        answers: list[ProducerResult] = []
        self.coordinator.init_producer_id(id_, timeout_ms, None, answers.append, **more)
        return answers


def id_in(partition: int, number: int = 0) -> str:
    """A transactional id that this partition coordinates."""
    found = [f"id-{n}" for n in range(100) if partition_for(f"id-{n}", 2) == partition]
    return found[number]


MINE, MINE_TOO, THEIRS = id_in(0), id_in(0, 1), id_in(1)


@pytest.fixture
def rig() -> TransactionCoordinatorRig:
    rig = TransactionCoordinatorRig()
    rig.lead(isr=[1], epoch=1)
    rig.load()
    return rig


def test_each_id_has_its_coordinator(rig: TransactionCoordinatorRig) -> None:
    assert rig.init(MINE) == [ProducerResult(ErrorCode.NONE, 100, 0)]
    assert rig.init(THEIRS) == [ProducerResult(AWAY)]
    with pytest.raises(ApiError) as caught:
        rig.coordinator.describe(THEIRS)
    assert caught.value.code == AWAY
    assert rig.coordinator.verify(THEIRS, Producer(1, 0), [T0]) == {T0: AWAY}


def test_it_answers_when_it_has_loaded_and_no_more_when_it_has_resigned() -> None:
    rig = TransactionCoordinatorRig()
    assert rig.init(MINE) == [ProducerResult(LOADING)]
    rig.load()
    waiting = rig.init(MINE)
    assert waiting == []  # the follower does not have it yet
    rig.lead(leader=2, epoch=1)
    assert waiting == [ProducerResult(AWAY)]
    assert rig.init(MINE) == [ProducerResult(AWAY)]


def test_what_is_loaded_counts_when_it_is_committed() -> None:
    """A marker must never follow from a record that the next leader might not have."""
    rig = TransactionCoordinatorRig()
    rig.load()
    rig.init(MINE)
    rig.lead(epoch=1)
    rig.load()
    assert rig.init(MINE) == [ProducerResult(LOADING)]
    rig.lead(isr=[1], epoch=2)  # the follower is given up: what is here is committed
    rig.load()
    rig.load()
    assert rig.coordinator.describe(MINE).state is TxnState.EMPTY


def test_a_new_epoch_of_the_same_leader_loads_anew(rig: TransactionCoordinatorRig) -> None:
    rig.init(MINE)
    rig.lead(isr=[1], epoch=2)
    assert rig.init(MINE) == [ProducerResult(LOADING)]
    rig.load()
    assert rig.init(MINE) == [ProducerResult(ErrorCode.NONE, 100, 1)]


def test_an_old_push_changes_nothing(rig: TransactionCoordinatorRig) -> None:
    tp = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
    rig.coordinator.on_leadership(tp, 1)
    rig.coordinator.on_resignation(tp, 0)
    assert rig.init(MINE)[0].error == ErrorCode.NONE


@pytest.mark.parametrize(
    ("id_", "timeout_ms", "more", "error"),
    [
        ("", 1, {}, ErrorCode.INVALID_REQUEST),
        (MINE, 0, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (MINE, 900_001, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (MINE, 1, {"is_two_phase": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (MINE, 1, {"keeps_prepared": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_a_producer_may_ask_for(
    rig: TransactionCoordinatorRig, id_: str, timeout_ms: int, more: dict[str, bool], error: ErrorCode
) -> None:
    assert rig.init(id_, timeout_ms, **more) == [ProducerResult(error)]


def retries(rig: TransactionCoordinatorRig) -> int:
    """How many periodic tasks retry what a log refused."""
    return sum(task.name == "transaction-retry" and not task.cancelled for task in rig.scheduler._heap.tasks)


def test_retries_are_scheduled_while_a_shard_needs_them() -> None:
    """A broker without open writes does not wake up for them."""
    rig = TransactionCoordinatorRig()
    assert retries(rig) == 0
    rig.lead(isr=[1], epoch=1)
    rig.load()
    rig.init(MINE)
    assert retries(rig) == 1
    rig.advance_ms(RETRY_MS)
    assert retries(rig) == 0, "the write is committed"
    rig.lead(isr=[1, 2], epoch=2)  # nothing is committed before the follower has it
    rig.load()
    answers = rig.init(MINE_TOO)
    rig.advance_ms(RETRY_MS)
    rig.init(MINE)
    assert retries(rig) == 1
    rig.advance_ms(rig.config.request_timeout_ms)
    assert retries(rig) == 1, "a write that timed out may be committed at any time"
    assert [answer.error for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    rig.lead(leader=2, epoch=3)
    rig.advance_ms(RETRY_MS)
    assert retries(rig) == 0


def test_a_shard_that_needs_a_retry_while_others_are_retried_is_seen(
    rig: TransactionCoordinatorRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.init(MINE)
    with monkeypatch.context() as patched:
        patched.setattr(TransactionShard, "retry", lambda _shard: rig.init(MINE_TOO))
        rig.advance_ms(RETRY_MS)
    assert retries(rig) == 1
    rig.advance_ms(RETRY_MS)
    assert retries(rig) == 0


def test_two_phase_transactions_never_time_out() -> None:
    rig = TransactionCoordinatorRig(transaction_two_phase_commit_enable="true")
    rig.lead(isr=[1], epoch=1)
    rig.load()
    assert rig.init(MINE, 0, is_two_phase=True)[0].error == ErrorCode.NONE
    assert rig.coordinator.describe(MINE).timeout_ms == 2**31 - 1


def test_listing(rig: TransactionCoordinatorRig) -> None:
    rig.init(MINE)
    rig.init(MINE_TOO)
    rig.coordinator.add_partitions(MINE_TOO, Producer(101, 0), [T0], 0, lambda _error: None)
    rig.clock.advance_ms(500)

    def listed(**filters: Any) -> list[str]:
        return [id_ for id_, _ in rig.coordinator.list(Filters(**filters))]

    assert listed() == [MINE, MINE_TOO]
    assert listed(states=frozenset({"Ongoing"})) == listed(producer_ids=frozenset({101})) == [MINE_TOO]
    assert listed(duration_ms=500) == [MINE]  # it has not begun: its beginning is unknown, as in Kafka
    assert listed(duration_ms=499) == [MINE, MINE_TOO]
    assert listed(pattern=MINE_TOO) == [MINE_TOO]
    assert listed(pattern=MINE_TOO[:-1]) == []
    assert listed(pattern="(a+)+b") == []
    assert listed(pattern="(?i)ID-.*") == listed()
    with pytest.raises(ApiError) as caught:
        listed(pattern="(")
    assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_periodic_tasks(rig: TransactionCoordinatorRig) -> None:
    rig.init(MINE)
    rig.coordinator.add_partitions(MINE, Producer(100, 0), [T0], 0, lambda _error: None)
    rig.clock.advance_ms(60_001)
    rig.coordinator.abort_timed_out()
    assert rig.coordinator.describe(MINE).state is TxnState.PREPARE_ABORT
    ((completion, partitions),) = rig.markers.held
    completion.shard.marked(completion, partitions)
    rig.clock.advance_ms(rig.config.transactional_id_expiration_ms)
    rig.coordinator.remove_expired()
    assert rig.coordinator.list(Filters()) == []


def test_idempotent_producers_need_no_coordinator() -> None:
    answers: list[ProducerResult] = []
    TransactionCoordinatorRig().coordinator.init_producer_id(None, 0, None, answers.append)
    assert answers == [ProducerResult(ErrorCode.NONE, 100, 0)]
