"""`barnabas produce`: a record a line, from standard input or a file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import BinaryIO

import click
from confluent_kafka import KafkaError, Message, Producer

from barnabas.cli.client import TIMEOUT_S, bootstrap_option, kafka_errors, settings
from barnabas.cli.errors import UserError
from barnabas.cli.up import key_value


@click.command()
@click.argument("topic")
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
    sender = _Sender(topic, key_separator, -1 if partition is None else partition, dict(map(key_value, headers)))
    with kafka_errors(bootstrap):
        producer = Producer(
            settings(
                bootstrap,
                acks=acks,
                **{"compression.type": compression, "enable.idempotence": acks == "all", "linger.ms": 5},
            )
        )
        for line in _with_progress(source):
            sender.send(producer, line.rstrip(b"\r\n"))
        unsent = producer.flush(TIMEOUT_S)
    if unsent or sender.failed:
        raise UserError(f"{unsent + sender.failed} records were not acknowledged: {sender.error or 'timed out'}")
    click.echo(f"{sender.acknowledged} records acknowledged", err=True)


class _Sender:
    def __init__(self, topic: str, key_separator: str | None, partition: int, headers: dict[str, str]) -> None:
        self._topic = topic
        self._separator = key_separator.encode() if key_separator else None
        self._partition = partition
        self._headers: list[tuple[str, str | bytes | None]] = list(headers.items())
        self.acknowledged = 0
        self.failed = 0
        self.error: str | None = None

    def send(self, producer: Producer, line: bytes) -> None:
        key, value = None, line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                raise UserError(f"a line has no {self._separator.decode()!r}: {line[:60].decode(errors='replace')!r}")
        while True:
            try:
                producer.produce(
                    self._topic, value, key, self._partition, on_delivery=self._on_delivery, headers=self._headers
                )
            except BufferError:
                producer.poll(0.1)  # the local queue is full: let deliveries make room
            else:
                producer.poll(0)
                return

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1
            self.error = self.error or f"{error.name()}: {error.str()}"


def _with_progress(source: BinaryIO) -> Iterator[bytes]:
    """The lines, behind a progress bar where the source is a file and somebody watches."""
    size = 0
    with contextlib.suppress(OSError, ValueError):
        size = source.seek(0, 2)
        source.seek(0)
    if not size or not sys.stderr.isatty():
        yield from source
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        task = bars.add_task("producing", total=size)
        for line in source:
            yield line
            bars.advance(task, len(line))
