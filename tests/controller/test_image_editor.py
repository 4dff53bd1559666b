"""The invariants of `controller/image.py`, and their checks in Python's development mode."""

from __future__ import annotations

import pytest

from barnabas.controller.decision import Decision
from barnabas.controller.image import Image, Partition, PartitionKey
from barnabas.controller.image_editor import ImageEditor
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.metadata_records import ConfigRecord, MetadataRecord, TopicRecord
from tests.controller.rig import Rig

ID = b"t" * 16


def after(*records: MetadataRecord) -> Image:
    """The image after records that follow an empty log."""
    editor = ImageEditor(Image())
    editor.apply_all(records, 0)
    return editor.image()


@pytest.mark.parametrize(
    ("records", "invariant"),
    [
        ([TopicRecord(name="a", topic_id=ID), TopicRecord(name="a", topic_id=b"u" * 16)], "inv. 1"),
        ([TopicRecord(name="a", topic_id=ID), Partition((0,), (), 0).to_record(ID, 0)], "inv. 2"),
        ([TopicRecord(name="a", topic_id=ID), Partition((0,), (0, 1), 0).to_record(ID, 0)], "inv. 2"),
        ([TopicRecord(name="a", topic_id=ID), Partition((0, 1), (0,), 1).to_record(ID, 0)], "inv. 2"),
        ([ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1")], "inv. 4"),
    ],
)
def test_an_image_that_breaks_an_invariant(records: list[MetadataRecord], invariant: str) -> None:
    with pytest.raises(AssertionError, match=invariant):
        after(*records).invariants()


@pytest.mark.parametrize(
    "next_state",
    [
        Partition((0, 1), (0, 1), 0, leader_epoch=4, partition_epoch=7),
        Partition((0, 1), (0, 1), 0, leader_epoch=3, partition_epoch=8),
        Partition((0, 1), (0, 1), 1, leader_epoch=4, partition_epoch=8),
    ],
    ids=["the partition epoch stays", "the leader epoch falls", "another leader in the same epoch"],
)
def test_a_change_that_breaks_invariant_3(next_state: Partition) -> None:
    before = Partition((0, 1), (0, 1), 0, leader_epoch=4, partition_epoch=7)
    editor = ImageEditor(after(TopicRecord(name="a", topic_id=ID), before.to_record(ID, 0)))
    editor.apply(next_state.to_record(ID, 0), 2)
    with pytest.raises(AssertionError, match=r"inv\. 3"):
        editor.delta.invariants(editor.image())


def test_the_starting_image_never_changes() -> None:
    first = after(TopicRecord(name="a", topic_id=ID), Partition((0,), (0,), 0).to_record(ID, 0))
    editor = ImageEditor(first)
    editor.apply(Partition((0, 1), (0,), 0, 1, 1).to_record(ID, 0), 2)
    key = PartitionKey(ID, 0)
    assert first.partition(key) == Partition((0,), (0,), 0, directories=(bytes(15) + b"\x01",))
    assert editor.delta.previous[key] == first.partition(key)


def test_in_development_mode_a_decision_that_breaks_an_invariant_writes_nothing() -> None:
    rig = Rig()
    offset = rig.image.offset
    broken = [ConfigRecord(resource_type=2, resource_name="missing", name="retention.ms", value="1")]
    with pytest.raises(ApiError) as failed:
        rig.decide(lambda _: Decision(broken, None))
    assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.image.offset == offset


def test_configs_that_this_release_does_not_have_are_skipped() -> None:
    editor = ImageEditor(after(TopicRecord(name="a", topic_id=ID)))
    resources = [(2, "a"), (4, ""), (4, "0"), (16, "s"), (32, "g"), (8, "0")]
    for resource_type, name in resources:
        for value in ("true", None, "true"):
            record = ConfigRecord(
                resource_type=resource_type, resource_name=name, name="message.downconversion.enable", value=value
            )
            editor.apply(record, 1)
    brokers = [(4, ""), (4, "0")]
    assert sorted((resource, name) for resource, name, _ in editor.delta.configs) == brokers
    assert sorted(tuple(key) for key in editor.image().configs) == brokers
