"""Loading share states: what is skipped, and what takes the shard offline."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.coordinators.runtime.log_replay import ReplayError
from barnabas.broker.coordinators.share_state import records
from barnabas.broker.coordinators.share_state.values import StateBatch
from barnabas.protocol.coordinator_records.share_state import ShareUpdateValue
from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker
from tests.broker.coordinators.share_state.shard_rig import KEY, TP, ShareStateRig, acknowledged


@pytest.fixture
def rig() -> ShareStateRig:
    rig = ShareStateRig()
    rig.initialize()
    rig.write(acknowledged(0, 4))
    return rig


def add(rig: ShareStateRig, key: bytes | None, value: bytes | None) -> None:
    rig.log.append(build_batch([SimpleRecord(0, key, value)]))


def test_what_was_written_is_loaded(rig: ShareStateRig) -> None:
    assert rig.open().look() == rig.shard.look()


def test_unknown_records_are_skipped_and_said_once(rig: ShareStateRig, caplog) -> None:
    add(rig, b"\0\7x", b"y")
    add(rig, None, b"y")
    rig.log.append(
        end_txn_marker(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)
    )
    with caplog.at_level(logging.WARNING):
        assert rig.open().look() == rig.shard.look()
    assert [record.getMessage() for record in caplog.records] == [
        f"{TP}: the record at offset 2 is of an unknown type: it is skipped, as are others like it"
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0", b""),
        (b"\0\0\0", b""),
        (records.encode(KEY, None)[0], b"\0\0"),
        (records.encode(KEY, None)[0], b"\0\x09"),
        records.encode(
            KEY,
            ShareUpdateValue(
                snapshot_epoch=0,
                leader_epoch=0,
                start_offset=0,
                state_batches=records.wire_batches((StateBatch(3, 2, 0, 1),)),
            ),
        ),
    ],
)
def test_a_record_that_cannot_be_read_fails_the_load(rig: ShareStateRig, key: bytes, value: bytes) -> None:
    add(rig, key, value)
    with pytest.raises(ReplayError, match="offset 2"):
        rig.open()
