"""Committed batches: what a listener reads of them."""

from __future__ import annotations

from barnabas.controller.raft.batches import Batch, encode_control
from barnabas.controller.raft.client.interface import CommittedBatch
from barnabas.protocol.data.control_records import LeaderChangeMessage
from barnabas.protocol.metadata_records import FeatureLevelRecord, encode_record
from barnabas.protocol.records.batch import SimpleRecord, build_batch


def test_a_batch_has_its_metadata_records() -> None:
    records = [FeatureLevelRecord(name=name, feature_level=1) for name in ("a", "b")]
    data = build_batch([SimpleRecord(1, None, encode_record(record)) for record in records], base_offset=7)
    batch = CommittedBatch(7, 8, 1, False, data)
    assert batch.records() == records
    assert batch.size_in_bytes == len(data)


def test_a_control_batch_has_none() -> None:
    change = LeaderChangeMessage(version=0, leader_id=1, voters=[], granting_voters=[])
    data = encode_control(Batch(0, 0, 1, (change,), None), 1)
    assert CommittedBatch(0, 0, 1, True, data).records() == []
