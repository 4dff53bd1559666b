"""`barnabas produce`: sends each line of standard input or of a file as a record."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from barnabas.cli.client import (
    TIMEOUT_S,
    bootstrap_option,
    client_options,
    connects_as_commands_do,
    kafka_errors,
    reason,
    settings,
    topic_names,
)
from barnabas.cli.complete import complete_topics
from barnabas.cli.errors import ArgumentError, EndedBySignal, UserError
from barnabas.cli.output import progress
from barnabas.cli.records.records import unescaped
from barnabas.cli.records.signals import INTERRUPTED_FLUSH_S, Signals
from barnabas.cli.records.size_limits import CLIENT_LIMIT_KEY, TOO_LARGE, refused_by_client, refused_by_cluster
from barnabas.cli.records.splitting import pieces
from barnabas.cli.suggest import did_you_mean
from barnabas.cli.text import INT32_MAX, key_value

Header = tuple[str, str | bytes | None]
DELIVERY_TIMEOUT_MS = 30_000
UNKNOWN_TOPIC_TIMEOUT_MS = 5_000
POLL_S = 0.2
UNKNOWN_TOPIC = frozenset({"_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"})
SHOWN_BYTES = 60


class Shape(NamedTuple):
    """How a piece of the input is converted into a record."""

    separator: bytes | None  # between key and value
    key: bytes | None  # of every record
    headers: list[Header]
    empty_is_null: bool

    def record(self, piece: bytes) -> tuple[bytes | None, bytes | None]:
        """Key and value of a piece. Raises ValueError if the separator is missing."""
        key, value = self.key, piece
        if self.separator is not None:
            key, found, value = piece.partition(self.separator)
            if not found:
                raise ValueError
        if self.empty_is_null:
            return key, value or None
        return key, value


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--file", "source", type=click.File("rb"), default="-", help="The input; - is stdin.")
@click.option("-D", "--delimiter", metavar="TEXT", default="\\n", show_default=True, help="The end of a record.")
@click.option("--whole", is_flag=True, help="Send the whole input as one record.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Split each record into key and value at the first TEXT.")
@click.option("-k", "--key", metavar="TEXT", help="The key of every record.")
@click.option(
    "-Z", "--tombstones", is_flag=True, help="Send an empty value as null, which deletes its key on compaction."
)
@click.option("-p", "--partition", type=click.IntRange(0, INT32_MAX), help="Default: by key, or spread over all.")
@click.option("-H", "--header", "headers", multiple=True, metavar="KEY=VALUE", help="A header of every record.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none")
@click.option(
    "--max-message-bytes", type=click.IntRange(1000, 1_000_000_000), help="Limit of a record; default 1,000,000."
)
@client_options
@bootstrap_option
def produce(
    topic: str,
    source: BinaryIO,
    delimiter: str,
    whole: bool,
    key_separator: str | None,
    key: str | None,
    tombstones: bool,
    partition: int | None,
    headers: tuple[str, ...],
    acks: str,
    compression: str,
    max_message_bytes: int | None,
    extra: tuple[str, ...],
    bootstrap: str,
) -> None:
    r"""Produce each line to TOPIC and print how many records were acknowledged.

    In delimiters and separators, \n, \t, \0 and \xHH stand for single bytes.
    """
    if key is not None and key_separator is not None:
        raise ArgumentError("give --key or --key-separator, not both")
    ends = unescaped(delimiter)
    if not ends:
        raise ArgumentError("--delimiter is empty: give --whole to send the input as one record")
    own = {
        "acks": acks,
        "compression.type": compression,
        "enable.idempotence": acks == "all",
        "linger.ms": 5,
        "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        "topic.metadata.propagation.max.ms": UNKNOWN_TOPIC_TIMEOUT_MS,
        **({} if max_message_bytes is None else {CLIENT_LIMIT_KEY: max_message_bytes}),
        **dict(map(key_value, extra)),
    }
    shape = Shape(
        unescaped(key_separator) if key_separator else None,
        None if key is None else key.encode(),
        list(map(_header, headers)),
        tombstones,
    )
    signals = Signals()
    with kafka_errors(bootstrap, is_checked=connects_as_commands_do(own)):
        client = settings(bootstrap, **own)
        producer = Producer(client)
        producer.list_topics(timeout=TIMEOUT_S)  # Why: fails at once if no cluster answers
        sender = _Sender(producer, topic, shape, -1 if partition is None else partition, client, signals)
        with signals.caught():
            try:
                with _records(source, None if whole else ends) as records:
                    for piece in records:
                        sender.send(piece)
                sender.finish()
            except (KeyboardInterrupt, EndedBySignal):
                if lost := sender.flush(INTERRUPTED_FLUSH_S):
                    click.echo(f"barnabas: {lost} records were not acknowledged", err=True)
                raise
        if sender.failed:
            raise UserError(f"{sender.failed} records were not acknowledged: {sender.why()}")
    click.echo(f"{sender.acknowledged} records acknowledged", err=True)


class _Sender:
    """Sends pieces as records and counts acknowledged and failed ones."""

    def __init__(
        self, producer: Producer, topic: str, shape: Shape, partition: int, own: dict[str, Any], signals: Signals
    ) -> None:
        self._producer = producer
        self._signals = signals  # held while the client calls `_on_delivery`
        self._topic = topic
        self._shape = shape
        self._partition = partition
        self._own = own  # the client's settings
        self.acknowledged = 0
        self.failed = 0
        self._error: KafkaError | None = None  # the first one

    def send(self, piece: bytes) -> None:
        """Put a record into the client's queue; block while it is full. Raises UserError."""
        try:
            key, value = self._shape.record(piece)
        except ValueError:
            self.finish()
            separator = (self._shape.separator or b"").decode(errors="replace")
            shown = piece[:SHOWN_BYTES].decode(errors="replace")
            raise UserError(f"a line has no {separator!r}: {shown!r}; {self._before()}") from None
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    self._partition,
                    on_delivery=self._on_delivery,
                    headers=self._shape.headers,
                )
            except BufferError:
                self._poll(POLL_S)  # the client's queue is full: serve delivery reports
            except KafkaException as error:
                self.finish()
                if error.args[0].name() == TOO_LARGE:
                    size = len(key or b"") + len(value or b"")
                    raise UserError(f"{refused_by_client(size, self._own)}; {self._before()}") from error
                raise UserError(f"{self._topic}: {reason(error.args[0])}") from error
            else:
                self._poll(0)
                return

    def finish(self) -> None:
        """Wait until each record is acknowledged or has failed (at its delivery timeout at the latest)."""
        with progress("waiting for acknowledgements", len(self._producer), minimum=10_000) as advance:
            left = len(self._producer)
            while left:
                before, left = left, self.flush(POLL_S)  # in steps: Ctrl-C takes effect between them
                advance(before - left)

    def flush(self, timeout_s: float) -> int:
        """Wait at most this long for acknowledgements; return how many records have none."""
        with self._signals.held():
            return int(self._producer.flush(timeout_s))

    def _poll(self, timeout_s: float) -> None:
        with self._signals.held():
            self._producer.poll(timeout_s)

    def why(self) -> str:
        """Why the first failed record was not acknowledged."""
        assert self._error is not None
        text = reason(self._error)
        if self._error.name() in UNKNOWN_TOPIC:
            return text + did_you_mean(self._topic, topic_names(self._producer))
        if self._error.name() != TOO_LARGE:
            return text
        return f"{text}: {refused_by_cluster(self._topic, self._own)}"

    def _before(self) -> str:
        return f"the {self.acknowledged} records before it were acknowledged"

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1
            self._error = self._error or error


def _header(text: str) -> Header:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ArgumentError(f"--header '{text}' is not of the form KEY=VALUE")
    return name, value


@contextlib.contextmanager
def _records(source: BinaryIO, delimiter: bytes | None) -> Iterator[Iterator[bytes]]:
    """The pieces of the input (delimiter None: one piece), with a progress bar if the source is a file."""
    size = 0
    with contextlib.suppress(OSError, ValueError):
        size = source.seek(0, 2)
        source.seek(0)
    with progress("producing", size) as advance:
        yield iter([source.read()]) if delimiter is None else _advancing(source, delimiter, advance)


def _advancing(source: BinaryIO, delimiter: bytes, advance: Callable[[int], None]) -> Iterator[bytes]:
    for piece, taken in pieces(source, delimiter):
        yield piece
        advance(taken)
