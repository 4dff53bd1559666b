"""`barnabas group` and `barnabas explain group` on share groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.admin.share_groups import Position, rows, title
from barnabas.client.connection import NodeConnection
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.k77_share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from barnabas.protocol.messages.k78_share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from barnabas.protocol.messages.k91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from tests.barnabas.cli.conftest import Barnabas
from tests.support.waiting import eventually

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def group(**assigned: tuple[int, ...]) -> DescribedGroup:
    """A group whose members have these partitions of `t`."""
    members = [
        Member(
            member_id=name,
            assignment=Assignment(topic_partitions=[TopicPartitions(topic_name="t", partitions=list(partitions))]),
        )
        for name, partitions in assigned.items()
    ]
    return DescribedGroup(group_id="g", group_state="Stable", members=members)


def share(partition: int = 0, *held: tuple[int, int, int], **changes: Any) -> Any:
    """What a leader's page shows of a share partition."""
    items = [
        {"member_id": "m", "first_offset": first, "last_offset": last, "delivery_count": count, "left_ms": 9}
        for first, last, count in held
    ]
    listed = {"total": len(items), "items": items}
    made = {"group_id": "g", "topic": "t", "partition": partition, "is_loading": False, "start_offset": 5}
    return {**made, "end_offset": 9, "in_flight": 5, "held": listed, "sentence": "", **changes}


def test_a_row_for_each_partition() -> None:
    found = {T0: Position(4, 7), T1: Position(None, None)}
    first, second, third = rows(group(n=(0,), m=(0, 2)), found, [share(0, (5, 6, 1), (8, 8, 3))])
    assert first == {
        "topic": "t", "partition": 0, "start": 5, "lag": 7, "in_flight": 5, "held": 3, "deliveries": 3,
        "members": "m, n",
    }  # fmt: skip
    assert (second["start"], second["in_flight"], second["held"], second["members"]) == (None, 0, 0, "")
    assert (third["partition"], third["members"]) == (2, "m")
    assert title(group(m=())) == "g: share group, Stable, 1 member"


def test_without_pages_it_is_not_known_what_is_in_flight() -> None:
    (row,) = rows(group(), {T0: Position(4, 7)}, None)
    assert (row["start"], row["in_flight"], row["held"], row["deliveries"]) == (4, None, None, None)


def test_a_start_that_is_being_read_is_the_one_that_was_written() -> None:
    (row,) = rows(group(), {T0: Position(4, 7)}, [share(is_loading=True, start_offset=0)])
    assert row["start"] == 4


Ask = Callable[[Any, int], Any]


@pytest.fixture
def ask(bootstrap: str) -> Iterator[Ask]:
    """Sends requests of a member over one connection."""
    host, port = bootstrap.split(",")[0].split(":")
    with NodeConnection(host, int(port), timeout_ms=20_000, client_id="a member") as connection:
        yield connection.send


def test_a_share_group_is_listed_and_described(barnabas: Barnabas, topic: str, ask: Ask, tmp_path: Path) -> None:
    name = f"shares-of-{topic}"
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\n")
    barnabas("produce", topic, "--file", str(lines), "--partition", "1")
    start = [AlterShareGroupOffsetsRequestPartition(partition_index=p, start_offset=0) for p in (0, 1)]
    altered = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=start)
    request = AlterShareGroupOffsetsRequest(group_id=name, topics=[altered])

    def is_altered() -> bool:
        ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), 4)  # creates __consumer_offsets
        answer = ask(request, 0)
        return not answer.error_code and not any(p.error_code for t in answer.responses for p in t.partitions)

    eventually("the group has start offsets", is_altered)
    joining = ShareGroupHeartbeatRequest(group_id=name, member_id="m", member_epoch=0, subscribed_topic_names=[topic])
    topic_ids: list[bytes] = []

    def has_partitions() -> bool:
        assigned = ask(joining, 1).assignment
        topic_ids.extend(each.topic_id for each in (assigned.topic_partitions if assigned else ()))
        return bool(topic_ids)

    eventually("the member has partitions", has_partitions)
    fetch = ShareFetchRequest(
        group_id=name, member_id="m", share_session_epoch=0, max_wait_ms=10_000, min_bytes=1, max_records=10,
        batch_size=10, topics=[FetchTopic(topic_id=topic_ids[0], partitions=[FetchPartition(partition_index=1)])],
    )  # fmt: skip
    (acquired,) = ask(fetch, 2).responses[0].partitions[0].acquired_records
    assert (acquired.first_offset, acquired.last_offset) == (0, 2)

    assert [name, "STABLE", "SHARE"] in barnabas("group", "list").rows
    described = {row["partition"]: row for row in json.loads(barnabas("group", "describe", name, "--json").out)}
    shown = {key: described[1][key] for key in ("start", "lag", "in_flight", "held", "deliveries", "members")}
    assert shown == {"start": 0, "lag": 3, "in_flight": 3, "held": 3, "deliveries": 1, "members": "m"}
    assert (described[0]["start"], described[0]["lag"], described[0]["in_flight"]) == (0, 0, 0)
    explained = barnabas("explain", "group", name).out
    assert f"  {topic}-1: from offset 0 on, 3 offsets in flight; 1 member holds 3 records; the first lock" in explained
    assert "    m holds 0 to 2, delivered 1 time" in explained
