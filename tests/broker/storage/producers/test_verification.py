"""Verification that a transaction is open (KIP-890), tested through a log's appends."""

from __future__ import annotations

import pytest

from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log.log_types import AppendOrigin, LogAppendInfo
from barnabas.broker.storage.producers.verification import Verification, VerificationGuard
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import ControlType, end_txn_marker
from tests.support.broker.broker_rig import BrokerRig, batch, state

TP = TopicPartition("t", 0)
PRODUCER_ID = 7


@pytest.fixture
def rig() -> BrokerRig:
    rig = BrokerRig()
    rig.push({"t": [state(1)]})
    return rig


@pytest.fixture
def log(rig: BrokerRig) -> Log:
    partition = rig.manager.find(TP)
    assert partition is not None
    return partition.leader_log()


def append(
    log: Log, sequence: int, guard: VerificationGuard | None = None, *, epoch: int = 0, transactional: bool = True
) -> LogAppendInfo:
    records = batch(
        b"v", producer_id=PRODUCER_ID, producer_epoch=epoch, base_sequence=sequence, is_transactional=transactional
    )
    return log.append_as_leader(memoryview(bytearray(records)), leader_epoch=0, guard=guard)


def mark(log: Log, *, epoch: int = 0, version: int = 0) -> None:
    marker = end_txn_marker(
        ControlType.ABORT, producer_id=PRODUCER_ID, producer_epoch=epoch, coordinator_epoch=1, timestamp_ms=5
    )
    log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=0, origin=AppendOrigin.COORDINATOR, transaction_version=version
    )


def start(log: Log, sequence: int = 0, *, epoch: int = 0, bumps: bool = False) -> VerificationGuard | None:
    return log.start_verification(PRODUCER_ID, epoch, sequence, supports_epoch_bump=bumps)


def refusal(log: Log, sequence: int, guard: VerificationGuard | None = None, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        append(log, sequence, guard, epoch=epoch)
    return caught.value.code


def test_a_transaction_does_not_begin_unverified(log: Log) -> None:
    assert refusal(log, 0) == ErrorCode.INVALID_TXN_STATE
    assert refusal(log, 0, VerificationGuard()) == ErrorCode.INVALID_TXN_STATE
    assert append(log, 0, start(log)).first_offset == 0


def test_an_open_transaction_continues_without_verification(log: Log) -> None:
    append(log, 0, start(log))
    assert start(log, 1) is None
    assert append(log, 1).first_offset == 1


def test_a_guard_is_for_one_transaction(log: Log) -> None:
    guard = start(log)
    append(log, 0, guard)
    mark(log)
    assert refusal(log, 1, guard) == ErrorCode.INVALID_TXN_STATE
    append(log, 1, start(log, 1))


def test_a_marker_before_the_coordinators_response_invalidates_the_guard(log: Log) -> None:
    guard = start(log)
    mark(log)
    assert refusal(log, 0, guard) == ErrorCode.INVALID_TXN_STATE
    assert [producer.txn_first_offset for producer in log.active_producers()] == [-1]  # nothing hangs


def test_verifications_of_one_transaction_share_their_guard(log: Log) -> None:
    assert start(log, 0) is start(log, 1)


def test_a_new_epoch_must_be_verified(log: Log) -> None:
    append(log, 0, start(log))
    assert start(log, epoch=1) is not None
    assert refusal(log, 0, epoch=1) == ErrorCode.INVALID_TXN_STATE


def test_the_lowest_sequence_is_appended_first(log: Log) -> None:
    guard = start(log, 5)
    start(log, 4)
    assert refusal(log, 5, guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, 4, guard)
    append(log, 5)


def test_epochs_of_version_2_begin_with_0(log: Log) -> None:
    guard = start(log, 3, bumps=True)
    assert refusal(log, 3, guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    start(log, 0, bumps=True)
    append(log, 0, guard)


def test_idempotent_batches_need_no_verification(log: Log) -> None:
    append(log, 0, transactional=False)


def test_a_retry_is_recognised_without_verification(log: Log) -> None:
    append(log, 0, start(log))
    mark(log)
    assert append(log, 0).is_duplicate


def test_verification_can_be_disabled() -> None:
    rig = BrokerRig(transaction_partition_verification_enable="false")
    rig.push({"t": [state(1)]})
    partition = rig.manager.find(TP)
    assert partition is not None
    append(partition.leader_log(), 0)


def test_old_guards_expire(rig: BrokerRig, log: Log) -> None:
    guard = start(log)
    rig.clock.advance_ms(rig.config.producer_id_expiration_ms)
    log.remove_expired_producers()
    assert start(log) is not guard


def test_the_lowest_sequence_is_that_of_the_newest_epoch() -> None:
    verification = Verification(epoch=1, sequence=5, supports_epoch_bump=False, now_ms=0)
    for epoch, sequence, lowest in ((1, 6, 5), (1, 3, 3), (0, 0, 3), (2, 9, 9), (2, 8, 8), (1, 0, 8)):
        verification.note(epoch, sequence)
        assert verification.lowest_sequence == lowest


def test_an_old_epoch_is_told_apart_from_a_transaction_that_was_not_verified(log: Log) -> None:
    """The first error lets the producer begin a new transaction, the second ends it."""
    append(log, 0, start(log, epoch=2), epoch=2)
    mark(log, epoch=2)
    assert refusal(log, 0, epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(ApiError) as caught:
        start(log, epoch=1)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
