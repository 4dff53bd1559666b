"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat; the leader of a generation assigns the partitions.

The leader knows the number of partitions, and gives each member every n-th.

Threads: a client has one task.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.protocol.data.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.load.clients.client import GROUP
from tests.simulation.load.clients.member import PROBES, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Member

JOIN_VERSION: Final = 7
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 4
VERSION: Final = b"\0\0"  # 0, of the consumer protocol
PROTOCOL_TYPE: Final = "consumer"
PROTOCOL: Final = "every-nth"
#: A JoinGroup is answered when all members have joined, or the rebalance timeout has passed.
JOIN_TIMEOUT_MS: Final = REBALANCE_TIMEOUT_MS + 5_000


class ClassicMember(Member):
    """See the module."""

    def is_new_protocol(self) -> bool:
        """See Member."""
        return False

    def take_part(self) -> None:
        """See Member."""
        if self.epoch < 0:
            self._join()
            return
        if self.is_due() and not self._heartbeat():
            return
        if self.positions and self.epoch > 1 and not self._draw(PROBES):
            self.probe_commit(self.epoch - 1, min(self.positions))
        self.consume()

    def dismissed(self, error: int, what: str) -> bool:
        """See Member; joins again."""
        is_dismissed = super().dismissed(error, what)
        if is_dismissed:
            self.epoch = -1
            self.give_up()
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
        return is_dismissed

    def end(self) -> None:
        """See Member."""
        super().end()
        self.epoch = -1
        self.member_id = ""

    def leave(self) -> None:
        """See Member."""
        if self.member_id:
            request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
            self.until_answered(
                lambda: self.ask_coordinator(GROUP, self.group, request, LEAVE_VERSION),
                lambda it: it.error_code,
                "LeaveGroup",
            )

    def _heartbeat(self) -> bool:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        answer = self.ask_coordinator(GROUP, self.group, request, HEARTBEAT_VERSION)
        if answer is None or not answer.error_code:
            return True
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.commit()
        return not self.dismissed(answer.error_code, "Heartbeat")

    def _join(self) -> None:
        self.give_up()
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription(self.topic))],
        )
        answer = self.ask_coordinator(GROUP, self.group, request, JOIN_VERSION, timeout_ms=JOIN_TIMEOUT_MS)
        if answer is None:
            return
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return
        if answer.error_code:
            self.dismissed(answer.error_code, "JoinGroup")
            return
        self.member_id = answer.member_id
        self._sync(answer)

    def _sync(self, joined: Any) -> None:
        assignments = []
        if joined.leader == self.member_id:
            count = sum(len(found.partitions) for found in self.metadata(self.topic).topics)
            members = sorted(member.member_id for member in joined.members)
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member, assignment=assignment(self.topic, range(index, count, len(members)))
                )
                for index, member in enumerate(members)
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        answer = self.ask_coordinator(GROUP, self.group, request, SYNC_VERSION, timeout_ms=JOIN_TIMEOUT_MS)
        if answer is None:
            return
        if answer.error_code:
            self.dismissed(answer.error_code, "SyncGroup")
            return
        self.epoch = joined.generation_id
        self.is_due()
        self.own(assigned(answer.assignment))


def subscription(topic: str) -> bytes:
    """Return a subscription to a topic."""
    return VERSION + ConsumerProtocolSubscription(topics=[topic]).encode(0)


def assignment(topic: str, partitions: range) -> bytes:
    """Return an assignment of partitions of a topic."""
    owned = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))
    return VERSION + ConsumerProtocolAssignment(assigned_partitions=[owned]).encode(0)


def assigned(data: bytes) -> list[int]:
    """Return the partitions of an assignment of one topic; none of an empty one."""
    if not data:
        return []
    message = ConsumerProtocolAssignment.decode(data, 0, len(VERSION))
    return [partition for owned in message.assigned_partitions for partition in owned.partitions]
