"""`barnabas consume`: print the records of a topic."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

import click
from confluent_kafka import Consumer, KafkaException, Message

from barnabas.cli.client import (
    TIMEOUT_S,
    bootstrap_option,
    client_options,
    connects_as_commands_do,
    kafka_errors,
    partitions_of,
    settings,
)
from barnabas.cli.complete import complete_groups, complete_topics
from barnabas.cli.errors import ArgumentError, EndedBySignal, UserError
from barnabas.cli.records.positions import Range, ends, starts
from barnabas.cli.records.records import Record, Show, format_of, record_of, show_json, show_value
from barnabas.cli.records.signals import INTERRUPTED_FLUSH_S, Signals
from barnabas.cli.text import INT64_MAX, key_value, time_ms

BATCH_MAX = 500
POLL_S = 0.2
#: Of no meaning without --group: librdkafka always needs a group.id, and asks for the group's coordinator.
NO_GROUP_RIGHT = "GROUP_AUTHORIZATION_FAILED"


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--group",
    help="Join this consumer group and commit offsets; without it, read all partitions.",
    shell_complete=complete_groups,
)
@click.option("--from-beginning", is_flag=True, help="Start with the first record instead of new ones.")
@click.option(
    "-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Read only this partition."
)
@click.option("--offset", type=click.IntRange(0, INT64_MAX), help="Start at this offset (with --partition).")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Start N records before the end of each partition.")
@click.option("--from", "from_time", metavar="TIME", help="Start with the first record at or after TIME.")
@click.option("--until", "until_time", metavar="TIME", help="Stop before the first record at or after TIME.")
@click.option("-c", "--max", "limit", type=click.IntRange(1), help="Stop after this many records.")
@click.option("-e", "--until-end", is_flag=True, help="Stop at the topic's current end.")
@click.option("--isolation", type=click.Choice(["read_uncommitted", "read_committed"]), default="read_uncommitted")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, without loss (bytes as base64).")
@click.option(
    "-f", "--format", "format_text", metavar="TEXT", help="kcat's format: %t %p %o %T %k %s %K %S %R %h, \\n."
)
@client_options
@bootstrap_option
def consume(
    topic: str,
    group: str | None,
    from_beginning: bool,
    partitions: tuple[int, ...],
    offset: int | None,
    last: int | None,
    from_time: str | None,
    until_time: str | None,
    limit: int | None,
    until_end: bool,
    isolation: str,
    as_json: bool,
    format_text: str | None,
    extra: tuple[str, ...],
    bootstrap: str,
) -> None:
    """Print the values of TOPIC's records, one a line, until interrupted.

    TIME is 2026-03-01T12:00 (local), 2026-03-01T12:00:00Z, or milliseconds since 1970.
    """
    span = Range(
        from_beginning,
        offset,
        last,
        None if from_time is None else time_ms(from_time),
        until_end,
        None if until_time is None else time_ms(until_time),
    )
    _check(span, group, partitions)
    show = _output_format(as_json, format_text)
    own = {
        "group.id": group or "barnabas-cli",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,  # commit only what was printed
        "auto.offset.reset": "error" if offset is not None else "latest" if _starts_at_end(span) else "earliest",
        "isolation.level": isolation,
        "enable.partition.eof": span.is_bounded,
        **dict(map(key_value, extra)),
    }
    with kafka_errors(bootstrap, is_checked=connects_as_commands_do(own)):
        consumer = Consumer(settings(bootstrap, **own))
        with closed_at_the_end(consumer):
            numbers = partitions_of(consumer, topic)
            missing = set(partitions).difference(numbers)
            if missing:
                raise UserError(f"{topic} has no partition {min(missing)}")
            left = None
            if group is not None:
                consumer.subscribe([topic])
            else:
                wanted = sorted(set(partitions)) or numbers
                left = ends(consumer, topic, wanted, span)
                consumer.assign(starts(consumer, topic, wanted, span))
            with Signals().caught():
                _Printer(consumer, limit, left, show, commits=group is not None).run()


@contextlib.contextmanager
def closed_at_the_end(consumer: Consumer) -> Iterator[None]:
    """Close the consumer after the block: it commits and leaves its group. After a signal it has little time for that.

    Why a thread: the client waits for a cluster that hangs, without a limit, and no exception ends that.
    """
    wait_s: float = TIMEOUT_S
    try:
        yield
    except (KeyboardInterrupt, EndedBySignal):
        wait_s = INTERRUPTED_FLUSH_S
        raise
    finally:
        thread = threading.Thread(target=consumer.close, name="close", daemon=True)
        thread.start()
        thread.join(wait_s)
        if thread.is_alive():
            click.echo("barnabas: no answer to the last commit: its records may be consumed again", err=True)


def _check(span: Range, group: str | None, partitions: tuple[int, ...]) -> None:
    span.check()
    is_chosen = partitions or span.is_bounded or (span.last, span.from_ms) != (None, None)
    if group is not None and is_chosen:
        raise ArgumentError(
            "--group excludes --partition, --last, --from, --until and --until-end: the group assigns the partitions "
            "and the offsets"
        )
    if span.offset is not None and not partitions:
        raise ArgumentError("--offset needs --partition")


def _starts_at_end(span: Range) -> bool:
    return not span.from_beginning and (span.offset, span.last, span.from_ms) == (None, None, None)


def _output_format(as_json: bool, format_text: str | None) -> Show:
    if format_text is None:
        return show_json if as_json else show_value
    if as_json:
        raise ArgumentError("give --json or --format, not both")
    return format_of(format_text)


class _Printer:
    """Prints records until the limit, or until every partition has reached its end."""

    def __init__(
        self, consumer: Consumer, limit: int | None, ends: dict[int, int] | None, show: Show, *, commits: bool
    ) -> None:
        self._consumer = consumer
        self._limit = limit
        self._left = ends  # unfinished partition -> its end; None: no end
        self._show = show
        self._commits = commits
        self._printed = 0

    def run(self) -> None:
        """Consume and print."""
        while not self._is_done():
            wanted = BATCH_MAX if self._limit is None else min(BATCH_MAX, self._limit - self._printed)
            messages = self._consumer.consume(wanted, POLL_S)
            for message in messages:
                if self._take(message) and self._commits:
                    self._store(message)
            sys.stdout.flush()

    def _is_done(self) -> bool:
        return self._left == {} or self._printed == self._limit

    def _take(self, message: Message) -> bool:
        """Print a record; return False if it is past the end, or an event of librdkafka's."""
        error = message.error()
        if error is not None:
            if error.name() == NO_GROUP_RIGHT and not self._commits:
                return False
            if error.name() != "_PARTITION_EOF":
                raise KafkaException(error)
            partition = message.partition()
            if self._left is not None and partition is not None:
                self._left.pop(partition, None)
            return False
        record = record_of(message)
        if self._left is not None and not self._is_before_end(record, self._left):
            return False
        sys.stdout.buffer.write(self._show(record))
        self._printed += 1
        return True

    def _is_before_end(self, record: Record, left: dict[int, int]) -> bool:
        end = left.get(record.partition, 0)
        if record.offset >= end - 1:
            left.pop(record.partition, None)
        return record.offset < end

    def _store(self, message: Message) -> None:
        """Mark a printed record for the next commit. Why each is flushed: a pipe may be closed after any of them."""
        sys.stdout.flush()
        with contextlib.suppress(KafkaException):  # the partition now belongs to another member
            self._consumer.store_offsets(message)
