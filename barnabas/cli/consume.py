"""`barnabas consume`: print the records of a topic."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import cast

import click
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from barnabas.cli.client import (
    TIMEOUT_S,
    bootstrap_option,
    kafka_errors,
    partitions_of,
    settings,
)
from barnabas.cli.complete import complete_topics
from barnabas.cli.errors import UserError
from barnabas.cli.text import shown

BATCH_MAX = 500
POLL_S = 0.2


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--group", help="Join this consumer group and commit to it; else read every partition alone.")
@click.option("--from-beginning", is_flag=True, help="Start with the first record, not the next one.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--offset", type=click.IntRange(0), help="Start here (with --partition).")
@click.option("--max", "limit", type=click.IntRange(1), help="Stop after so many records.")
@click.option("--until-end", is_flag=True, help="Stop at the end that the topic has now.")
@click.option("--isolation", type=click.Choice(["read_uncommitted", "read_committed"]), default="read_uncommitted")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line, with offset, time, key and headers.")
@bootstrap_option
def consume(
    topic: str,
    group: str | None,
    from_beginning: bool,
    partition: int | None,
    offset: int | None,
    limit: int | None,
    until_end: bool,
    isolation: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Print the values of TOPIC's records, a line each, until interrupted."""
    if group is not None and (partition is not None or until_end):
        raise UserError("--group goes with neither --partition nor --until-end: the group decides who reads what")
    if offset is not None and partition is None:
        raise UserError("--offset needs --partition")
    own = {
        "group.id": group or "barnabas-cli",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,  # what is committed is what was printed
        "auto.offset.reset": "error" if offset is not None else "earliest" if from_beginning else "latest",
        "isolation.level": isolation,
        "enable.partition.eof": until_end,
    }
    with kafka_errors(bootstrap):
        consumer = Consumer(settings(bootstrap, **own))
        try:
            numbers = partitions_of(consumer, topic)
            if partition is not None and partition not in numbers:
                raise UserError(f"{topic} has no partition {partition}")
            ends = None
            if group is not None:
                consumer.subscribe([topic])
            else:
                wanted = numbers if partition is None else [partition]
                chosen = [TopicPartition(topic, number) for number in wanted]
                ends = _ends(consumer, chosen) if until_end else None
                _assign(consumer, chosen, offset, from_beginning)
            _Printer(consumer, limit, ends, as_json, commits=group is not None).run()
        finally:
            consumer.close()


def _assign(consumer: Consumer, partitions: list[TopicPartition], offset: int | None, from_beginning: bool) -> None:
    """Take the partitions without a group."""
    start = OFFSET_BEGINNING if from_beginning else OFFSET_END
    for tp in partitions:
        tp.offset = start if offset is None else offset
    consumer.assign(partitions)


def _ends(consumer: Consumer, partitions: list[TopicPartition]) -> dict[int, int]:
    """Where each partition that holds anything ends now (exclusive)."""
    bounds = {tp.partition: consumer.get_watermark_offsets(tp, timeout=TIMEOUT_S) for tp in partitions}
    return {number: end for number, (start, end) in bounds.items() if end > start}


class _Printer:
    """Prints until the limit, or until every partition is at the end it had."""

    def __init__(
        self, consumer: Consumer, limit: int | None, ends: dict[int, int] | None, as_json: bool, *, commits: bool
    ) -> None:
        self._consumer = consumer
        self._limit = limit
        self._left = ends  # partition -> its end, of those not read to there; None: no end
        self._as_json = as_json
        self._commits = commits
        self._printed = 0

    def run(self) -> None:
        while not self._is_done():
            wanted = BATCH_MAX if self._limit is None else min(BATCH_MAX, self._limit - self._printed)
            messages = self._consumer.consume(wanted, POLL_S)
            printed = [message for message in messages if self._take(message)]
            if printed:
                sys.stdout.flush()
                if self._commits:
                    self._store(printed)

    def _is_done(self) -> bool:
        return self._left == {} or self._printed == self._limit

    def _take(self, message: Message) -> bool:
        """Print a record; returns whether it was one to print."""
        error = message.error()
        if error is not None:
            if error.name() != "_PARTITION_EOF":
                raise KafkaException(error)
            if self._left is not None:
                self._left.pop(_known(message.partition()), None)
            return False
        if self._left is not None and not self._is_before_end(message, self._left):
            return False
        _print_record(message, self._as_json)
        self._printed += 1
        return True

    def _is_before_end(self, message: Message, left: dict[int, int]) -> bool:
        partition, offset = _known(message.partition()), _known(message.offset())
        end = left.get(partition, 0)
        if offset >= end - 1:
            left.pop(partition, None)
        return offset < end

    def _store(self, messages: list[Message]) -> None:
        """Let what was printed be committed."""
        for message in messages:
            with contextlib.suppress(KafkaException):  # the partition is another member's by now
                self._consumer.store_offsets(message)


def _known(number: int | None) -> int:
    assert number is not None  # only a message that was not sent yet lacks it
    return number


def _print_record(message: Message, as_json: bool) -> None:
    value = message.value()
    if not as_json:
        sys.stdout.buffer.write((value if isinstance(value, bytes) else b"") + b"\n")
        return
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])  # the stubs allow what produce takes, too
    record = {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": shown(message.key()),
        "value": shown(value),
        "headers": [[name, shown(value)] for name, value in headers],
    }
    print(json.dumps(record, ensure_ascii=False))
