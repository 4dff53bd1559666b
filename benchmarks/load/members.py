"""Group members, all driven by one thread: they join and wait for their assignment.

They load the coordinator only: a member consumes nothing. In a classic group the leader assigns. In a KIP-848 group the
coordinator assigns, and members send heartbeats until all have its epoch.
"""

from __future__ import annotations

import selectors
import socket
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from barnabas.common.clock import SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.support.waiting import eventually

FIND, JOIN, HEARTBEAT, SYNC, CONSUMER_HEARTBEAT = 10, 11, 12, 14, 68
VERSIONS: Final = {FIND: 3, JOIN: 7, HEARTBEAT: 4, SYNC: 5, CONSUMER_HEARTBEAT: 1}
#: The broker is the coordinator but has not loaded the group yet.
NOT_YET: Final = (
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)  # fmt: skip
PROTOCOL_TYPE, ASSIGNOR = "consumer", "range"
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
BEAT_NS: Final = 100_000_000
TIMEOUT_NS: Final = 60_000_000_000
RECEIVE_BYTES: Final = 1 << 20


class Member(ABC):
    """One member with its connection. Driven by `join_all`."""

    def __init__(self, port: int, group_id: str, topic: str) -> None:
        self.group_id = group_id
        self.topic = topic
        self.assigned_in = -1  # the generation or epoch of its assignment; -1 without one
        self.next_beat_ns = 0
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in_flight = 0  # the API key of the request in flight, 0 without one
        self._received = bytearray()

    @abstractmethod
    def join(self) -> None:
        """Send the request to join."""

    def beat(self, now_ns: int) -> None:
        """Send a heartbeat when one is due."""
        if not self._in_flight and now_ns >= self.next_beat_ns:
            self.next_beat_ns = now_ns + BEAT_NS
            self._beat()

    def receive(self) -> None:
        """Receive responses and handle the complete ones."""
        self._received += self.sock.recv(RECEIVE_BYTES)
        while len(self._received) >= 4:
            end = 4 + int(struct.unpack_from(">i", self._received)[0])
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            key, self._in_flight = self._in_flight, 0
            _, offset = decode_response_header(frame, key, VERSIONS[key])
            self._answered(key, response_class(key).decode(frame, VERSIONS[key], offset))

    @abstractmethod
    def _beat(self) -> None:
        """Send a heartbeat."""

    @abstractmethod
    def _answered(self, key: int, answer: Any) -> None:
        """Handle the response to a request of this API."""

    def _ask(self, key: int, request: Any) -> None:
        self._in_flight = key
        self.sock.sendall(encode_request(RequestHeader(key, VERSIONS[key], 0, "members"), request))

    def _check(self, answer: Any) -> None:
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name


