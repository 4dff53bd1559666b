"""The segments of a log as one immutable value: writers replace it whole, so readers need no lock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from barnabas.broker.storage.segments.segment import LogSegment


class SegmentList:
    """Segments ascending by base offset; never empty in a live log."""

    __slots__ = ("all", "bases")

    def __init__(self, segments: Sequence[LogSegment]) -> None:
        self.all = tuple(segments)
        self.bases = tuple(segment.base_offset for segment in segments)
        assert list(self.bases) == sorted(set(self.bases)), self.bases

    @property
    def active(self) -> LogSegment:
        """The newest segment, which is appended to."""
        return self.all[-1]

    @property
    def first(self) -> LogSegment:
        """The oldest segment."""
        return self.all[0]

    def floor_index(self, offset: int) -> int:
        """Return the index of the segment for `offset`; -1 if it is below the first segment."""
        return bisect_right(self.bases, offset) - 1

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment for `offset`; None if it is below the first segment."""
        index = self.floor_index(offset)
        return self.all[index] if index >= 0 else None

    def next_base(self, index: int) -> int | None:
        """Return the base offset of the segment after `index`; None if there is none."""
        return self.bases[index + 1] if index + 1 < len(self.bases) else None

    def with_added(self, segment: LogSegment) -> SegmentList:
        """Return a list with one more active segment."""
        return SegmentList((*self.all, segment))

    def with_inserted(self, segment: LogSegment) -> SegmentList:
        """Return a list with one more segment, at its place."""
        index = self.floor_index(segment.base_offset) + 1
        return SegmentList((*self.all[:index], segment, *self.all[index:]))

    def without(self, removed: Sequence[LogSegment]) -> SegmentList:
        """Return a list without some segments."""
        gone = {id(segment) for segment in removed}
        return SegmentList([segment for segment in self.all if id(segment) not in gone])

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)
