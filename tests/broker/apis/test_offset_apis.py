"""OffsetCommit, OffsetFetch, OffsetDelete on the wire, at every version.

Tests `apis/k08_offset_commit.py`, `apis/k09_offset_fetch.py` and `apis/k47_offset_delete.py`.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from barnabas.broker.apis import k08_offset_commit, k09_offset_fetch, k47_offset_delete
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.broker.apis.group_rig import Rig

T_ID, U_ID, NO_ID = b"t" * 16, b"u" * 16, b"?" * 16
COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)


def commit(
    rig: Rig, offset: int = 5, version: int = 10, *, name: str = "t", topic_id: bytes = T_ID, partition: int = 0,
    metadata: str | None = "m", **fields: Any,
) -> list[int]:  # fmt: skip
    """Commit one position; returns the errors."""
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
    if version >= 6:
        row.committed_leader_epoch = 3
    topic = OffsetCommitRequestTopic(partitions=[row])
    if version >= 10:
        topic.topic_id = topic_id
    else:
        topic.name = name
    message = OffsetCommitRequest(group_id="g", topics=[topic], **fields)
    answer = rig.ask(k08_offset_commit, message, version)
    assert [(t.topic_id if version >= 10 else t.name) for t in answer.topics] == [topic_id if version >= 10 else name]
    return [p.error_code for t in answer.topics for p in t.partitions]


def fetch_request(version: int, *partitions: int, all_topics: bool = False, **fields: Any) -> OffsetFetchRequest:
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=list(partitions))]
        return OffsetFetchRequest(group_id="g", topics=None if all_topics else topics, **fields)
    topic = OffsetFetchRequestTopics(partition_indexes=list(partitions))
    if version >= 10:
        topic.topic_id = T_ID
    else:
        topic.name = "t"
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=None if all_topics else [topic])], **fields
    )


def fetch(rig: Rig, version: int, *partitions: int, **options: Any) -> tuple[int, list[tuple[int, int, str, int]]]:
    """The group's error, and (partition, offset, metadata, error) of each partition."""
    answer = rig.ask(k09_offset_fetch, fetch_request(version, *partitions, **options), version)
    group = answer if version < 8 else answer.groups[0]
    rows = [p for topic in group.topics for p in topic.partitions]
    return group.error_code, [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in rows]


