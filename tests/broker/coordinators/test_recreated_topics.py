"""A topic that is deleted and created again: offsets of the former one are never served for the new one.

That holds whatever reaches the coordinator first: the metadata, a commit, a fetch or a failover.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.coordinators.groups.group_offsets import Committer, OffsetCommit, OffsetQuery
from barnabas.broker.coordinators.offsets.store import CommittedOffset, OffsetStore, TopicQuery
from barnabas.broker.coordinators.transactions.marker import Marker
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC, MetadataCache, MetadataSnapshot, TopicInfo
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot
from tests.support.broker.broker_rig import BrokerRig, state, topic_id

FORMER, PRESENT = b"t" * 16, b"T" * 16
NONE = ErrorCode.NONE


def snapshot_with(id_: bytes | None) -> MetadataSnapshot:
    """A cluster in which the topic t has this id, or is not there."""
    before = snapshot({"t": 2, GROUP_METADATA_TOPIC: 2})
    topics = {name: info for name, info in before.topics.items() if name != "t" or id_ is not None}
    if id_ is not None:
        topics["t"] = TopicInfo("t", id_, before.topics["t"].partitions)
    return MetadataSnapshot(topics=topics, topic_names={info.id: name for name, info in topics.items()})


class Story(World):
    """Group g commits in topic t, whose id the pushes say."""

    def push(self, id_: bytes | None, former_id: bytes) -> None:
        self.cache.snapshot = snapshot_with(id_)
        self.coordinator.on_metadata_update({"t": former_id})
        self.coordinator.run_pending_jobs()

    def commit(self, offset: int, id_: bytes, partition: int = 0) -> ErrorCode:
        return self.begin_commit(offset, id_, partition)[0]

    def begin_commit(self, offset: int, id_: bytes, partition: int = 0) -> list[ErrorCode]:
        """Commit. Returns the answers, which may come later."""
        heard: list[ErrorCode] = []
        what = OffsetCommit("t", partition, CommittedOffset(offset, 1, "", self.coordinator.now_ms, topic_id=id_))
        self.coordinator.commit_offsets(Committer("g", "", None, -1, 9), [what], heard.append)
        return heard

    def commit_in_transaction(self, offset: int, id_: bytes) -> None:
        assert self.begin_commit_in_transaction(offset, id_) == [NONE]

    def begin_commit_in_transaction(self, offset: int, id_: bytes) -> list[ErrorCode]:
        heard: list[ErrorCode] = []
        what = OffsetCommit("t", 0, CommittedOffset(offset, 1, "", self.coordinator.now_ms, topic_id=id_))
        who = Committer("g", "", None, -1, 3)
        self.coordinator.commit_in_transaction(who, Producer(7, 0), [what], None, heard.append)
        return heard

    def settle_first(self) -> None:
        """Let the high watermark pass the first write on its way, and no other."""
        tp, first, on_done = self.replicas.waiting.pop(0)
        self.replicas.logs[tp].high_watermark = first + 1
        on_done(NONE, first)

    def tombstones(self) -> int:
        return sum(record.committed is None for record in self.log_of("g").records())

    def end_transaction(self) -> None:
        heard: list[ErrorCode] = []
        tp = self.tp(self.coordinator.partition_for("g"))
        self.coordinator.end_transaction(tp, Marker(7, 0, True, 1), heard.append)
        assert heard == [NONE]

    def position(self, partition: int = 0, id_: bytes = ZERO_UUID) -> Any:
        """Fetch the committed position. Returns it, or the error."""
        heard: list[Any] = []
        self.coordinator.fetch_offsets(OffsetQuery("g", [TopicQuery(id_, "t", [partition])], False), heard.append)
        (fetched,) = heard
        return fetched.error or fetched.topics[0].partitions[0].offset

    def told_of_all(self) -> list[tuple[str, list[int]]]:
        heard: list[Any] = []
        self.coordinator.fetch_offsets(OffsetQuery("g", None, False), heard.append)
        (fetched,) = heard
        return [(topic.name, [p.offset for p in topic.partitions]) for topic in fetched.topics]


def test_both_in_one_push() -> None:
    story = Story()
    assert story.commit(100, FORMER) == NONE
    story.cache.snapshot = snapshot_with(PRESENT)  # already published, though nothing is removed yet
    assert story.position() == -1
    assert story.told_of_all() == []
    story.push(PRESENT, FORMER)
    assert story.position() == -1
    assert story.log_of("g").records()[-1].committed is None, "a tombstone"
    assert story.commit(5, PRESENT) == NONE
    assert story.position() == story.position(id_=PRESENT) == 5
    assert story.position(id_=FORMER) == -1
    story.fail_over()
    assert story.position() == 5


def test_the_coordinator_moves_between_deletion_and_creation() -> None:
    story = Story()
    story.commit(100, FORMER)
    story.coordinator.shutdown()  # nothing is removed
    story.cache.snapshot = snapshot_with(PRESENT)
    story.fail_over()
    assert story.position() == -1
    assert story.log_of("g").records()[-1].committed is None, "a tombstone"


def test_the_coordinator_was_away_during_the_deletion_and_sees_the_creation() -> None:
    story = Story()
    story.commit(100, FORMER)
    story.cache.snapshot = snapshot_with(None)
    story.fail_over()
    assert story.position() == 100, "a topic that may come in a later push: nothing is known"
    story.push(PRESENT, ZERO_UUID)
    assert story.position() == -1


def test_a_commit_on_its_way_to_a_topic_that_was_made_anew_is_refused() -> None:
    story = Story()
    story.push(PRESENT, FORMER)
    assert story.commit(100, FORMER) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    story.push(None, PRESENT)
    assert story.commit(100, PRESENT) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert story.log_of("g").records() == []


def test_a_commit_that_is_committed_after_its_topic_was_made_anew_is_not_told() -> None:
    story = Story()
    story.replicas.holds = True
    heard = story.begin_commit(100, FORMER)
    story.push(PRESENT, FORMER)
    story.replicas.release()
    assert heard == [NONE]
    assert story.position() == -1
    assert story.tombstones() == 1


@pytest.mark.parametrize(
    "pushes",
    [[(None, FORMER)], [(PRESENT, FORMER)], [(None, FORMER), (PRESENT, ZERO_UUID)]],
    ids=["deleted", "made anew", "deleted, then made anew"],
)
def test_a_commit_in_the_former_topic_that_timed_out_is_removed_by_the_next_expiry(
    pushes: list[tuple[bytes | None, bytes]],
) -> None:
    story = Story()
    story.replicas.holds = True
    story.begin_commit(100, FORMER)
    story.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
    for id_, former_id in pushes:
        story.push(id_, former_id)
    story.replicas.holds = False
    story.log_of("g").high_watermark = 1
    assert story.tombstones() == 0
    story.coordinator.expire()
    assert story.told_of_all() == []
    assert story.tombstones() == 1


@pytest.mark.parametrize("is_transactional", [False, True])
def test_no_tombstone_follows_a_commit_in_the_present_topic_that_is_on_its_way(is_transactional: bool) -> None:
    story = Story()
    story.commit(100, FORMER)
    story.cache.snapshot = snapshot_with(PRESENT)
    story.replicas.holds = True
    begin = story.begin_commit_in_transaction if is_transactional else story.begin_commit
    heard = begin(5, PRESENT)
    story.push(PRESENT, FORMER)
    story.replicas.holds = False
    story.replicas.release()
    assert heard == [NONE]
    assert story.tombstones() == 0
    if is_transactional:
        story.end_transaction()
    assert story.position() == 5
    story.fail_over()
    assert story.position() == 5


def test_no_tombstone_follows_a_commit_that_begins_while_the_removal_waits() -> None:
    story = Story()
    story.commit(100, FORMER)
    story.commit(100, FORMER, partition=1)
    story.cache.snapshot = snapshot_with(PRESENT)
    story.replicas.holds = True
    story.begin_commit(5, PRESENT, partition=2)
    story.push(PRESENT, FORMER)
    story.begin_commit(6, PRESENT)
    story.settle_first()
    story.replicas.release()
    story.replicas.release()
    assert [story.position(partition) for partition in range(3)] == [6, -1, 5]
    assert story.tombstones() == 1
    story.replicas.holds = False
    story.fail_over()
    assert [story.position(partition) for partition in range(3)] == [6, -1, 5]


def test_no_tombstone_follows_a_loaded_commit_that_is_not_known_to_be_committed() -> None:
    story = Story()
    story.commit(100, FORMER)
    story.commit(100, FORMER, partition=1)
    story.cache.snapshot = snapshot_with(PRESENT)
    story.commit(5, PRESENT)
    log = story.log_of("g")
    log.high_watermark = 2
    story.fail_over()
    log.high_watermark = log.log_end_offset
    assert [story.position(partition) for partition in range(2)] == [5, -1]
    assert story.tombstones() == 1
    story.fail_over()
    assert [story.position(partition) for partition in range(2)] == [5, -1]


def test_an_open_transaction_in_the_former_topic_commits_nothing_for_the_present_one() -> None:
    story = Story()
    story.commit_in_transaction(100, FORMER)
    story.push(PRESENT, FORMER)
    story.end_transaction()
    assert story.position() == -1
    story.fail_over()
    assert story.position() == -1


def test_an_open_transaction_in_the_present_topic_survives_the_removal_of_a_former_position() -> None:
    story = Story()
    story.commit(100, FORMER)
    story.cache.snapshot = snapshot_with(PRESENT)
    story.commit_in_transaction(5, PRESENT)
    story.push(PRESENT, FORMER)
    assert story.position() == -1
    story.end_transaction()
    assert story.position() == 5
    story.fail_over()
    assert story.position() == 5


@pytest.mark.parametrize(("former_id", "expected"), [(FORMER, -1), (ZERO_UUID, 100)], ids=["replaced", "new to us"])
def test_a_position_without_id_goes_with_the_topic_that_was_there(former_id: bytes, expected: int) -> None:
    story = Story()
    assert story.commit(100, ZERO_UUID) == NONE
    story.push(PRESENT, former_id)
    assert story.position() == expected


def test_no_removal_before_the_metadata_is_as_new_as_the_leadership() -> None:
    """With older metadata the new topic's positions would look like another topic's, and be removed."""
    story = Story()
    story.cache.snapshot = snapshot_with(PRESENT)
    story.commit(5, PRESENT)
    story.coordinator.shutdown()
    story.cache.snapshot, story.cache.is_current = snapshot_with(FORMER), False  # another broker, which lags behind
    story.fail_over()
    assert story.position() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    story.cache.is_current = True
    story.push(PRESENT, FORMER)
    assert story.position() == 5


def test_positions_are_told_by_name_of_the_present_topic_only() -> None:
    store = OffsetStore()
    store.put("g", "t", 0, CommittedOffset(1, 0, "", 0, topic_id=FORMER))
    store.put("g", "t", 1, CommittedOffset(2, 0, "", 0, topic_id=PRESENT))
    store.put("g", "t", 2, CommittedOffset(3, 0, "", 0))
    (topic,) = store.fetch("g", None, require_stable=False, current_id=lambda _name: PRESENT)
    assert [(p.partition, p.offset) for p in topic.partitions] == [(1, 2), (2, 3)]
    assert len(store.of_topics({"t"})) == 3


def test_a_push_tells_which_topics_were_replaced() -> None:
    rig = BrokerRig()
    updates: list[dict[str, bytes]] = []
    object.__setattr__(rig.services, "group_coordinator", SimpleNamespace(on_metadata_update=updates.append))
    rig.push({"t": [state(1)], "u": [state(1)]})
    rig.push({"t": [state(1)], "u": [state(1)]}, incarnation=1)
    rig.push({"t": [state(1)]}, incarnation=1)
    assert updates == [
        {"t": ZERO_UUID, "u": ZERO_UUID}, {"t": topic_id("t"), "u": topic_id("u")}, {},
    ]  # fmt: skip


def test_the_metadata_is_current_once_the_push_is_through() -> None:
    cache = MetadataCache()
    assert cache.is_current
    cache.expect_offset(7)
    assert not cache.is_current
    cache.note_offset(6)
    assert not cache.is_current
    cache.note_offset(7)
    assert cache.is_current
    cache.expect_offset(5)  # an old one
    assert cache.is_current
    cache.expect_offset(9)
    cache.forget_offset()
    assert not cache.is_current, "the push that made this broker a leader is under way, and the metadata is old"
    cache.note_offset(9)
    assert cache.is_current
