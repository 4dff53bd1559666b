"""Members of classic groups, as many as one thread drives: they join, the first assigns, all are told their share.

What is measured is the coordinator: a member does nothing else, and consumes nothing.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable, Sequence
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
from tests.support.waiting import eventually

FIND, JOIN, HEARTBEAT, SYNC = 10, 11, 12, 14
VERSIONS: Final = {FIND: 3, JOIN: 7, HEARTBEAT: 4, SYNC: 5}
PROTOCOL_TYPE, ASSIGNOR = "consumer", "range"
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
BEAT_NS: Final = 100_000_000
TIMEOUT_NS: Final = 60_000_000_000
RECEIVE_BYTES: Final = 1 << 20


class Member:
    """One member with its connection. Driven by `join_all`."""

    def __init__(self, port: int, group_id: str, topic: str) -> None:
        self.group_id = group_id
        self.generation = -1
        self.assigned_in = -1  # the generation of which it knows its share
        self.leads_members = 0  # how many it assigned to, if it leads
        self.next_beat_ns = 0
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._id = ""
        name = topic.encode()
        self._metadata = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)
        self._asked = 0  # the API key of the request in flight, 0 without one
        self._received = bytearray()

    def join(self) -> None:
        """Ask to be in the group's next generation."""
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

    def beat(self, now_ns: int) -> None:
        """Send a heartbeat when one is due."""
        if self._asked or now_ns < self.next_beat_ns:
            return
        self.next_beat_ns = now_ns + BEAT_NS
        beat = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation, member_id=self._id)
        self._ask(HEARTBEAT, beat)

    def hear(self) -> None:
        """Take what has come, and go on."""
        self._received += self.sock.recv(RECEIVE_BYTES)
        while len(self._received) >= 4:
            end = 4 + int(struct.unpack_from(">i", self._received)[0])
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            key, self._asked = self._asked, 0
            _, offset = decode_response_header(frame, key, VERSIONS[key])
            _ANSWERED[key](self, response_class(key).decode(frame, VERSIONS[key], offset))

    def _joined(self, answer: Any) -> None:
        self._id = answer.member_id or self._id
        if answer.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
            self.join()
            return
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
        self.generation = answer.generation_id
        self.leads_members = len(answer.members)
        share = struct.pack(">hii", 0, 0, -1)  # no topics: nothing is consumed
        self._ask(
            SYNC,
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self._id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=ASSIGNOR,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member.member_id, assignment=share)
                    for member in answer.members
                ],
            ),
        )

    def _synced(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
        self.assigned_in = self.generation

    def _beaten(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        else:
            assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name

    def _ask(self, key: int, request: Any) -> None:
        self._asked = key
        self.sock.sendall(encode_request(RequestHeader(key, VERSIONS[key], 0, "members"), request))


_ANSWERED: dict[int, Callable[[Member, Any], None]] = {
    JOIN: Member._joined,
    SYNC: Member._synced,
    HEARTBEAT: Member._beaten,
}


def join_all(port: int, group_ids: Sequence[str], members: int, topic: str) -> float:
    """Have so many members join each group at once; returns the seconds until all know their share."""
    clock = SystemClock()
    for group_id in group_ids:
        eventually("the group has a coordinator", partial(_has_coordinator, port, group_id), TIMEOUT_NS // 10**6)
    everybody = [Member(port, group_id, topic) for _ in range(members) for group_id in group_ids]
    selector = selectors.DefaultSelector()
    for member in everybody:
        selector.register(member.sock, selectors.EVENT_READ, member)
    start_ns = clock.monotonic_ns()
    for member in everybody:
        member.join()
    while not _are_settled(everybody, members):
        now_ns = clock.monotonic_ns()
        assert now_ns - start_ns < TIMEOUT_NS, "the groups did not settle"
        for key, _ in selector.select(0.01):
            key.data.hear()
        for member in everybody:
            if member.assigned_in >= 0:
                member.beat(now_ns)
    seconds = (clock.monotonic_ns() - start_ns) / 1e9
    for member in everybody:
        member.sock.close()
    selector.close()
    return seconds


def _are_settled(everybody: list[Member], members: int) -> bool:
    """Whether each group's leader has assigned to all its members, and each knows its share of that generation."""
    if any(member.assigned_in < 0 for member in everybody):
        return False
    led = {member.group_id: member.generation for member in everybody if member.leads_members == members}
    return all(led.get(member.group_id) == member.assigned_in for member in everybody)


def _has_coordinator(port: int, group_id: str) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        request = FindCoordinatorRequest(key=group_id)
        sock.sendall(encode_request(RequestHeader(FIND, VERSIONS[FIND], 0, "members"), request))
        frame = sock.recv(RECEIVE_BYTES)[4:]
    _, offset = decode_response_header(frame, FIND, VERSIONS[FIND])
    answer: Any = response_class(FIND).decode(frame, VERSIONS[FIND], offset)
    return bool(answer.error_code == ErrorCode.NONE)
