"""Share groups: what was delivered, accepted and rejected, and whether a correct cluster allows that.

Rules
1. settled twice  A record that was accepted or rejected is not delivered again, so that its acknowledgement would be
                  confirmed again. Exception: that of an earlier delivery. It comes late, has no effect, and is no error
                  if the start offset has passed the record.
2. skipped        Every record is accepted or rejected in the end, or its deliveries have reached the limit. An
                  acknowledgement without an answer may have had its effect. A lost response may have delivered.
3. too often      No record is delivered more often than the limit.
4. not sent       What a member acquires is among the records that it gets.

*Threads*: none. No clock, no client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3


class Seen(NamedTuple):
    """The last delivery of a record that a member saw."""

    count: int
    lost_before: int  # lost responses of its partition until then


class Settled(NamedTuple):
    """The first acknowledgement that ended a record."""

    member: str
    at: int  # of the journal's count of requests


class ShareJournal:
    """What the members of one share group did and saw."""

    def __init__(self, limit: int) -> None:
        self.has_begun = False  # the group has a start offset
        self.deliveries = 0
        self._asked = 0  # requests that were sent
        self._limit = limit  # of deliveries
        self._seen: dict[tuple[int, int], Seen] = {}  # (partition, offset) -> its last delivery
        self._lost: Counter[int] = Counter()  # partition -> lost responses
        self._settled: dict[tuple[int, int], Settled] = {}  # by (partition, offset)
        self._unsure: set[tuple[int, int]] = set()
        self._found: list[str] = []

    @property
    def settled(self) -> int:
        """How many records were accepted or rejected."""
        return len(self._settled)

    def asking(self) -> int:
        """A request is sent that may deliver records; return what `confirmed` needs of it."""
        self._asked += 1
        return self._asked

    def delivered(self, member: str, partition: int, first: int, last: int, count: int, sent: Iterable[int]) -> None:
        """A member acquired these offsets, which were delivered so often, and got the records `sent`."""
        missing = set(range(first, last + 1)) - set(sent)
        if missing:
            self._found.append(
                f"not sent: {member} acquired {min(missing)} of partition {partition} without its record"
            )
        if count > self._limit:
            self._found.append(f"too often: {first} of partition {partition} was delivered {count} times")
        self.deliveries += last - first + 1
        for offset in range(first, last + 1):
            self._seen[partition, offset] = Seen(count, self._lost[partition])

    def lost(self, partitions: Iterable[int]) -> None:
        """A response, which may have delivered records of these partitions, did not come."""
        self._lost.update(partitions)

    def confirmed(self, member: str, partition: int, first: int, last: int, type_: int, asked: int) -> None:
        """An acknowledgement was confirmed, of records that the request `asked` has brought."""
        if type_ == RELEASE:
            return
        for offset in range(first, last + 1):
            before = self._settled.setdefault((partition, offset), Settled(member, self._asked))
            if asked > before.at:
                self._found.append(f"settled twice: {offset} of partition {partition} by {before.member} and {member}")

    def unanswered(self, partition: int, first: int, last: int, type_: int) -> None:
        """It is not known whether an acknowledgement had an effect."""
        if type_ != RELEASE:
            self._unsure.update((partition, offset) for offset in range(first, last + 1))

    def left(self, ends: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return the (partition, offset) below these ends that must be delivered yet."""
        return [
            (partition, offset)
            for partition, end in ends.items()
            for offset in range(end)
            if (partition, offset) not in self._settled and not self._may_be_done(partition, offset)
        ]

    def _may_be_done(self, partition: int, offset: int) -> bool:
        if (partition, offset) in self._unsure:
            return True
        seen = self._seen.get((partition, offset), Seen(0, 0))
        return seen.count + self._lost[partition] - seen.lost_before >= self._limit

    def check(self, ends: Mapping[int, int]) -> Iterator[str]:
        """Yield all anomalies, given where each partition ends."""
        yield from self._found
        for partition, offset in self.left(ends):
            seen = self._seen.get((partition, offset))
            often = f"delivered {seen.count} times" if seen else "never delivered"
            yield f"skipped: {offset} of partition {partition} was {often}, and not accepted"