class TestCommit:
    @pytest.mark.parametrize("version", COMMIT_VERSIONS)
    def test_every_version(self, version: int) -> None:
        rig = Rig()
        assert commit(rig, 5, version) == [0]
        assert fetch(rig, 9, 0) == (0, [(0, 5, "m", 0)])

    @pytest.mark.parametrize("version", COMMIT_VERSIONS)
    def test_unknown_topics_and_partitions(self, version: int) -> None:
        rig = Rig()
        error = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert commit(rig, version=version, name="nope", topic_id=NO_ID) == [error]
        assert commit(rig, version=version, partition=9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    @pytest.mark.parametrize(
        ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
    )
    def test_a_member_of_no_group(self, version: int, error: ErrorCode) -> None:
        assert commit(Rig(), version=version, member_id="x", generation_id_or_member_epoch=1) == [error]

    def test_metadata_has_a_limit(self) -> None:
        rig = Rig()
        assert commit(rig, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert commit(rig, metadata="x" * 4096) == [0]
        assert commit(rig, metadata=None) == [0]
        assert fetch(rig, 8, 0)[1] == [(0, 5, "", 0)]

    def test_an_error_of_the_group_overrides(self) -> None:
        rig = Rig()
        assert commit(rig, metadata="x" * 4097, member_id="x", generation_id_or_member_epoch=1) == [
            ErrorCode.GROUP_ID_NOT_FOUND
        ]

    def test_known_and_unknown_together(self) -> None:
        rig = Rig()
        rows = [OffsetCommitRequestPartition(partition_index=p, committed_offset=p) for p in (0, 7, 1)]
        message = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=rows)])
        answer = rig.ask(k08_offset_commit, message, 9)
        assert [p.error_code for p in answer.topics[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]

    def test_v2_may_say_how_long(self) -> None:
        rig = Rig()
        assert commit(rig, version=4, retention_time_ms=1000) == [0]
        rig.world.advance_ms(600_001)
        assert fetch(rig, 8, 0)[1] == [(0, -1, "", 0)]

    def test_no_topics(self) -> None:
        assert Rig().ask(k08_offset_commit, OffsetCommitRequest(group_id="g")).topics == []


class TestFetch:
    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_every_version(self, version: int) -> None:
        rig = Rig()
        commit(rig)
        assert fetch(rig, version, 0, 1) == (0, [(0, 5, "m", 0), (1, -1, "", 0)])

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_the_leader_epoch(self, version: int) -> None:
        rig = Rig()
        commit(rig)
        answer = rig.ask(k09_offset_fetch, fetch_request(version, 0), version)
        group = answer if version < 8 else answer.groups[0]
        assert group.topics[0].partitions[0].committed_leader_epoch == (3 if version >= 5 else -1)

    @pytest.mark.parametrize("version", range(2, 11))
    def test_all_topics(self, version: int) -> None:
        rig = Rig()
        commit(rig)
        commit(rig, 6, topic_id=U_ID, name="u")
        assert [row[1] for row in fetch(rig, version, all_topics=True)[1]] == [5, 6]

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_a_coordinator_that_is_elsewhere(self, version: int) -> None:
        rig = Rig()
        for partition in (0, 1):
            rig.world.coordinator.on_resignation(rig.world.tp(partition), None)
        error = ErrorCode.NOT_COORDINATOR
        if version < 2:
            answer = rig.ask(k09_offset_fetch, fetch_request(1, 0, 1), 1)
            assert [(p.error_code, p.committed_offset) for p in answer.topics[0].partitions] == [(error, -1)] * 2
        else:
            assert fetch(rig, version, 0) == (error, [])

    def test_many_groups(self) -> None:
        rig = Rig()
        commit(rig)
        groups = [
            OffsetFetchRequestGroup(
                group_id=group_id, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            )
            for group_id in ("g", "h")
        ]
        answer = rig.ask(k09_offset_fetch, OffsetFetchRequest(groups=groups), 8)
        rows = [(g.group_id, g.topics[0].partitions[0].committed_offset) for g in answer.groups]
        assert rows == [("g", 5), ("h", -1)]
        assert rig.ask(k09_offset_fetch, OffsetFetchRequest(groups=[]), 8).groups == []

    def test_everything_of_a_group_is_told_a_few_times_at_most(self) -> None:
        rig = Rig()
        commit(rig)
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ("h", *["g"] * 1000)]
        answer = rig.ask(k09_offset_fetch, OffsetFetchRequest(groups=groups), 8)
        assert [group.group_id for group in answer.groups] == ["h", *["g"] * k09_offset_fetch.REPEATS_MAX]

    def test_topics_by_id(self) -> None:
        rig = Rig()
        commit(rig)
        topics = [
            OffsetFetchRequestTopics(topic_id=T_ID, partition_indexes=[0]),
            OffsetFetchRequestTopics(topic_id=NO_ID, partition_indexes=[0]),
        ]
        message = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
        answer = rig.ask(k09_offset_fetch, message, 10)
        assert [(t.topic_id, t.partitions[0].error_code) for t in answer.groups[0].topics] == [
            (T_ID, 0), (NO_ID, ErrorCode.UNKNOWN_TOPIC_ID),
        ]  # fmt: skip

    def test_stable_ones_wait(self) -> None:
        rig = Rig()
        rig.world.replicas.holds = True
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=4)
        message = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[row])])
        committing = rig.send(k08_offset_commit, message, 9)
        waiting = rig.send(k09_offset_fetch, fetch_request(9, 0, require_stable=True), 9)
        assert not committing.is_there
        assert not waiting.is_there
        rig.world.replicas.release()
        assert committing.get().topics[0].partitions[0].error_code == 0
        assert waiting.get().groups[0].topics[0].partitions[0].committed_offset == 4


class TestDelete:
    def ask(self, rig: Rig, group_id: str = "g", **topics: list[int]) -> Any:
        message = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions]
                )
                for name, partitions in topics.items()
            ],
        )
        return rig.ask(k47_offset_delete, message)

    def test_removes_and_says_what_is_unknown(self) -> None:
        rig = Rig()
        commit(rig)
        answer = self.ask(rig, t=[0, 1, 9], nope=[0])
        assert [[p.error_code for p in t.partitions] for t in answer.topics] == [
            [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        ]  # fmt: skip
        assert fetch(rig, 9, 0)[1][0][1] == -1

    def test_many_repetitions_are_no_quadratic_work(self) -> None:
        rig = Rig()
        commit(rig)
        many = 60_000
        started_s = time.thread_time()
        answer = self.ask(rig, t=[0] * many + [9] * many)
        assert time.thread_time() - started_s < 10  # compared with each other: minutes
        assert len(answer.topics[0].partitions) == 2 * many

    def test_errors_of_the_group(self) -> None:
        rig = Rig()
        assert self.ask(rig, t=[0]).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert self.ask(rig, "", t=[0]).error_code == ErrorCode.INVALID_GROUP_ID
