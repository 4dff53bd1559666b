"""A client that fetches, records and committed offsets: what it delivers of a partition, as Kafka's consumers do.

A read_committed consumer gets the list of aborted transactions with each response, and drops their records itself.
So the broker must never send what is above the last stable offset. `Fetched.problems` has what it sent wrongly.

Threads: a client has one task.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.records.batch import ControlType, iter_headers, iter_records, parse_control_type
from tests.simulation.load.clients.client import GROUP, Client

FETCH_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 5
OFFSET_FETCH_VERSION: Final = 7
FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 1 << 20

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
LATEST: Final = -1
EARLIEST: Final = -2
UNKNOWN: Final = -1


class Got(NamedTuple):
    """A record that a consumer delivers."""

    offset: int
    key: bytes | None
    value: bytes | None


class Fetched(NamedTuple):
    """A part of a partition."""

    records: list[Got]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    problems: list[str]


class Fetcher(Client):
    """A client that fetches."""

    def fetch(
        self, topic: str, partition: int, offset: int, isolation: int = READ_UNCOMMITTED, *, is_trimmed: bool = False
    ) -> Fetched | None:
        """Fetch from an offset; None if there was no answer. A trimmed log may begin above the offset.

        It names the leader epoch, as Kafka's consumers do. Without it, a former leader that follows by now, and whose
        disk is another one, answers an offset that it has not copied yet with OFFSET_OUT_OF_RANGE.
        """
        leader = self.leader(topic, partition)
        asked = FetchPartition(
            partition=partition,
            current_leader_epoch=self.leader_epoch(topic, partition),
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=isolation,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        answer = self.ask(leader, request, FETCH_VERSION)
        what = f"Fetch of {topic}-{partition} at {offset}"
        if answer is None or self.may_pass(answer.error_code, what):
            return None
        found = answer.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and is_trimmed:
            start = self.start_of(topic, partition)
            if start is None or start <= offset:
                # Why: a leader elected since then may have kept more.
                self.wait()
                return None
            return Fetched([], start, UNKNOWN, UNKNOWN, [])
        if self.may_pass(found.error_code, what):
            return None
        return delivered(found, offset, isolation)

    def start_of(self, topic: str, partition: int) -> int | None:
        """Return the first offset of a partition; None if there was no answer."""
        return self._offset_at(EARLIEST, topic, partition)

    def end_of(self, topic: str, partition: int) -> int | None:
        """Return the high watermark of a partition; None if there was no answer.

        A new leader answers only once it has reached the start of its epoch (KIP-207), and so every record that was
        acknowledged before. The one in a Fetch response may be below.
        """
        return self._offset_at(LATEST, topic, partition)

    def _offset_at(self, timestamp: int, topic: str, partition: int) -> int | None:
        leader = self.leader(topic, partition)
        asked = ListOffsetsPartition(
            partition_index=partition,
            current_leader_epoch=self.leader_epoch(topic, partition),
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        answer = self.ask(leader, request, LIST_OFFSETS_VERSION)
        if answer is None:
            return None
        found = answer.topics[0].partitions[0]
        if self.may_pass(found.error_code, f"ListOffsets of {topic}-{partition}"):
            return None
        offset: int = found.offset
        return offset

    def ask_for_offset(self, group: str, topic: str, partition: int) -> Any:
        """Ask once for a group's committed offset that no transaction may change; None without an answer."""
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])],
            require_stable=True,
        )
        return self.ask_coordinator(GROUP, group, request, OFFSET_FETCH_VERSION)

    def committed_offset(self, group: str, topic: str, partition: int) -> int:
        """Return a group's committed offset, once no transaction may change it; 0 without one."""
        answer = self.until_answered(
            lambda: self.ask_for_offset(group, topic, partition),
            lambda it: it.error_code or it.topics[0].partitions[0].error_code,
            f"OffsetFetch of {group}",
        )
        offset: int = answer.topics[0].partitions[0].committed_offset
        return max(0, offset)


def delivered(found: Any, offset: int, isolation: int) -> Fetched:
    """Return what a consumer delivers of a partition's part of a response."""
    data = bytes(found.records or b"")
    limit = found.last_stable_offset if isolation else found.high_watermark
    bound = "last stable offset" if isolation else "high watermark"
    records: list[Got] = []
    problems: list[str] = []
    aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
    dropped: set[int] = set()  # producer ids whose transaction is known to be aborted
    position = offset
    if found.last_stable_offset > found.high_watermark >= 0:
        problems.append(f"last stable offset {found.last_stable_offset} above {found.high_watermark}")
    for place, header in iter_headers(data):
        if header.last_offset >= limit:
            problems.append(f"offset {header.last_offset} was sent, the {bound} is {limit}")
        if header.last_offset < position:
            problems.append(f"the batch at {header.base_offset} was sent to a consumer at {position}")
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.pop(0)[1])
        if header.is_control:
            if isolation and _is_abort(iter_records(data, place)):
                dropped.discard(header.producer_id)
        elif not (isolation and header.is_transactional and header.producer_id in dropped):
            records += [
                Got(record.offset, record.key, record.value)
                for record in iter_records(data, place)
                if record.offset >= position
            ]
        position = max(position, header.last_offset + 1)
    return Fetched(records, position, found.high_watermark, found.last_stable_offset, problems)


def _is_abort(records: Iterable[Any]) -> bool:
    return any(parse_control_type(record.key) is ControlType.ABORT for record in records)
