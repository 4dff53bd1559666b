"""Record batches as the raft core sees them."""

from __future__ import annotations

import pytest

from barnabas.controller.raft.batches import Batch, decode_batches, encode_control
from barnabas.controller.raft.voter_set import ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.data.control_records import KRaftVersionRecord, LeaderChangeMessage, LeaderChangeMessageVoter
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import SimpleRecord, build_batch

VOTERS = VoterSet([VoterNode(ReplicaKey(1, b"a" * 16))])
CONTROL = (
    LeaderChangeMessage(
        version=1,
        leader_id=1,
        voters=[LeaderChangeMessageVoter(voter_id=1, voter_directory_id=b"a" * 16)],
        granting_voters=[],
    ),
    KRaftVersionRecord(version=0, kraft_version=1),
    VOTERS.to_record(),
)


def test_control_records_are_read_back() -> None:
    data = encode_control(Batch(5, 7, 3, CONTROL, None), now_ms=1_000)
    assert decode_batches(data) == [Batch(5, 7, 3, CONTROL, data)]


def test_data_is_opaque() -> None:
    data = build_batch([SimpleRecord(1, None, b"x"), SimpleRecord(1, None, b"y")], base_offset=9, leader_epoch=2)
    assert decode_batches(data + data[:30]) == [Batch(9, 10, 2, (), data)]


def test_damage_is_an_error() -> None:
    data = bytearray(encode_control(Batch(5, 7, 3, CONTROL, None), now_ms=1_000))
    data[-3] ^= 1
    with pytest.raises(MalformedMessageError):
        decode_batches(data)
