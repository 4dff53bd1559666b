"""The records of __transaction_state: there and back, Kafka's versions, and skipped types."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.transactions import records as records
from barnabas.broker.coordinators.transactions.transaction import TxnData, TxnState
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.coordinator_records.record import decode_versioned, read_prefix
from barnabas.protocol.coordinator_records.transactions import TransactionLogValue
from barnabas.protocol.errors import MalformedMessageError

DATA = TxnData(
    7, 3, 60_000, TxnState.PREPARE_ABORT, frozenset({TopicPartition("u", 0), TopicPartition("t", 1)}), 100, 200, 2, 6, 9
)


def test_a_record_is_read_as_it_was_written() -> None:
    assert records.read(records.key("x"), records.value(DATA, 2)) == ("x", DATA)


def test_version_0_knows_no_other_producer_ids() -> None:
    value = records.value(DATA, 0)
    assert read_prefix(value) == 0
    expected = DATA._replace(client_version=0, previous_producer_id=-1, next_producer_id=-1)
    assert records.read(records.key("x"), value) == ("x", expected)


@pytest.mark.parametrize("state", [s for s in TxnState if s not in (TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE)])
def test_every_state(state: TxnState) -> None:
    data = DATA._replace(state=state, partitions=frozenset())
    assert records.read(records.key("x"), records.value(data, 1)) == ("x", data)


def test_an_empty_one_has_no_partitions_at_all() -> None:
    value = decode_versioned(
        TransactionLogValue, records.value(DATA._replace(state=TxnState.EMPTY, partitions=frozenset()), 1)
    )
    assert value.transaction_partitions is None


def test_tombstones_and_strangers() -> None:
    assert records.read(records.key("x"), None) == ("x", None)
    assert records.read(b"\x00\x01\x00\x01x", None) is None


def test_an_unknown_state_is_malformed() -> None:
    value = bytearray(records.value(DATA, 0))
    value[2 + 8 + 2 + 4] = 77
    with pytest.raises(MalformedMessageError):
        records.read(records.key("x"), bytes(value))


def test_an_id_that_is_dead_is_gone_and_a_state_that_is_never_written_is_refused() -> None:
    assert records.read(records.key("x"), records.value(DATA._replace(state=TxnState.DEAD), 1)) == ("x", None)
    with pytest.raises(MalformedMessageError, match="state 7"):
        records.read(records.key("x"), records.value(DATA._replace(state=TxnState.PREPARE_EPOCH_FENCE), 1))
