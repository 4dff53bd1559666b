"""The APIs of transactions, on a broker that leads __transaction_state.

Tests `apis/k24_add_partitions_to_txn.py`, `apis/k25_add_offsets_to_txn.py`, `apis/k26_end_txn.py`,
`apis/k28_txn_offset_commit.py`, `apis/k65_describe_transactions.py` and `apis/k66_list_transactions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.k26_end_txn import EndTxnRequest
from barnabas.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.k66_list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse
from tests.support.broker.broker_rig import BrokerRig, state
from tests.support.broker.parked import Waiting

NONE = ErrorCode.NONE
PRODUCER_ID = 1000


class TransactionApiRig(BrokerRig):
    """A broker that coordinates every transactional id; producer "x" has its first epoch."""

    def __init__(self) -> None:
        super().__init__()
        groups: Any = SimpleNamespace(
            partition_for=lambda _group_id: 0, on_metadata_update=lambda _former_ids: None, now_ms=1,
            offset_metadata_max_chars=10, commit_in_transaction=self._commit,
        )  # fmt: skip
        self.services.group_coordinator = groups
        self.committed: list[Any] = []
        self.push({"t": [state(1)], TRANSACTION_STATE_TOPIC: [state(1)], GROUP_METADATA_TOPIC: [state(1)]})
        self.transaction_coordinator.run_pending_jobs()
        init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        assert self.ask(init, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self.channel.sent[0][1](AllocateProducerIdsResponse(producer_id_start=PRODUCER_ID, producer_id_len=10))
        answer = self.ask(init, 4)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, PRODUCER_ID, 0)

    def _commit(self, committer: Any, producer: Any, commits: Any, guard: Any, reply: Any) -> None:
        self.committed += [(committer.group_id, producer.producer_id, c.topic, c.committed.offset) for c in commits]
        reply(NONE)

    def ask(self, message: Any, version: int) -> Any:
        answer = self.answer(message, version)
        return answer.message() if isinstance(answer, Waiting) else answer

    def add(self, topic: str = "t", version: int = 3, epoch: int = 0) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=PRODUCER_ID, v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )  # fmt: skip
        ((row,),) = [t.results_by_partition for t in self.ask(request, version).results_by_topic_v3_and_below]
        return int(row.partition_error_code)

    def state_of(self, transactional_id: str = "x") -> Any:
        (row,) = self.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
        return row


@pytest.fixture
def rig() -> Iterator[TransactionApiRig]:
    made = TransactionApiRig()
    yield made
    made.close()


def test_a_partition_is_added_and_the_transaction_described(rig: TransactionApiRig) -> None:
    assert rig.state_of().transaction_state == "Empty"
    assert rig.add() == NONE
    found = rig.state_of()
    assert (found.transaction_state, found.producer_id, [t.topic for t in found.topics]) == (
        "Ongoing", PRODUCER_ID, ["t"],
    )  # fmt: skip
    assert rig.state_of("y").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_unknown_partition_is_not_added(rig: TransactionApiRig) -> None:
    assert rig.add("nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.state_of().transaction_state == "Empty"


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (3, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_gets_the_error_of_its_version(
    rig: TransactionApiRig, version: int, error: ErrorCode
) -> None:
    assert rig.add(version=version, epoch=5) == error


def test_brokers_verify_partitions_of_many_transactions(rig: TransactionApiRig) -> None:
    rig.add()
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=id_, producer_id=PRODUCER_ID, producer_epoch=0, verify_only=True, topics=topics
            )
            for id_ in ("x", "y")
        ]
    )
    results = {r.transactional_id: r.topic_results[0] for r in rig.ask(request, 4).results_by_transaction}
    errors = {id_: topic.results_by_partition[0].partition_error_code for id_, topic in results.items()}
    assert errors == {"x": NONE, "y": ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def test_no_client_adds_an_internal_topic(rig: TransactionApiRig) -> None:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (GROUP_METADATA_TOPIC, "t")]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_producer_id=PRODUCER_ID, v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )  # fmt: skip
    answered = rig.ask(request, 3).results_by_topic_v3_and_below
    assert [topic.results_by_partition[0].partition_error_code for topic in answered] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ]


def test_the_offsets_partition_is_added(rig: TransactionApiRig) -> None:
    request = AddOffsetsToTxnRequest(transactional_id="x", producer_id=PRODUCER_ID, producer_epoch=0, group_id="g")
    assert rig.ask(request, 3).error_code == NONE
    assert [t.topic for t in rig.state_of().topics] == [GROUP_METADATA_TOPIC]


@pytest.mark.parametrize(("committed", "state_after"), [(True, "PrepareCommit"), (False, "PrepareAbort")])
def test_a_transaction_ends(rig: TransactionApiRig, committed: bool, state_after: str) -> None:
    rig.add()
    request = EndTxnRequest(transactional_id="x", producer_id=PRODUCER_ID, producer_epoch=0, committed=committed)
    assert rig.ask(request, 3).error_code == NONE
    assert rig.state_of().transaction_state == state_after
    ((completion, partitions),) = rig.markers.held
    assert (completion.is_commit, set(partitions)) == (committed, {TopicPartition("t", 0)})


def test_transactions_are_listed_by_filters(rig: TransactionApiRig) -> None:
    def ids(**filters: Any) -> Any:
        request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
        answer = rig.ask(request, 2)
        return answer.error_code or [row.transactional_id for row in answer.transaction_states]

    assert ids() == ["x"]
    assert ids(transactional_id_pattern="[x-z]") == ["x"]
    assert ids(transactional_id_pattern="y.*") == []
    assert ids(transactional_id_pattern="(") == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert ids(producer_id_filters=[1]) == []
    unknown = rig.ask(ListTransactionsRequest(state_filters=["Odd"], producer_id_filters=[]), 2)
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Odd"], [])


def test_offsets_are_committed_in_a_transaction(rig: TransactionApiRig) -> None:
    def commit(metadata: str = "", topic: str = "t", group_id: str = "g") -> int:
        row = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x", group_id=group_id, producer_id=PRODUCER_ID, producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        )  # fmt: skip
        return int(rig.ask(request, 3).topics[0].partitions[0].error_code)

    rig.ask(AddOffsetsToTxnRequest(transactional_id="x", producer_id=PRODUCER_ID, producer_epoch=0, group_id="g"), 3)
    assert commit() == NONE
    assert rig.committed == [("g", PRODUCER_ID, "t", 5)]
    assert commit(metadata="x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(group_id="") == ErrorCode.INVALID_GROUP_ID
