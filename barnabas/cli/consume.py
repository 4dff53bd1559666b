"""`barnabas consume`: print the records of a topic."""

from __future__ import annotations

import json
import sys
from typing import cast

import click
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from barnabas.cli.client import TIMEOUT_S, bootstrap_option, kafka_errors, settings
from barnabas.cli.errors import UserError


@click.command()
@click.argument("topic")
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
    with kafka_errors(bootstrap):
        consumer = Consumer(
            settings(
                bootstrap,
                **{
                    "group.id": group or "barnabas-cli",
                    "enable.auto.commit": group is not None,
                    "auto.offset.reset": "earliest" if from_beginning else "latest",
                    "isolation.level": isolation,
                    "enable.partition.eof": until_end,
                },
            )
        )
        try:
            if group is not None:
                consumer.subscribe([topic])
                waiting: set[int] = set()
            else:
                waiting = _assign(consumer, topic, partition, offset, from_beginning)
            _print(consumer, limit, waiting, until_end, as_json)
        except KeyboardInterrupt:
            return
        finally:
            consumer.close()


def _assign(
    consumer: Consumer, topic: str, partition: int | None, offset: int | None, from_beginning: bool
) -> set[int]:
    """Take the partitions without a group; return their numbers."""
    found = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    wanted = set(found.partitions) if partition is None else {partition}
    if not wanted <= set(found.partitions):
        raise UserError(f"{topic} has no partition {partition}")
    start = OFFSET_BEGINNING if from_beginning else OFFSET_END
    consumer.assign([TopicPartition(topic, number, start if offset is None else offset) for number in wanted])
    return wanted


def _print(consumer: Consumer, limit: int | None, waiting: set[int], until_end: bool, as_json: bool) -> None:
    printed = 0
    while limit is None or printed < limit:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            _print_record(message, as_json)
            printed += 1
        elif error.name() == "_PARTITION_EOF":
            waiting.discard(message.partition())
            if until_end and not waiting:
                return
        else:
            raise KafkaException(error)


def _print_record(message: Message, as_json: bool) -> None:
    if not as_json:
        sys.stdout.buffer.write((message.value() or b"") + b"\n")
        sys.stdout.buffer.flush()
        return
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])  # the stubs allow what produce takes, too
    record = {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": [[name, _text(value)] for name, value in headers],
    }
    print(json.dumps(record, ensure_ascii=False), flush=True)


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else value
