"""The records of consumer groups: there and back, Kafka's bytes, and skipped types."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators.consumer import values as t
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.records import CLASSES, ConsumerGroupRecord, encode
from barnabas.broker.coordinators.consumer.values import Member, MemberState, partitions_of
from barnabas.broker.coordinators.offsets import records as offset_records
from barnabas.protocol.coordinator_records import consumer_groups as wire
from barnabas.protocol.coordinator_records.record import encode_versioned, read_prefix
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import iter_headers
from tests.broker.coordinators.fake_log import FakeLog, World, snapshot

T, U = b"t" * 16, b"u" * 16
MEMBER = Member(
    "m", "i", "r", "client", "/h", 1000, frozenset({"t", "u"}), "x.*", "range", t.ClassicPart(9, (("range", b"1"),)),
    epoch=7, previous_epoch=6, state=MemberState.UNREVOKED_PARTITIONS, assigned={T: {0: 3, 2: 7}, U: {1: 2}},
    pending_revocation={T: {1: 4}},
)  # fmt: skip
RECORDS: list[t.Record] = [
    t.GroupEpoch(7, -3),
    t.GroupEpoch(None),
    t.MemberMetadata("m", MEMBER),
    t.MemberMetadata("m", Member("m", topic_regex=None)),
    t.MemberMetadata("m", None),
    t.CurrentAssignment("m", MEMBER),
    t.CurrentAssignment("m", Member("m")),
    t.CurrentAssignment("m", None),
    t.TargetEpoch(7, 1234),
    t.TargetEpoch(None),
    t.TargetAssignment("m", {T: frozenset({0, 2}), U: frozenset({1})}),
    t.TargetAssignment("m", {}),
    t.TargetAssignment("m", None),
    t.RegexTopics("x.*", t.ResolvedRegex(frozenset({"x", "x1"}), 5, 99)),
    t.RegexTopics("x.*", None),
    t.PartitionMetadata(exists=False),
]


@pytest.mark.parametrize("record", RECORDS)
def test_what_is_written_is_read(record: t.Record) -> None:
    """Read by a group that knows the rest of the member, it says the same as the record itself."""
    key, value = encode("g", record)
    found = offset_records.read(key, value, 0)
    assert isinstance(found, ConsumerGroupRecord)
    assert found.group_id == "g"
    groups = []
    for each in (record, found.record):
        group = ConsumerGroup("g")
        for known in RECORDS[2:3] + RECORDS[5:6]:
            group.replay(known)
        group.replay(each)
        groups.append(group)
    for name in ("epoch", "metadata_hash", "members", "target", "assignment_epoch", "resolved_regexes", "is_gone"):
        assert getattr(groups[0], name) == getattr(groups[1], name)


def test_each_type_of_kafkas_has_its_record() -> None:
    types = {read_prefix(encode("g", record)[0]) for record in RECORDS}
    assert types == set(CLASSES) == {3, 4, 5, 6, 7, 8, 16}


def test_what_40_wrote_of_topics_is_noticed() -> None:
    key = encode_versioned(wire.ConsumerGroupPartitionMetadataKey(group_id="g"))
    value = encode_versioned(wire.ConsumerGroupPartitionMetadataValue(topics=[]))
    assert offset_records.read(key, value, 0) == ConsumerGroupRecord("g", t.PartitionMetadata(exists=True))


@pytest.mark.parametrize("epochs", [None, [3]])
def test_assignments_without_epochs_are_as_old_as_the_member(epochs: list[int] | None) -> None:
    """Kafka wrote none before 4.3; a list that does not fit is as good as none."""
    key = encode_versioned(wire.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"))
    row = wire.TopicPartitions(topic_id=T, partitions=[0, 1], assignment_epochs=epochs)
    for epoch, expected in ((5, 5), (-2, 0)):
        value = wire.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch, previous_member_epoch=4, state=0, assigned_partitions=[row],
            partitions_pending_revocation=[],
        )  # fmt: skip
        found = offset_records.read(key, encode_versioned(value), 0)
        assert isinstance(found, ConsumerGroupRecord)
        assert isinstance(found.record, t.CurrentAssignment)
        assert found.record.member is not None
        assert found.record.member.assigned == {T: {0: expected, 1: expected}}


def test_a_state_of_newer_software_is_unknown() -> None:
    key = encode_versioned(wire.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"))
    value = wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1, previous_member_epoch=0, state=99, assigned_partitions=[], partitions_pending_revocation=[]
    )
    found = offset_records.read(key, encode_versioned(value), 0)
    assert isinstance(found, ConsumerGroupRecord)
    assert isinstance(found.record, t.CurrentAssignment)
    assert found.record.member is not None
    assert found.record.member.state is MemberState.UNKNOWN


def test_an_absent_classic_part_is_none() -> None:
    """The tag's default is an empty structure, which no classic member has."""
    key, _ = encode("g", t.MemberMetadata("m", None))
    value = wire.ConsumerGroupMemberMetadataValue(
        instance_id=None, rack_id=None, client_id="c", client_host="/h", subscribed_topic_names=[],
        subscribed_topic_regex=None, rebalance_timeout_ms=1, server_assignor=None,
    )  # fmt: skip
    found = offset_records.read(key, encode_versioned(value), 0)
    assert isinstance(found, ConsumerGroupRecord)
    assert isinstance(found.record, t.MemberMetadata)
    assert found.record.member is not None
    assert found.record.member.classic is None


