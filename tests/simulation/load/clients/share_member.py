"""A member of a share group (KIP-932): it shares partitions with others, and acknowledges each record by itself.

It has a share session with each leader, over one connection. A response that does not come ends the session, and what
it held is released. It accepts most of what it gets, releases or rejects some, and keeps some until the lock runs out.

Threads: a client has one task; the journal belongs to all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.k78_share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from barnabas.protocol.messages.k79_share_acknowledge import (
    AcknowledgementBatch as Acknowledgement,
)
from barnabas.protocol.messages.k79_share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.messages.k91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.records.batch import iter_headers
from tests.simulation.checks.shares import ACCEPT, REJECT, RELEASE, ShareJournal
from tests.simulation.load.clients.client import GROUP, Address
from tests.simulation.load.clients.fetching import FETCH_BYTES, FETCH_WAIT_MS, Fetcher
from tests.simulation.load.clients.member import ENDS, HEARTBEAT_MS, SILENCE_S, SILENCES

SHARES: Final = "share"  # the group
HEARTBEAT_VERSION: Final = 1
SHARE_VERSION: Final = 2
JOINING: Final = 0
LEAVING: Final = -1
FINAL_EPOCH: Final = -1
RECORDS_MAX: Final = 20
#: What a member does with what it holds, drawn each turn; 0 keeps it.
DECISIONS: Final = (*[ACCEPT] * 8, RELEASE, REJECT, 0, 0)
LOST_NS: Final = 1_000_000_000  # a request that fails sooner met no broker
PATIENCE_S: Final = 60.0  # for what is left in the end: longer than locks and sessions

#: Errors after which a session begins again.
SESSION_ENDED: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
#: Errors of an acknowledgement that may have had an effect have a message with this: the write's end is not known.
NOT_WRITTEN: Final = "was not written"
#: Errors of an acknowledgement that is late.
LATE: Final = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)


class Held(NamedTuple):
    """Records that it has acquired of a partition."""

    partition: int
    first: int
    last: int
    asked: int  # the number of the request that brought them


class Answered(NamedTuple):
    """An acknowledgement of records."""

    held: Held
    type: int


class Session:
    """A share session with one leader."""

    def __init__(self) -> None:
        self.epoch = 0  # of the next request
        self.places: set[int] = set()
        self.held: list[Held] = []


class ShareMember(Fetcher):
    """See the module. The one that `begins` lets the group start at the beginning, before any of them joins."""

    def __init__(
        self, name: str, bootstrap: list[Address], topic: str, partitions: int, journal: ShareJournal,
        draw: Callable[[int], int], pause_s: float, *, begins: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name, bootstrap)
        self.topic = topic
        self.epoch = JOINING
        self.assigned: set[int] = set()
        self.problems: list[str] = []
        self._partitions = partitions
        self._journal = journal
        self._draw = draw  # a random number below its argument
        self._pause_s = pause_s
        self._begins = begins
        self._member_id = name
        self._lives = 0  # processes that have ended
        self._topic_id = b""
        self._sessions: dict[Address, Session] = {}
        self._answering: set[Address] = set()  # brokers whose last response came
        self._heartbeat_due_ns = 0

    def run(self) -> None:
        """Take part until it is asked to stop; then settle what it holds, and leave."""
        while not self.is_stopping:
            self.take_part()
            if not self.is_calm:
                self._misbehave()
        self.end()

    def run_to_end(self) -> None:
        """Take part, as the only member, until nothing is left."""
        ends: dict[int, int] = {}
        while len(ends) < self._partitions:
            for partition in range(self._partitions):
                end = self.end_of(self.topic, partition)
                if end is not None:
                    ends[partition] = end
        waited_from_ns, settled = self._clock.monotonic_ns(), -1
        while self._journal.left(ends):
            if self._journal.settled != settled:
                waited_from_ns, settled = self._clock.monotonic_ns(), self._journal.settled
            if self._clock.monotonic_ns() - waited_from_ns > PATIENCE_S * 1e9:
                break  # the check says what is left
            self.take_part()
        self.end()

    def take_part(self) -> None:
        """Send a heartbeat if it is due, then fetch from a leader."""
        if not self._topic_id:
            found = self.metadata(self.topic).topics[0]
            if not self.may_pass(found.error_code, "Metadata"):
                self._topic_id = found.topic_id
            return
        if not self._journal.has_begun:
            self._begin()
            return
        now_ns = self._clock.monotonic_ns()
        if self.epoch == JOINING or now_ns >= self._heartbeat_due_ns:
            self._heartbeat_due_ns = now_ns + HEARTBEAT_MS * 1_000_000
            self._heartbeat()
        if self.assigned:
            self._fetch(sorted(self.assigned)[self._draw(len(self.assigned))])
        self.wait(self._pause_s)

    def end(self) -> None:
        """End the sessions, leave, and close the connections."""
        for address, session in list(self._sessions.items()):
            if session.epoch:
                self._acknowledge(address, session, [Answered(held, ACCEPT) for held in session.held], is_last=True)
        while self.epoch != JOINING:
            request = ShareGroupHeartbeatRequest(
                group_id=SHARES, member_id=self._member_id, member_epoch=LEAVING, subscribed_topic_names=None
            )
            answer = self.ask_coordinator(GROUP, SHARES, request, HEARTBEAT_VERSION)
            if answer is not None and not self.may_pass(answer.error_code, "leaving", (ErrorCode.UNKNOWN_MEMBER_ID,)):
                break
            if answer is not None and answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                break
        self.epoch = JOINING
        self.close()

    def _misbehave(self) -> None:
        if not self._draw(SILENCES):
            self.wait(SILENCE_S)
        if not self._draw(ENDS):  # its process is killed, and another one takes its place
            self.close()
            self._connections.clear()
            self._sessions.clear()
            self._rejoin()
            self._lives += 1
            self._member_id = f"{self.name}-{self._lives}"

    # Membership

    def _begin(self) -> None:
        if not self._begins:
            self.wait()
            return
        asked = [
            AlterShareGroupOffsetsRequestPartition(partition_index=each, start_offset=0)
            for each in range(self._partitions)
        ]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=self.topic, partitions=asked)
        request = AlterShareGroupOffsetsRequest(group_id=SHARES, topics=[topic])
        answer = self.ask_coordinator(GROUP, SHARES, request, 0)
        if answer is None or self.may_pass(answer.error_code, "AlterShareGroupOffsets"):
            return
        errors = {part.error_code for found in answer.responses for part in found.partitions} - {0}
        if not any(self.may_pass(error, "AlterShareGroupOffsets") for error in errors):
            self._journal.has_begun = True

    def _heartbeat(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=SHARES,
            member_id=self._member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=[self.topic] if self.epoch == JOINING else None,
        )
        answer = self.ask_coordinator(GROUP, SHARES, request, HEARTBEAT_VERSION)
        if answer is None:
            self._heartbeat_due_ns = 0
        elif answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._rejoin()
        elif not self.may_pass(answer.error_code, "ShareGroupHeartbeat"):
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {p for topic in answer.assignment.topic_partitions for p in topic.partitions}

    def _rejoin(self) -> None:
        self.epoch = JOINING
        self.assigned = set()

    # Records

    def _fetch(self, partition: int) -> None:
        address = self.leader(self.topic, partition)
        if address is None:
            self.wait()
            return
        session = self._sessions.setdefault(address, Session())
        answered = self._decide(session)
        if answered and not self._draw(3):
            self._acknowledge(address, session, answered)
            return
        wanted = {each for each in self.assigned if self.leader(self.topic, each) == address}
        named = (wanted - session.places) | {each.held.partition for each in answered}
        forgotten = sorted(session.places - wanted - named)
        asked = [
            FetchPartition(
                partition_index=each,
                acknowledgement_batches=[
                    AcknowledgementBatch(
                        first_offset=one.held.first, last_offset=one.held.last, acknowledge_types=[one.type]
                    )
                    for one in answered
                    if one.held.partition == each
                ],
            )
            for each in sorted(named)
        ]
        request = ShareFetchRequest(
            group_id=SHARES,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            max_records=1 + self._draw(RECORDS_MAX),
            batch_size=1 + self._draw(RECORDS_MAX),
            share_acquire_mode=self._draw(2),
            topics=[FetchTopic(topic_id=self._topic_id, partitions=asked)] if asked else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self._topic_id, partitions=forgotten)] if forgotten else [],
        )
        session.places = (session.places | named) - set(forgotten)
        number, asked_ns = self._journal.asking(), self._clock.monotonic_ns()
        answer = self._ask_in_session(address, session, request, answered)
        if answer is None:
            # Why not each: a broker that does not run has delivered nothing.
            if address in self._answering or self._clock.monotonic_ns() - asked_ns > LOST_NS:
                self._journal.lost(session.places)
            self._answering.discard(address)
            return
        self._answering.add(address)
        parts = [part for topic in answer.responses for part in topic.partitions]
        self._note(
            answered,
            {part.partition_index: (part.acknowledge_error_code, part.acknowledge_error_message) for part in parts},
        )
        for part in parts:
            if not self.may_pass(part.error_code, f"ShareFetch of {self.topic}-{part.partition_index}"):
                self._take(session, part, number)

    def _decide(self, session: Session) -> list[Answered]:
        """Return the acknowledgements of some of what it holds."""
        kept: list[Held] = []
        answered: list[Answered] = []
        for held in session.held:
            type_ = DECISIONS[self._draw(len(DECISIONS))]
            if type_:
                answered.append(Answered(held, type_))
            else:
                kept.append(held)
        session.held = kept
        return sorted(answered)

    def _take(self, session: Session, part: Any, number: int) -> None:
        """Take what was acquired of a partition, in parts of some records."""
        sent = {
            offset
            for _, header in iter_headers(bytes(part.records or b""))
            for offset in range(header.base_offset, header.last_offset + 1)
        }
        for each in part.acquired_records:
            first, last = each.first_offset, each.last_offset
            self._journal.delivered(self.name, part.partition_index, first, last, each.delivery_count, sent)
            while first <= last:
                end = min(last, first + self._draw(RECORDS_MAX))
                session.held.append(Held(part.partition_index, first, end, number))
                first = end + 1

    def _acknowledge(
        self, address: Address, session: Session, answered: list[Answered], *, is_last: bool = False
    ) -> None:
        partitions = [
            AcknowledgePartition(
                partition_index=each,
                acknowledgement_batches=[
                    Acknowledgement(first_offset=it.held.first, last_offset=it.held.last, acknowledge_types=[it.type])
                    for it in sorted(answered)
                    if it.held.partition == each
                ],
            )
            for each in sorted({it.held.partition for it in answered})
        ]
        request = ShareAcknowledgeRequest(
            group_id=SHARES,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_last else session.epoch,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
        )
        answer = self._ask_in_session(address, session, request, answered)
        if answer is not None:
            parts = [part for topic in answer.responses for part in topic.partitions]
            self._note(answered, {part.partition_index: (part.error_code, part.error_message) for part in parts})

    def _ask_in_session(self, address: Address, session: Session, request: Any, answered: list[Answered]) -> Any:
        """Send a request of a session; None if it has no answer, or the session has ended: nothing is held any more."""
        answer = self.ask(address, request, SHARE_VERSION)
        if answer is not None and not answer.error_code:
            session.epoch += 1
            return answer
        if answer is not None:
            self.may_pass(answer.error_code, f"the session with {address}", SESSION_ENDED)
        del self._sessions[address]
        for each in answered:
            self._journal.unanswered(*each.held[:3], each.type)
        return None

    def _note(self, answered: list[Answered], errors: dict[int, tuple[int, str | None]]) -> None:
        """Note what became of acknowledgements: the error and its message, by partition."""
        for held, type_ in answered:
            error, message = errors.get(held.partition, (None, ""))
            if error is None:
                self.problems.append(f"{self.name}: nothing is said of the acknowledgement of {held}")
            elif not error:
                self._journal.confirmed(self._member_id, *held[:3], type_, held.asked)
            elif error not in LATE:
                if NOT_WRITTEN in (message or ""):
                    self._journal.unanswered(*held[:3], type_)
                self.may_pass(error, f"the acknowledgement of {held}")
