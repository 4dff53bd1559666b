"""Groups: who owned what in which generation, which offsets were committed, and whether a correct cluster allows that.

Rules
1. two owners       In one generation (classic) or at one member epoch (KIP-848), a partition has one owner.
2. former owner     A commit that a member sends after another one owned its partition is not confirmed.
3. offset went back A committed offset that is reported is not below one that was confirmed, or reported to somebody,
                    before it was asked for. Exceptions: a commit without an answer may be carried out late, and a
                    coordinator that was replaced, and does not know it yet, reports what it has, as Kafka's do.
4. unread           Some member got every record below the last committed offset.
5. owned at a time  A report of a member that owns what another one owned already is not confirmed (KIP-848).
6. given too early  A partition is given to a member once the former owner has reported that it owns it no more, or has
                    not been heard for its session timeout (KIP-848). Exception: another coordinator answered it. One
                    that was replaced, and does not know it yet, still answers heartbeats that change nothing.

*Threads*: none. No clock, no client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

#: Where a coordinator is (None: nobody knows), and its epoch.
Seat: TypeAlias = "tuple[Hashable | None, int]"

_ANYWHERE = (None, -1)


class Commit(NamedTuple):
    """A commit that was sent."""

    member: str
    offsets: Mapping[int, int]  # by partition
    former: Mapping[int, str]  # partition -> who owned it already when the commit was sent, unless it was the member


class Asked(NamedTuple):
    """What was known when committed offsets were asked for."""

    confirmed: Mapping[int, int]  # by partition
    seat: Seat


class GroupJournal:
    """What the members of one group did and saw. `seat` returns the committed coordinator."""

    def __init__(self, group: str, seat: Callable[[], Seat] = lambda: _ANYWHERE) -> None:
        self.group = group
        self._seat = seat
        self.claims = 0
        self.commits = 0  # those that were confirmed
        self._owners: dict[tuple[int, int], str] = {}  # (epoch, partition) -> member
        self._latest: dict[int, str] = {}  # partition -> who claimed it last
        self._confirmed: dict[int, int] = {}  # partition -> the highest offset that was confirmed or reported
        self._unsure: list[Commit] = []  # those without an answer
        self._held: dict[str, set[int]] = {}  # member -> partitions that it was given and has not given up
        self._heard: dict[str, tuple[int, Hashable]] = {}  # member -> when it was heard last, and by which coordinator
        self._consumed: dict[int, set[int]] = {}  # partition -> offsets
        self._found: list[str] = []

    def claimed(self, member: str, epoch: int, partitions: Iterable[int]) -> None:
        """A member owns these partitions from now on, and no others."""
        taken = set(partitions)
        for partition in [each for each, owner in self._latest.items() if owner == member and each not in taken]:
            del self._latest[partition]
        for partition in sorted(taken):
            self.claims += 1
            owner = self._owners.setdefault((epoch, partition), member)
            if owner != member:
                self._note("two owners", f"partition {partition} at epoch {epoch}: {owner} and {member}")
            self._latest[partition] = member

    def partitions(self) -> set[int]:
        """Return the partitions that some member owned."""
        return {partition for _, partition in self._owners}

    def reporting(self, member: str, partitions: Iterable[int]) -> Mapping[int, str]:
        """A member reports what it owns; return what `kept` needs: which of that others own already."""
        return {each: self._latest[each] for each in partitions if self._latest.get(each, member) != member}

    def kept(self, member: str, given: Mapping[int, str]) -> None:
        """The report was confirmed."""
        for partition, owner in given.items():
            self._note("owned at a time", f"{member} kept partition {partition}, which {owner} owned")

    def given(self, member: str, partitions: Iterable[int], by: Hashable, now_ms: int, session_ms: int) -> None:
        """A member got these partitions from a coordinator (None: it is not known which one leads)."""
        held = self._held.setdefault(member, set())
        for partition in sorted(set(partitions) - held):
            for other, others in self._held.items():
                sent_ms, heard_by = self._heard.get(other, (0, None))
                if partition in others and by is not None and heard_by == by and now_ms - sent_ms < session_ms:
                    self._note("given too early", f"partition {partition} to {member}, while {other} owned it")
        held.update(partitions)

    def gave_up(self, member: str, kept: Iterable[int]) -> None:
        """A member reports that it owns these partitions and no others, or owns nothing any more."""
        self._held.setdefault(member, set()).intersection_update(kept)

    def heard(self, member: str, by: Hashable, sent_ms: int) -> None:
        """A coordinator confirmed a heartbeat that was sent at this time."""
        self._heard[member] = (sent_ms, by)

    def committing(self, member: str, offsets: Mapping[int, int]) -> Commit:
        """A member sends a commit."""
        commit = Commit(member, dict(offsets), self.reporting(member, offsets))
        self._unsure.append(commit)
        return commit

    def confirmed(self, commit: Commit) -> None:
        """The commit was confirmed."""
        self.commits += 1
        self._answered(commit)
        for partition, owner in commit.former.items():
            self._note("former owner", f"a commit of {commit.member} for partition {partition}, which {owner} owned")
        for partition, offset in commit.offsets.items():
            self._confirmed[partition] = max(offset, self._confirmed.get(partition, 0))

    def refused(self, commit: Commit) -> None:
        """The commit had no effect."""
        self._answered(commit)

    def asking(self) -> Asked:
        """Return what `fetched` needs, before committed offsets are asked for."""
        return Asked(dict(self._confirmed), self._seat())

    def fetched(self, asker: str, asked: Asked, offsets: Mapping[int, int], by: Hashable | None = None) -> None:
        """The coordinator at this address reported committed offsets (-1: none)."""
        is_former = asked.seat != self._seat() or asked.seat[0] != by
        for partition, offset in offsets.items():
            before = asked.confirmed.get(partition, -1)
            late = any(commit.offsets.get(partition) == offset for commit in self._unsure)
            if offset < before and not late and not is_former:
                self._note("offset went back", f"{asker} got {offset} for partition {partition} after {before}")
            if offset >= 0:
                self._confirmed[partition] = max(offset, self._confirmed.get(partition, 0))

    def consumed(self, member: str, partition: int, offsets: Collection[int]) -> None:
        """A member got the records at these offsets."""
        self._consumed.setdefault(partition, set()).update(offsets)

    def check(self, final: Mapping[int, Collection[int]], committed: Mapping[int, int]) -> list[str]:
        """Return all anomalies, given the offsets of all records of each partition, and the last committed ones."""
        return [*self._found, *self._check_unread(final, committed)]

    def _check_unread(self, final: Mapping[int, Collection[int]], committed: Mapping[int, int]) -> Iterator[str]:
        for partition, end in committed.items():
            got = self._consumed.get(partition, set())
            unread = sorted(offset for offset in final.get(partition, ()) if offset < end and offset not in got)
            if unread:
                yield f"unread: {self.group}, partition {partition}: {unread[:10]} below {end}"

    def _answered(self, commit: Commit) -> None:
        self._unsure = [each for each in self._unsure if each is not commit]

    def _note(self, kind: str, detail: str) -> None:
        self._found.append(f"{kind}: {self.group}: {detail}")
