"""Records of __share_group_state: there and back, and what cannot be read."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.share_state import records
from barnabas.broker.coordinators.share_state.values import ACKNOWLEDGED, AVAILABLE, SharePartitionKey, StateBatch
from barnabas.protocol.coordinator_records.share_state import ShareSnapshotValue, ShareUpdateValue
from barnabas.protocol.errors import MalformedMessageError

KEY = SharePartitionKey("g", bytes(range(16)), 3)
BATCHES = (StateBatch(5, 9, ACKNOWLEDGED, 1), StateBatch(10, 10, AVAILABLE, 2))
SNAPSHOT = ShareSnapshotValue(
    snapshot_epoch=2,
    state_epoch=4,
    leader_epoch=7,
    start_offset=5,
    delivery_complete_count=5,
    create_timestamp=1000,
    write_timestamp=2000,
    state_batches=records.wire_batches(BATCHES),
)
UPDATE = ShareUpdateValue(
    snapshot_epoch=2, leader_epoch=7, start_offset=5, state_batches=records.wire_batches(BATCHES[:1])
)


@pytest.mark.parametrize("record", [SNAPSHOT, UPDATE, None])
def test_a_record_is_read_as_it_was_written(record: records.StateRecord) -> None:
    key, value = records.encode(KEY, record)
    assert records.read(key, value) == (KEY, record)


def test_the_key_names_the_kind_of_record() -> None:
    assert records.encode(KEY, SNAPSHOT)[0][:2] == b"\0\0"
    assert records.encode(KEY, UPDATE)[0][:2] == b"\0\1"
    assert records.encode(KEY, None)[0][:2] == b"\0\0"


def test_a_record_of_another_type_is_none() -> None:
    assert records.read(b"\0\7rest", b"") is None


@pytest.mark.parametrize("wrong", [b"", b"\0", b"\0\0\0"])
def test_what_is_cut_short_is_refused(wrong: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        records.read(wrong, None)


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    wrong = ShareUpdateValue(
        snapshot_epoch=0, leader_epoch=0, start_offset=0, state_batches=records.wire_batches((StateBatch(3, 2, 0, 1),))
    )
    with pytest.raises(MalformedMessageError):
        records.read(*records.encode(KEY, wrong))
