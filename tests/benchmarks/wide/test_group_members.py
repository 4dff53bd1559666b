"""Tests benchmarks/wide/group_members.py: members that join, own and send heartbeats, on a broker that is a table."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

import pytest

from barnabas.common.clock import Clock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import decode_request_header
from barnabas.protocol.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from benchmarks.wide import group_members
from benchmarks.wide.group_members import ASK_MS, VERSION, Member, Members
from tests.support.wire import RawConnection

OWNED = [TopicPartitions(topic_id=bytes(16), partitions=[0, 1])]
INTERVAL_MS = 5000


class Time:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def pause(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


class Broker:
    """Answers the heartbeats of a connection. A member has its assignment with its first heartbeat after it joined."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.asked: dict[str, list[tuple[int, ConsumerGroupHeartbeatRequest]]] = defaultdict(list)
        self.unloaded = 0  # answers that the coordinator is loading
        self.refusal = ErrorCode.NONE
        self._answers: list[bytes] = []

    def send_bytes(self, data: bytes) -> None:
        while data:
            end = 4 + int.from_bytes(data[:4])
            frame, data = memoryview(data)[4:end], data[end:]
            _, offset = decode_request_header(frame)
            request = ConsumerGroupHeartbeatRequest.decode(frame, VERSION, offset)
            self.asked[request.group_id].append((self.time.now_ms, request))
            answer = ConsumerGroupHeartbeatResponse(heartbeat_interval_ms=INTERVAL_MS, **self._about(request))
            self._answers.append(bytes(4) + b"\0" + answer.encode(VERSION))

    def receive_frame(self) -> bytes:
        return self._answers.pop(0)

    def _about(self, request: ConsumerGroupHeartbeatRequest) -> dict[str, Any]:
        if self.unloaded:
            self.unloaded -= 1
            return {"error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        if self.refusal:
            return {"error_code": self.refusal}
        earlier = [asked.member_epoch for _, asked in self.asked[request.group_id]]
        if 0 not in earlier:
            return {"error_code": ErrorCode.GROUP_ID_NOT_FOUND}
        is_new = request.member_epoch == 1 and earlier[-2:] == [0, 1]
        return {"member_epoch": 1, "assignment": Assignment(topic_partitions=OWNED) if is_new else None}


def made(groups: int, *brokers: Broker) -> Members:
    members = [Member(f"g{number}", "t") for number in range(groups)]
    return Members(cast(list[RawConnection], brokers), members, cast(Clock, brokers[0].time))


def test_members_ask_until_their_coordinators_have_loaded() -> None:
    broker = Broker(time := Time())
    broker.unloaded = 3
    made(2, broker).await_coordinators(time.pause)
    assert time.now_ms == 2 * ASK_MS
    assert [len(asked) for asked in broker.asked.values()] == [3, 2]
    assert {asked.member_epoch for asks in broker.asked.values() for _, asked in asks} == {1}


def test_members_join_and_ask_until_they_have_an_assignment() -> None:
    broker = Broker(time := Time())
    made(1, broker).join(time.pause)
    (first, second) = [asked for _, asked in broker.asked["g0"]]
    assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["t"], [])
    assert (second.member_epoch, second.subscribed_topic_names, second.topic_partitions) == (1, None, None)
    assert first.member_id == second.member_id
    assert time.now_ms == ASK_MS


def test_members_share_the_connections() -> None:
    one, other = Broker(time := Time()), Broker(time)
    made(5, one, other).join(time.pause)
    assert (set(one.asked), set(other.asked)) == ({"g0", "g2", "g4"}, {"g1", "g3"})


def test_heartbeats_are_spread_over_the_interval_of_the_broker() -> None:
    broker = Broker(time := Time())
    members = made(2, broker)
    members.join(time.pause)
    members.own()
    broker.asked.clear()
    start_ms = time.now_ms
    for group_id in ("g0", "g1"):  # they have joined, as far as this broker knows
        broker.asked[group_id].append((-1, ConsumerGroupHeartbeatRequest(member_epoch=0)))
    members.beat(2 * INTERVAL_MS, time.pause)
    beats = {group_id: [at - start_ms for at, _ in asked[1:]] for group_id, asked in broker.asked.items()}
    assert beats == {"g0": [0, INTERVAL_MS], "g1": [INTERVAL_MS // 2, INTERVAL_MS * 3 // 2]}
    assert time.now_ms - start_ms == 2 * INTERVAL_MS


def test_a_member_tells_what_it_owns() -> None:
    broker = Broker(time := Time())
    members = made(1, broker)
    members.join(time.pause)
    members.own()
    assert broker.asked["g0"][-1][1].topic_partitions == OWNED


def test_an_error_ends_the_measurement() -> None:
    broker = Broker(time := Time())
    broker.refusal = ErrorCode.GROUP_MAX_SIZE_REACHED
    with pytest.raises(AssertionError, match="g0: GROUP_MAX_SIZE_REACHED"):
        made(1, broker).join(time.pause)


def test_an_assignment_that_does_not_come_ends_the_measurement() -> None:
    broker = Broker(time := Time())
    broker.unloaded = 10 * group_members.TIMEOUT_MS // ASK_MS
    with pytest.raises(AssertionError, match="1 members have no assignment"):
        made(1, broker).join(time.pause)
