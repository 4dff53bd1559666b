"""The offsets where `barnabas consume` starts and ends in each partition when it reads without a group."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

from barnabas.cli.client import TIMEOUT_S
from barnabas.cli.errors import ArgumentError, UserError


class Range(NamedTuple):
    """The start and the end that the options name. Times are in ms since 1970."""

    from_beginning: bool = False
    offset: int | None = None
    last: int | None = None  # of each partition
    from_ms: int | None = None
    until_end: bool = False
    until_ms: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether reading ends without a limit or an interrupt."""
        return self.until_end or self.until_ms is not None

    def check(self) -> None:
        """Raise UserError if the options contradict each other."""
        starts = {
            "--from-beginning": self.from_beginning,
            "--offset": self.offset is not None,
            "--last": self.last is not None,
            "--from": self.from_ms is not None,
        }
        given = [name for name, is_given in starts.items() if is_given]
        if len(given) > 1:
            raise ArgumentError(f"give only one of {' and '.join(given)}")


def starts(consumer: Consumer, topic: str, partitions: list[int], span: Range) -> list[TopicPartition]:
    """The partitions with their start offsets."""
    if span.last is not None:
        bounds = _bounds(consumer, topic, partitions)
        return [TopicPartition(topic, n, max(low, high - span.last)) for n, (low, high) in bounds.items()]
    if span.from_ms is not None:
        at_time = _at_time(consumer, topic, partitions, span.from_ms)
        return [TopicPartition(topic, n, OFFSET_END if offset is None else offset) for n, offset in at_time.items()]
    start = OFFSET_BEGINNING if span.from_beginning else OFFSET_END
    return [TopicPartition(topic, n, start if span.offset is None else span.offset) for n in partitions]


def ends(consumer: Consumer, topic: str, partitions: list[int], span: Range) -> dict[int, int] | None:
    """The end offset (exclusive) of each partition that has records to read; None if the range has no end."""
    if not span.is_bounded:
        return None
    bounds = _bounds(consumer, topic, partitions)
    if span.until_ms is not None:
        at_time = _at_time(consumer, topic, partitions, span.until_ms)
        bounds = {n: (low, high if (end := at_time[n]) is None else end) for n, (low, high) in bounds.items()}
    return {n: high for n, (low, high) in bounds.items() if high > low}


def _bounds(consumer: Consumer, topic: str, partitions: list[int]) -> dict[int, tuple[int, int]]:
    """The log start offset and the high watermark of each partition."""
    found = {}
    for n in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=TIMEOUT_S)
        found[n] = (low, high)
    return found


def _at_time(consumer: Consumer, topic: str, partitions: list[int], time_ms: int) -> dict[int, int | None]:
    """The offset of the first record at or after a time, by partition; None if there is no such record."""
    query = [TopicPartition(topic, n, time_ms) for n in partitions]
    found = consumer.offsets_for_times(query, timeout=TIMEOUT_S)
    for tp in found:
        if tp.error is not None:
            raise UserError(f"{topic}-{tp.partition}: {tp.error.str()}")
    return {tp.partition: tp.offset if tp.offset >= 0 else None for tp in found}
