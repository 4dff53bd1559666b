"""`barnabas produce`: a record a line, from standard input or a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from barnabas.cli.client import TIMEOUT_S, bootstrap_option, kafka_errors, reason, settings
from barnabas.cli.complete import complete_topics
from barnabas.cli.errors import UserError
from barnabas.cli.output import progress

Header = tuple[str, str | bytes | None]
DELIVERY_TIMEOUT_MS = 30_000
UNKNOWN_TOPIC_TIMEOUT_MS = 5_000
INTERRUPTED_FLUSH_S = 2
POLL_S = 0.2


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--file", "source", type=click.File("rb"), default="-", help="Where the lines come from; - is stdin.")
@click.option("--key-separator", metavar="TEXT", help="Split each line into key and value at the first TEXT.")
@click.option("--partition", type=click.IntRange(0), help="Else by key, or spread.")
@click.option("--header", "headers", multiple=True, metavar="KEY=VALUE", help="A header of every record.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none")
@bootstrap_option
def produce(
    topic: str,
    source: BinaryIO,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    acks: str,
    compression: str,
    bootstrap: str,
) -> None:
    """Produce each line to TOPIC, and tell how many were acknowledged."""
    own = {
        "acks": acks,
        "compression.type": compression,
        "enable.idempotence": acks == "all",
        "linger.ms": 5,
        "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        "topic.metadata.propagation.max.ms": UNKNOWN_TOPIC_TIMEOUT_MS,
    }
    with kafka_errors(bootstrap):
        producer = Producer(settings(bootstrap, **own))
        producer.list_topics(timeout=TIMEOUT_S)  # Why: says at once if no cluster answers
        sender = _Sender(producer, topic, key_separator, -1 if partition is None else partition, headers)
        try:
            with _lines(source) as lines:
                for line in lines:
                    sender.send(line.rstrip(b"\r\n"))
            sender.finish()
        except KeyboardInterrupt:
            producer.flush(INTERRUPTED_FLUSH_S)
            raise
    if sender.failed:
        raise UserError(f"{sender.failed} records were not acknowledged: {sender.error}")
    click.echo(f"{sender.acknowledged} records acknowledged", err=True)


class _Sender:
    """Sends lines as records and counts what became of them."""

    def __init__(
        self, producer: Producer, topic: str, separator: str | None, partition: int, headers: tuple[str, ...]
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._separator = separator.encode() if separator else None
        self._partition = partition
        self._headers = list(map(_header, headers))
        self.acknowledged = 0
        self.failed = 0
        self.error: str | None = None

    def send(self, line: bytes) -> None:
        """Queue a line; waits while the queue is full."""
        key, value = None, line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                self.finish()
                shown = line[:60].decode(errors="replace")
                raise UserError(
                    f"a line has no {self._separator.decode()!r}: {shown!r}; "
                    f"the {self.acknowledged} records before it were acknowledged"
                )
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key, self._partition, on_delivery=self._on_delivery, headers=self._headers
                )
            except BufferError:
                self._producer.poll(POLL_S)  # the local queue is full: let deliveries make room
            except KafkaException as error:
                raise UserError(f"{self._topic}: {reason(error.args[0])}") from error
            else:
                self._producer.poll(0)
                return

    def finish(self) -> None:
        """Wait until each record is acknowledged or has failed, at the latest at its delivery timeout."""
        with progress("waiting for acknowledgements", len(self._producer), minimum=10_000) as advance:
            left = len(self._producer)
            while left:
                before, left = left, self._producer.flush(POLL_S)  # in steps: Ctrl-C is seen between them
                advance(before - left)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1
            self.error = self.error or reason(error)


def _header(text: str) -> Header:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UserError(f"--header '{text}' is not of the form KEY=VALUE")
    return name, value


@contextlib.contextmanager
def _lines(source: BinaryIO) -> Iterator[Iterator[bytes]]:
    """The lines, behind a progress bar where the source is a file and somebody watches."""
    size = 0
    with contextlib.suppress(OSError, ValueError):
        size = source.seek(0, 2)
        source.seek(0)
    with progress("producing", size) as advance:
        yield _advancing(source, advance)


def _advancing(source: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    for line in source:
        yield line
        advance(len(line))