@pytest.mark.parametrize("record_type", [9, 18, 99])
def test_records_of_unknown_types_are_passed_over(record_type: int) -> None:
    assert offset_records.read(record_type.to_bytes(2, "big") + b"whatever", b"", 0) is None


def test_a_record_that_is_cut_short_is_malformed() -> None:
    key, value = encode("g", RECORDS[2])
    assert value is not None
    with pytest.raises(MalformedMessageError):
        offset_records.read(key, value[:-3], 0)


class TestKafkasOwnLog:
    """What Apache Kafka wrote is read as Apache Kafka described it, and the group goes on here."""

    recorded = json.loads((Path(__file__).parents[3] / "data" / "apache-kafka-consumer-group.json").read_text())

    def world(self) -> World:
        world = World(leads=False, offsets_topic_num_partitions=1)
        described = self.recorded["described"]["members"].values()
        ids = sorted({bytes.fromhex(id_) for member in described for id_ in member["target"]})
        names = dict(zip(ids, ("other", "compared"), strict=True))
        topics = {"compared": 2, "other": 3, "__consumer_offsets": 1}
        cluster = snapshot(topics)
        infos = {name: cluster.topics[name]._replace(id=id_) for id_, name in names.items()}
        world.cache.snapshot = type(cluster)(topics={**cluster.topics, **infos}, topic_names=names)
        log = world.replicas.logs[world.tp(0)] = FakeLog()
        data = memoryview(base64.b64decode(self.recorded["log"]))
        for position, header in iter_headers(data):
            log.append(bytes(data[position : position + header.size_in_bytes]))
        log.high_watermark = log.log_end_offset
        world.lead(0)
        return world

    def test_it_is_read(self) -> None:
        world, described = self.world(), self.recorded["described"]

        def look(group: ConsumerGroup) -> dict[str, Any]:
            group.invariants()
            return {
                "epoch": group.epoch,
                "assignment_epoch": group.assignment_epoch,
                "state": group.state.value,
                "assignor": group.preferred_assignor(group.members.values(), "uniform"),
                "members": {member_id: self.described(group, member) for member_id, member in group.members.items()},
            }

        assert world.coordinator.describe_consumer_group("recorded", look) == described
        shard = world.coordinator._shard("recorded")
        assert shard is not None
        assert shard.offsets.count == 1

    def described(self, group: ConsumerGroup, member: Member) -> dict[str, Any]:
        held: dict[str, list[int]] = {}
        for topic_id, partition in partitions_of(member.assigned) | partitions_of(member.pending_revocation):
            held.setdefault(topic_id.hex(), []).append(partition)
        return {
            "epoch": member.epoch,
            "instance": member.instance_id,
            "rack": member.rack_id,
            "topics": sorted(member.topic_names),
            "regex": member.topic_regex,
            "type": 0 if member.uses_classic_protocol else 1,
            "assigned": {topic_id: sorted(partitions) for topic_id, partitions in held.items()},
            "target": {id_.hex(): sorted(held) for id_, held in group.target[member.member_id].items()},
        }

    def test_the_group_goes_on(self) -> None:
        world, responses = self.world(), []
        (other,) = (id_ for id_, name in world.cache.snapshot.topic_names.items() if name == "other")
        for member_id, epoch, owned in (("four", 6, {other: frozenset({2})}), ("five", 7, {})):
            request = t.Heartbeat(member_id, epoch, owned=owned)
            world.coordinator.consumer_heartbeat("recorded", request, responses.append)
        assert [(answer.epoch, answer.assigned) for answer in responses] == [
            (8, None), (8, {other: {0: 8, 1: 8}}),  # one epoch more: our hash of the topics is another one
        ]  # fmt: skip
