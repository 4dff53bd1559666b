"""Where `barnabas consume` begins and ends in each partition, when it reads without a group."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

from barnabas.cli.client import TIMEOUT_S
from barnabas.cli.errors import UserError


class Range(NamedTuple):
    """What was asked for. Times are in ms since 1970."""

    from_beginning: bool = False
    offset: int | None = None
    last: int | None = None  # of each partition
    from_ms: int | None = None
    until_end: bool = False
    until_ms: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether reading ends by itself."""
        return self.until_end or self.until_ms is not None

    def check(self) -> None:
        """Raise UserError for a contradiction."""
        starts = {
            "--from-beginning": self.from_beginning,
            "--offset": self.offset is not None,
            "--last": self.last is not None,
            "--from": self.from_ms is not None,
        }
        given = [name for name, is_given in starts.items() if is_given]
        if len(given) > 1:
            raise UserError(f"say one of {' and '.join(given)}")


def starts(consumer: Consumer, topic: str, partitions: list[int], asked: Range) -> list[TopicPartition]:
    """The partitions with the offsets to begin at."""
    if asked.last is not None:
        bounds = _bounds(consumer, topic, partitions)
        return [TopicPartition(topic, n, max(low, high - asked.last)) for n, (low, high) in bounds.items()]
    if asked.from_ms is not None:
        at_time = _at_time(consumer, topic, partitions, asked.from_ms)
        return [TopicPartition(topic, n, OFFSET_END if offset is None else offset) for n, offset in at_time.items()]
    start = OFFSET_BEGINNING if asked.from_beginning else OFFSET_END
    return [TopicPartition(topic, n, start if asked.offset is None else asked.offset) for n in partitions]


def ends(consumer: Consumer, topic: str, partitions: list[int], asked: Range) -> dict[int, int] | None:
    """The offsets to end before, of partitions where there is something to read; None: there is no end."""
    if not asked.is_bounded:
        return None
    bounds = _bounds(consumer, topic, partitions)
    if asked.until_ms is not None:
        at_time = _at_time(consumer, topic, partitions, asked.until_ms)
        bounds = {n: (low, high if (end := at_time[n]) is None else end) for n, (low, high) in bounds.items()}
    return {n: high for n, (low, high) in bounds.items() if high > low}


def _bounds(consumer: Consumer, topic: str, partitions: list[int]) -> dict[int, tuple[int, int]]:
    """The first offset and the end of each partition."""
    found = {}
    for n in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=TIMEOUT_S)
        found[n] = (low, high)
    return found


def _at_time(consumer: Consumer, topic: str, partitions: list[int], time_ms: int) -> dict[int, int | None]:
    """The offset of the first record at or after a time; None where there is none."""
    asked = [TopicPartition(topic, n, time_ms) for n in partitions]
    found = consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
    for tp in found:
        if tp.error is not None:
            raise UserError(f"{topic}-{tp.partition}: {tp.error.str()}")
    return {tp.partition: tp.offset if tp.offset >= 0 else None for tp in found}
