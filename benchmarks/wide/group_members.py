"""Members of consumer groups (KIP-848), one in each group, all driven by one thread over a few connections.

They consume nothing, so that a thousand of them cost a client little, and a broker only what a group costs it: it
assigns the partitions of a topic, answers heartbeats, and keeps what it knows of a group.

Rules
1. Before that, each member asks as a stranger until its coordinator has loaded the group's part of
   __consumer_offsets. A system that creates this topic with the first group is not measured creating it.
2. All members join at once. A connection's requests are sent without waiting for responses. A broker takes one request
   of a connection at a time, so it works at CONNECTIONS members at once.
3. A member without an assignment asks again each ASK_MS. A Java client would ask after the interval of heartbeats, 5 s,
   and the time until all are assigned would be that interval.
4. A member with an assignment tells once that it owns it, and then sends an empty heartbeat at the interval that the
   broker has told. The members are spread over the interval, as those of clients that started at different times are.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.common.clock import Clock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from benchmarks.load.members import NOT_YET, REBALANCE_MS
from tests.support.wire import RawConnection

CONNECTIONS: Final = 20
ASK_MS: Final = 100
TIMEOUT_MS: Final = 120_000
API_KEY, VERSION, CLIENT_ID = 68, 1, "wide"


@dataclass(slots=True)
class Member:
    """The only member of a group."""

    group_id: str
    topic: str
    epoch: int = 0  # 0 until it has joined
    interval_ms: int = 0  # between heartbeats
    owned: list[TopicPartitions] = field(default_factory=list)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def heartbeat(self) -> bytes:
        """Return the frame of a heartbeat; of the first one, if the member has not joined."""
        if self.epoch:
            return self._heartbeat(self.epoch)
        about = {"subscribed_topic_names": [self.topic], "topic_partitions": []}
        return self._heartbeat(0, rebalance_timeout_ms=REBALANCE_MS, **about)

    def ownership(self) -> bytes:
        """Return the frame of the heartbeat that tells what the member owns."""
        return self._heartbeat(self.epoch, topic_partitions=self.owned)

    def question(self) -> bytes:
        """Return the frame of a heartbeat that is refused, since the member has not joined."""
        return self._heartbeat(1)

    def answered(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        """Take a response; raises AssertionError if it is an error that does not go away by itself."""
        if answer.error_code in NOT_YET:
            return
        assert answer.error_code == ErrorCode.NONE, f"{self.group_id}: {ErrorCode(answer.error_code).name}"
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self.owned = [
                TopicPartitions(topic_id=found.topic_id, partitions=found.partitions)
                for found in answer.assignment.topic_partitions
            ]

    def _heartbeat(self, epoch: int, **about: Any) -> bytes:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group_id, member_id=self.id, member_epoch=epoch, **about)
        return encode_request(RequestHeader(API_KEY, VERSION, 0, CLIENT_ID), request)


class Members:
    """All members. Used by one thread."""

    def __init__(self, connections: Iterable[RawConnection], members: Iterable[Member], clock: Clock) -> None:
        self._connections = list(connections)
        self._members = list(members)
        self._clock = clock

    def await_coordinators(self, pause: Callable[[int], None]) -> None:
        """Wait until each group has its coordinator; raises AssertionError if that takes too long."""

        def ask(members: list[Member]) -> list[Member]:
            answers = self._exchange((member, member.question()) for member in members)
            return [member for member, answer in answers if answer.error_code in NOT_YET]

        self._repeat(ask, pause, "coordinator")

    def join(self, pause: Callable[[int], None]) -> None:
        """Join, and ask until each member has its assignment; raises AssertionError if that takes too long."""

        def ask(members: list[Member]) -> list[Member]:
            self._send(members)
            return [member for member in members if not member.owned]

        self._repeat(ask, pause, "assignment")

    def own(self) -> None:
        """Tell that each member owns what it has been assigned; then it is settled."""
        for member, answer in self._exchange((member, member.ownership()) for member in self._members):
            member.answered(answer)

    def beat(self, milliseconds: int, pause: Callable[[int], None]) -> None:
        """Send heartbeats for a while, each member's at its interval; raises AssertionError if one is refused."""
        start_ms = self._clock.monotonic_ms()
        due = [
            (start_ms + member.interval_ms * number // len(self._members), number)
            for number, member in enumerate(self._members)
        ]
        heapq.heapify(due)
        while due[0][0] < start_ms + milliseconds:
            pause(max(0, due[0][0] - self._clock.monotonic_ms()))
            now_ms = self._clock.monotonic_ms()
            beating = []
            while due[0][0] <= now_ms:
                number = due[0][1]
                beating.append(self._members[number])
                heapq.heapreplace(due, (now_ms + self._members[number].interval_ms, number))
            self._send(beating)
        pause(max(0, start_ms + milliseconds - self._clock.monotonic_ms()))

    def _repeat(self, ask: Callable[[list[Member]], list[Member]], pause: Callable[[int], None], wanted: str) -> None:
        """Ask for all members, then for those that are left."""
        end_ms = self._clock.monotonic_ms() + TIMEOUT_MS
        left = ask(self._members)
        while left:
            assert self._clock.monotonic_ms() < end_ms, f"{len(left)} members have no {wanted}"
            pause(ASK_MS)
            left = ask(left)

    def _send(self, members: Iterable[Member]) -> None:
        for member, answer in self._exchange((member, member.heartbeat()) for member in members):
            member.answered(answer)

    def _exchange(
        self, requests: Iterable[tuple[Member, bytes]]
    ) -> list[tuple[Member, ConsumerGroupHeartbeatResponse]]:
        """Send frames on all connections in turn, and return the responses."""
        frames, answers = list(requests), []
        shares = [frames[number :: len(self._connections)] for number in range(len(self._connections))]
        for connection, share in zip(self._connections, shares, strict=True):
            if share:
                connection.send_bytes(b"".join(frame for _, frame in share))
        for connection, share in zip(self._connections, shares, strict=True):
            for member, _ in share:
                frame = connection.receive_frame()
                assert frame is not None, "the broker closed the connection"
                _, offset = decode_response_header(frame, API_KEY, VERSION)
                answers.append((member, ConsumerGroupHeartbeatResponse.decode(frame, VERSION, offset)))
        return answers


@contextmanager
def connected(port: int, group_ids: Iterable[str], topic: str, clock: Clock) -> Iterator[Members]:
    """Open the connections for a member of each group."""
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(port)) for _ in range(CONNECTIONS)]
        yield Members(connections, [Member(group_id, topic) for group_id in group_ids], clock)
