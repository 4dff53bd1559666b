"""The records of __consumer_offsets: golden bytes, there and back."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.classic.events import GroupState
from barnabas.broker.coordinators.offsets import records as records
from barnabas.broker.coordinators.offsets.store import CommittedOffset
from tests.broker.coordinators.group_rig import GroupShardRig


def test_golden_bytes_of_an_offset() -> None:
    # Layout: record type 1; group, topic, partition. Value version 4 (flexible): offset, leader epoch, metadata, commit
    # timestamp, one tag (0) of 16 bytes: the topic id.
    key, value = records.offset_commit("g", "t", 3, CommittedOffset(5, 2, "m", 1000, topic_id=b"i" * 16))
    assert key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert value == (
        b"\x00\x04" + (5).to_bytes(8, "big") + (2).to_bytes(4, "big") + b"\x02m" + (1000).to_bytes(8, "big")
        + b"\x01\x00\x10" + b"i" * 16
    )  # fmt: skip


def test_golden_bytes_of_an_offset_with_a_retention_of_its_own() -> None:
    _, value = records.offset_commit("g", "t", 3, CommittedOffset(5, 2, "m", 1000, 2000, b"i" * 16))
    assert value == (
        b"\x00\x01" + (5).to_bytes(8, "big") + b"\x00\x01m" + (1000).to_bytes(8, "big") + (2000).to_bytes(8, "big")
    )


def test_golden_bytes_of_a_new_group() -> None:
    key, value = records.new_group("g", 1000)
    assert key == b"\x00\x02\x00\x01g"
    assert value == (b"\x00\x03\x00\x00" + bytes(4) + b"\xff\xff\xff\xff" + (1000).to_bytes(8, "big") + bytes(4))


@pytest.mark.parametrize(
    "committed", [CommittedOffset(5, 2, "m", 1000, topic_id=b"i" * 16), CommittedOffset(5, -1, "", 1000, 2000)]
)
def test_offsets_there_and_back(committed: CommittedOffset) -> None:
    key, value = records.offset_commit("g", "t", 3, committed)
    assert records.read(key, value, 77) == ("g", "t", 3, committed._replace(record_offset=77))
    assert records.read(*records.offset_tombstone("g", "t", 3), 0) == ("g", "t", 3, None)


def test_a_group_there_and_back() -> None:
    rig = GroupShardRig().make_stable("a", "b")
    assignments = {id_: m.assignment for id_, m in rig.group.members.by_id.items()}
    found = records.read(*records.group_metadata(rig.group, assignments), 0)
    assert isinstance(found, records.GroupRecord)
    group = found.group
    assert group is not None
    assert (group.state, group.generation_id, group.protocol_name) == (GroupState.STABLE, 1, "range")
    assert group.members.leader_id == "a"
    assert group.topics == {"t"}
    for id_, member in rig.group.members.by_id.items():
        same = group.members.by_id[id_]
        assert (same.assignment, same.protocols, same.session_timeout_ms) == (
            member.assignment, member.protocols, member.session_timeout_ms,
        )  # fmt: skip
    group.members.invariants()
    assert records.read(*records.group_tombstone("g"), 0) == ("g", None)


def test_records_of_unknown_types_are_passed_over() -> None:
    assert records.read(b"\x00\x12\x00\x01g", b"", 0) is None
    assert records.read(b"\x00\x63", None, 0) is None