class ClassicMember(Member):
    """A member of a classic group."""

    def __init__(self, port: int, group_id: str, topic: str) -> None:
        super().__init__(port, group_id, topic)
        self.generation = -1
        self.leads_members = 0  # members that it assigned to, if it is the leader
        self._id = ""
        name = topic.encode()
        self._metadata = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)

    def join(self) -> None:
        """Send JoinGroup for the next generation."""
        self.assigned_in = -1
        protocols = [JoinGroupRequestProtocol(name=ASSIGNOR, metadata=self._metadata)]
        self._ask(
            JOIN,
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self._id,
                protocol_type=PROTOCOL_TYPE,
                protocols=protocols,
            ),
        )

    def _beat(self) -> None:
        beat = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation, member_id=self._id)
        self._ask(HEARTBEAT, beat)

    def _answered(self, key: int, answer: Any) -> None:
        {JOIN: self._joined, SYNC: self._synced, HEARTBEAT: self._beaten}[key](answer)

    def _joined(self, answer: Any) -> None:
        self._id = answer.member_id or self._id
        if answer.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS, *NOT_YET):
            self.join()
            return
        self._check(answer)
        self.generation = answer.generation_id
        self.leads_members = len(answer.members)
        assignment = struct.pack(">hii", 0, 0, -1)  # no topics: nothing is consumed
        self._ask(
            SYNC,
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self._id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=ASSIGNOR,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment)
                    for member in answer.members
                ],
            ),
        )

    def _synced(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        self._check(answer)
        self.assigned_in = self.generation

    def _beaten(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        else:
            self._check(answer)


class ConsumerMember(Member):
    """A member of a consumer group (KIP-848)."""

    def __init__(self, port: int, group_id: str, topic: str) -> None:
        super().__init__(port, group_id, topic)
        self._id = str(uuid.uuid4())

    def join(self) -> None:
        """Send a heartbeat with epoch 0."""
        self._heartbeat(0, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=[self.topic], topic_partitions=[])

    def _beat(self) -> None:
        self._heartbeat(self.assigned_in)

    def _answered(self, _key: int, answer: Any) -> None:
        if answer.error_code in NOT_YET:
            self.join()
            return
        self._check(answer)
        self.assigned_in = answer.member_epoch
        if answer.assignment is not None:  # it owns the target assignment at once
            owned = [
                TopicPartitions(topic_id=found.topic_id, partitions=found.partitions)
                for found in answer.assignment.topic_partitions
            ]
            self._heartbeat(self.assigned_in, topic_partitions=owned)

    def _heartbeat(self, epoch: int, **about: Any) -> None:
        self._ask(
            CONSUMER_HEARTBEAT,
            ConsumerGroupHeartbeatRequest(group_id=self.group_id, member_id=self._id, member_epoch=epoch, **about),
        )


def join_all(
    port: int, group_ids: Sequence[str], members: int, topic: str, kind: type[Member] = ClassicMember
) -> float:
    """Let `members` members join each group at once. Returns the seconds until all have their assignment."""
    clock = SystemClock()
    for group_id in group_ids:
        await_coordinator(port, group_id)
    joined = [kind(port, group_id, topic) for _ in range(members) for group_id in group_ids]
    selector = selectors.DefaultSelector()
    for member in joined:
        selector.register(member.sock, selectors.EVENT_READ, member)
    start_ns = clock.monotonic_ns()
    for member in joined:
        member.join()
    while not _are_settled(joined, members):
        now_ns = clock.monotonic_ns()
        assert now_ns - start_ns < TIMEOUT_NS, "the groups did not settle"
        for key, _ in selector.select(0.01):
            key.data.receive()
        for member in joined:
            if member.assigned_in >= 0:
                member.beat(now_ns)
    seconds = (clock.monotonic_ns() - start_ns) / 1e9
    for member in joined:
        member.sock.close()
    selector.close()
    return seconds


def await_coordinator(port: int, group_id: str) -> None:
    """Wait until a group has a coordinator, with whose first one the topic of offsets is created."""
    eventually("the group has a coordinator", partial(_has_coordinator, port, group_id), TIMEOUT_NS // 10**6)


def _are_settled(joined: list[Member], members: int) -> bool:
    """Check whether each member has an assignment of its group's last generation, with all members in it."""
    if any(member.assigned_in < 0 for member in joined):
        return False
    leaders = [member for member in joined if isinstance(member, ClassicMember) and member.leads_members == members]
    generations = {leader.group_id: leader.generation for leader in leaders}
    if not leaders:
        generations = {member.group_id: member.assigned_in for member in joined}
        if not all(count >= members for count in generations.values()):  # each new member increments the epoch
            return False
    return all(generations.get(member.group_id) == member.assigned_in for member in joined)


def _has_coordinator(port: int, group_id: str) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        request = FindCoordinatorRequest(key=group_id)
        sock.sendall(encode_request(RequestHeader(FIND, VERSIONS[FIND], 0, "members"), request))
        frame = sock.recv(RECEIVE_BYTES)[4:]
    _, offset = decode_response_header(frame, FIND, VERSIONS[FIND])
    answer: Any = response_class(FIND).decode(frame, VERSIONS[FIND], offset)
    return bool(answer.error_code == ErrorCode.NONE)
