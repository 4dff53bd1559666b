"""A member of a consumer group (KIP-848): the coordinator assigns, and each heartbeat brings it closer to that.

A member owns partitions from the response that assigns them until it sends a heartbeat without them.

Threads: a client has one task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.testing.simulation.machine.scheduler import active
from tests.simulation.load.clients.client import GROUP
from tests.simulation.load.clients.member import PROBES, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Member

HEARTBEAT_VERSION: Final = 1
NS_PER_MS: Final = 1_000_000
JOINING: Final = 0
LEAVING: Final = -1


def _now_ms() -> int:
    """The virtual time. Why not a clock: each process has one of its own, and the journal compares members."""
    return active().now_ns // NS_PER_MS


class ConsumerMember(Member):
    """See the module."""

    def __init__(self, *arguments: Any, member_id: str, era: Callable[[], Hashable | None]) -> None:
        super().__init__(*arguments)
        self._era = era  # changes when a coordinator is elected; None while nobody knows
        self.member_id = member_id  # of its own choice
        self.epoch = JOINING
        self._topic_id = b""
        self._member_epochs: list[int] = []  # that it had since it joined
        self._owned: set[int] = set()  # that it owned in one of them
        self._has_reported = False  # what it owns now

    def is_new_protocol(self) -> bool:
        """See Member."""
        return True

    def take_part(self) -> None:
        """See Member."""
        if self.epoch != JOINING and not self._draw(PROBES):
            self._probe()
        if (self.epoch == JOINING or not self._has_reported or self.is_due()) and not self._heartbeat():
            return
        self.consume()

    def dismissed(self, error: int, what: str) -> bool:
        """See Member; joins again, unless only the epoch of a request was old."""
        is_dismissed = super().dismissed(error, what)
        if is_dismissed and error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epoch = JOINING
            self.give_up()
        if error == ErrorCode.STALE_MEMBER_EPOCH:
            self._has_reported = False
        return is_dismissed

    def end(self) -> None:
        """See Member."""
        super().end()
        self.epoch = JOINING
        self.member_id = f"{self.name}-{self._lives}"

    def give_up(self) -> None:
        """See Member."""
        super().give_up()
        self._journal.gave_up(self.name, ())

    def leave(self) -> None:
        """See Member."""
        if self.epoch == JOINING:
            return
        self._journal.gave_up(self.name, ())
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=LEAVING)
        while True:
            answer = self.ask_coordinator(GROUP, self.group, request, HEARTBEAT_VERSION)
            if answer is None:
                continue
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID or not self.may_pass(answer.error_code, "leaving"):
                return

    def _heartbeat(self) -> bool:
        # Why: a full request is answered with the whole assignment, also if the answer to an earlier one was lost.
        is_full = self.epoch == JOINING or not self._has_reported
        owned = sorted(self.positions)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=[self.topic] if is_full else None,
            topic_partitions=[TopicPartitions(topic_id=self._topic_id, partitions=owned)] if owned else [],
        )
        given = self._journal.reporting(self.name, owned)
        self._journal.gave_up(self.name, owned)
        sent_ms, era = _now_ms(), self._era()
        answer = self.ask_coordinator(GROUP, self.group, request, HEARTBEAT_VERSION)
        if answer is None:
            self._has_reported = False
            return False
        if answer.error_code:
            self.dismissed(answer.error_code, "ConsumerGroupHeartbeat")
            return False
        self._journal.kept(self.name, given)
        self._journal.heard(self.name, self._coordinator(era), sent_ms)
        if self.epoch == JOINING:
            self._member_epochs.clear()
            self._owned.clear()
        self.epoch = answer.member_epoch
        if self.epoch not in self._member_epochs:
            self._member_epochs.append(self.epoch)
        self._has_reported = True
        self.is_due()
        if answer.assignment is not None:
            self._take(answer.assignment.topic_partitions)
        return True

    def _coordinator(self, era: Hashable | None) -> Hashable | None:
        """Return which coordinator has answered, in an era that has not ended since; None if that is not known."""
        return None if era is None or era != self._era() else (era, self._coordinators.get((GROUP, self.group)))

    def _probe(self) -> None:
        """Do what no member does that has lost answers only.

        It reports an epoch before the previous one, or commits in an earlier epoch for a partition that it never owned.
        """
        others = self._journal.partitions() - self._owned
        if len(self._member_epochs) > 1 and others:
            self.probe_commit(self._member_epochs[-2], min(others))
        if len(self._member_epochs) < 3:
            return
        epoch = self._member_epochs[-3]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, topic_partitions=[]
        )
        answer = self.ask_coordinator(GROUP, self.group, request, HEARTBEAT_VERSION)
        if answer is not None and not answer.error_code:
            self.problems.append(f"fenced member: {self.name} was taken at epoch {epoch}, after {self._member_epochs}")

    def _take(self, assigned: list[Any]) -> None:
        partitions = {partition for each in assigned for partition in each.partitions}
        by = self._coordinator(self._era())
        self._journal.given(self.name, partitions, by, _now_ms(), SESSION_TIMEOUT_MS)
        if assigned:
            self._topic_id = assigned[0].topic_id
        if partitions != set(self.positions):
            self._has_reported = False
            if set(self.positions) - partitions:
                self.commit()
                if self.epoch == JOINING:  # the commit was refused
                    return
            self.own(partitions)

    def own(self, partitions: Collection[int]) -> None:
        """See Member; what it could not get committed offsets of it does not own, and asks for again."""
        self._owned.update(partitions)
        super().own(partitions)
        if set(self.positions) != set(partitions):
            self._has_reported = False
