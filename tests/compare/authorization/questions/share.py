"""Questions about share groups and their state. They change nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from barnabas.common.ids import uuid_to_string
from barnabas.protocol.api_keys import ApiKey as Key
from tests.compare.authorization.questions.question import NEWEST, TOPICS, Fields, Question
from tests.compare.authorization.world import SHARE_KEY, World

_GROUPS = ["open-s", "shut-s", "open-e", "shut-e", "open-g", "shut-g", "open-n", "shut-n"]
_STRANGER = {"group_id": "shut-s", "member_id": "stranger", "member_epoch": 5}
_MISSING_PARTITION = 5
_OLDEST = 1  # version of ShareFetch and ShareAcknowledge


def questions() -> Iterator[Question]:
    """Return the questions in their order."""
    by_key = {"key_type": 2, "coordinator_keys": [SHARE_KEY]}
    yield Question("FindCoordinator of share partitions", Key.FIND_COORDINATOR, lambda _w, _v: by_key, (NEWEST,))
    yield from _state_questions()
    yield from _group_questions()
    yield from _record_questions()


def _record_questions() -> Iterator[Question]:
    """A session of a new member, for partitions that are missing: fetched twice, then acknowledged twice."""
    sessions = itertools.count()
    member = [""]

    def topics(world: World, **fields: object) -> Fields:
        partitions = [{"partition_index": _MISSING_PARTITION, **fields}]
        return {"topics": [{"topic_id": world.id_of(name), "partitions": partitions} for name in ("open-t", "shut-t")]}

    def fetch(world: World, version: int) -> Fields:
        if version == _OLDEST:
            member[0] = uuid_to_string(next(sessions).to_bytes(16, "big"))
        return {
            "group_id": "shut-s",
            "member_id": member[0],
            "share_session_epoch": 0,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_records": 1,
            "batch_size": 1,
            **topics(world),
        }

    def acknowledge(world: World, version: int) -> Fields:
        batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
        epoch = version - _OLDEST + 1
        session = {"group_id": "shut-s", "member_id": member[0], "share_session_epoch": epoch}
        return {**session, **topics(world, acknowledgement_batches=batches)}

    yield Question("ShareFetch", Key.SHARE_FETCH, fetch)
    yield Question("ShareAcknowledge", Key.SHARE_ACKNOWLEDGE, acknowledge)


def _state_questions() -> Iterator[Question]:
    for name, key, fields in (
        ("InitializeShareGroupState", Key.INITIALIZE_SHARE_GROUP_STATE, {"state_epoch": 1, "start_offset": 0}),
        ("ReadShareGroupState", Key.READ_SHARE_GROUP_STATE, {"leader_epoch": 0}),
        ("WriteShareGroupState", Key.WRITE_SHARE_GROUP_STATE, {"state_epoch": 1, "leader_epoch": 0}),
        ("DeleteShareGroupState", Key.DELETE_SHARE_GROUP_STATE, {}),
        ("ReadShareGroupStateSummary", Key.READ_SHARE_GROUP_STATE_SUMMARY, {"leader_epoch": 0}),
    ):

        def asked(world: World, _version: int, fields: Fields = fields) -> Fields:
            partitions = [{"partition": _MISSING_PARTITION, **fields}]
            topics = [{"topic_id": world.id_of(topic), "partitions": partitions} for topic in ("open-t", "shut-t")]
            return {"group_id": "shut-s", "topics": topics}

        yield Question(name, key, asked)


def _group_questions() -> Iterator[Question]:
    by_name = {**_STRANGER, "subscribed_topic_names": TOPICS}
    yield Question("ShareGroupHeartbeat", Key.SHARE_GROUP_HEARTBEAT, lambda _w, _v: _STRANGER)
    yield Question("ShareGroupHeartbeat with topics", Key.SHARE_GROUP_HEARTBEAT, lambda _w, _v: by_name)
    described = {"group_ids": _GROUPS, "include_authorized_operations": True}
    yield Question("ShareGroupDescribe", Key.SHARE_GROUP_DESCRIBE, lambda _w, _v: described)
    topics = [{"topic_name": name, "partitions": [0]} for name in TOPICS]
    offsets = {"groups": [{"group_id": name, "topics": topics} for name in _GROUPS]}
    yield Question("DescribeShareGroupOffsets", Key.DESCRIBE_SHARE_GROUP_OFFSETS, lambda _w, _v: offsets)
    every = {"groups": [{"group_id": name, "topics": None} for name in _GROUPS]}
    yield Question("DescribeShareGroupOffsets of all topics", Key.DESCRIBE_SHARE_GROUP_OFFSETS, lambda _w, _v: every)
    moved = [{"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]} for name in TOPICS]
    # Of a group with members, and of one without, whose offsets these are already.
    for what, group in (("", "shut-e"), (" of a group with members", "shut-s")):
        yield Question(
            f"AlterShareGroupOffsets{what}",
            Key.ALTER_SHARE_GROUP_OFFSETS,
            lambda _w, _v, group=group: {"group_id": group, "topics": moved},
        )
    for what, group in ((" of a group with members", "shut-s"), (" of no group", "shut-n")):
        yield Question(
            f"DeleteShareGroupOffsets{what}",
            Key.DELETE_SHARE_GROUP_OFFSETS,
            lambda _w, _v, group=group: {"group_id": group, "topics": [{"topic_name": name} for name in TOPICS]},
        )
