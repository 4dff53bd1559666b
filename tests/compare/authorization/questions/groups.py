"""Questions about groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.protocol.api_keys import ApiKey as Key
from tests.compare.authorization.questions.question import NEWEST, TOPICS, Fields, Question
from tests.compare.authorization.world import World

_GROUPS = ["open-g", "shut-g", "open-n", "shut-n"]
_CONSUMER_GROUPS = ["open-c", "shut-c", "open-n", "shut-n"]
_GROUP, _TRANSACTION = 0, 1  # key types of FindCoordinator
_STRANGER = {"group_id": "shut-g", "member_id": "stranger"}


def questions() -> Iterator[Question]:
    """Return the questions in their order."""
    yield from _offset_questions()
    yield from _coordinator_questions()
    yield Question("JoinGroup", Key.JOIN_GROUP, _join)
    yield Question("Heartbeat", Key.HEARTBEAT, lambda _w, _v: {**_STRANGER, "generation_id": 1})
    yield Question("LeaveGroup", Key.LEAVE_GROUP, _leave)
    yield Question("SyncGroup", Key.SYNC_GROUP, lambda _w, _v: {**_STRANGER, "generation_id": 1}, (0, 4))
    yield Question("SyncGroup with its protocol", Key.SYNC_GROUP, _sync, (NEWEST,))
    yield Question("SyncGroup without a protocol", Key.SYNC_GROUP, _sync_without_protocol, (NEWEST,))
    yield Question("DescribeGroups", Key.DESCRIBE_GROUPS, _describe)
    yield Question("ListGroups", Key.LIST_GROUPS, lambda _w, _v: {})
    yield Question("DeleteGroups", Key.DELETE_GROUPS, lambda _w, _v: {"groups_names": [*_CONSUMER_GROUPS]})
    yield from _consumer_questions()


def _offset_questions() -> Iterator[Question]:
    yield Question("OffsetCommit", Key.OFFSET_COMMIT, _commit, (2, 9, NEWEST))
    yield Question("OffsetFetch", Key.OFFSET_FETCH, _fetch, (1, 7, 8, 9, NEWEST))
    yield Question("OffsetFetch of all topics", Key.OFFSET_FETCH, _fetch_all, (2, 9, NEWEST))
    yield Question("OffsetDelete", Key.OFFSET_DELETE, lambda _w, _v: _offset_delete("shut-g"))
    yield Question("OffsetDelete of no group", Key.OFFSET_DELETE, lambda _w, _v: _offset_delete("shut-n"))


def _commit(world: World, version: int) -> Fields:
    partitions = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    topics = [{**_topic(world, version, name), "partitions": partitions} for name in TOPICS]
    return {"group_id": "shut-g", "generation_id_or_member_epoch": -1, "topics": topics}


def _topic(world: World, version: int, name: str) -> dict[str, Any]:
    return {"topic_id": world.id_of(name)} if version >= 10 else {"name": name}


def _fetch(world: World, version: int) -> Fields:
    topics = [{**_topic(world, version, name), "partition_indexes": [0]} for name in TOPICS]
    if version < 8:
        return {"group_id": "shut-g", "topics": topics}
    return {"groups": [{"group_id": name, "topics": topics} for name in _GROUPS]}


def _fetch_all(_world: World, version: int) -> Fields:
    if version < 8:
        return {"group_id": "shut-g", "topics": None}
    return {"groups": [{"group_id": name, "topics": None} for name in _GROUPS]}


def _offset_delete(group: str) -> Fields:
    """Ask to delete offsets that are not there: of a partition that has none."""
    partitions = [{"partition_index": 5}]
    return {"group_id": group, "topics": [{"name": name, "partitions": partitions} for name in TOPICS]}


def _coordinator_questions() -> Iterator[Question]:
    for what, kind, names, first in (
        ("groups", _GROUP, _GROUPS, 0),
        ("transactions", _TRANSACTION, ["open-x", "shut-x"], 1),
    ):

        def fields(_world: World, version: int, kind: int = kind, names: list[str] = names) -> Fields:
            key_type = {"key_type": kind} if version >= 1 else {}
            return {"key": names[1], **key_type} if version < 4 else {"coordinator_keys": names, **key_type}

        yield Question(f"FindCoordinator of {what}", Key.FIND_COORDINATOR, fields, (first, NEWEST))


def _join(_world: World, _version: int) -> Fields:
    protocols = [{"name": "range", "metadata": b""}]
    return {**_STRANGER, "session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": protocols}


def _leave(_world: World, version: int) -> Fields:
    return _STRANGER if version < 3 else {"group_id": "shut-g", "members": [{"member_id": "stranger"}]}


def _sync(_world: World, _version: int) -> Fields:
    return {**_STRANGER, "generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"}


def _sync_without_protocol(_world: World, _version: int) -> Fields:
    return {**_STRANGER, "generation_id": 1, "protocol_type": None, "protocol_name": None}


def _describe(_world: World, version: int) -> Fields:
    return {"groups": _GROUPS, **({"include_authorized_operations": True} if version >= 3 else {})}


def _consumer_questions() -> Iterator[Question]:
    stranger = {"group_id": "shut-c", "member_id": "stranger", "member_epoch": 5}
    by_name = {**stranger, "subscribed_topic_names": TOPICS}
    yield Question("ConsumerGroupHeartbeat", Key.CONSUMER_GROUP_HEARTBEAT, lambda _w, _v: stranger)
    yield Question("ConsumerGroupHeartbeat with topics", Key.CONSUMER_GROUP_HEARTBEAT, lambda _w, _v: by_name)
    described = {"group_ids": _CONSUMER_GROUPS, "include_authorized_operations": True}
    yield Question("ConsumerGroupDescribe", Key.CONSUMER_GROUP_DESCRIBE, lambda _w, _v: described)
