"""`python -m benchmarks.compaction`: the log cleaners of both systems on the same log of small keyed records.

The log is written once, in batches as a producer would fill them. It is copied into the directory of a stopped broker
of each system; the recovery at the next start is not counted. The topic starts with cleanup.policy=delete. The clock
runs from the change to `compact` until the cleaner's checkpoint covers all but the active segment. Only one system runs
at a time, and its broker does nothing else. Both must end with the same records.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import click
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from barnabas.broker.storage.segments.scan import scan_batches
from barnabas.common.clock import SystemClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    assemble_batch,
    iter_records,
)
from barnabas.protocol.records.varint import write_varint
from benchmarks.harness import chosen, directory, systems_option
from benchmarks.systems import Kind, System, broker_pid, running
from tests.support.processes import cpu_seconds, peak_resident_bytes
from tests.support.waiting import eventually

TOPIC = "compacted"
RECORDS_PER_BATCH = 60  # offset deltas of one byte
VALUE_BYTES = 20
SEGMENT_BYTES = 64 << 20
MIB = 1 << 20
START_MS = 1_700_000_000_000
SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
}
LIMIT_MS = 600_000


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The cost and the result of one compaction."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    mib_left: float
    records_left: int


def write_log(directory: Path, records: int, keys: int) -> int:
    """Write the segments of a partition and return their size in bytes."""
    generator = random.Random(1)
    start = _record_start()
    value = bytearray()
    write_varint(value, VALUE_BYTES)
    tail = bytes(value) + b"v" * VALUE_BYTES + b"\x00"
    names = [b"key-%08d" % number for number in range(keys)]
    heads = [start[:3] + bytes([2 * index]) + start[3:] for index in range(RECORDS_PER_BATCH)]
    offset = total = 0
    with contextlib.ExitStack() as files:
        segment, room = None, 0
        while offset < records:
            count = min(RECORDS_PER_BATCH, records - offset)
            payload = b"".join([heads[index] + names[generator.randrange(keys)] + tail for index in range(count)])
            batch = _batch(offset, count, payload)
            if len(batch) > room:
                segment = files.enter_context((directory / f"{offset:020d}.log").open("wb", buffering=MIB))
                room = SEGMENT_BYTES
            assert segment is not None
            segment.write(batch)
            room -= len(batch)
            total += len(batch)
            offset += count
    return total


def _record_start() -> bytes:
    """Encode the common start of all records: length, attributes, timestamp delta, (offset delta,) key length."""
    body = 1 + 1 + 1 + 1 + 12 + 1 + VALUE_BYTES + 1
    start = bytearray()
    write_varint(start, body)
    start += b"\x00\x00"
    write_varint(start, 12)
    return bytes(start)


def _batch(offset: int, count: int, payload: bytes) -> bytes:
    stamp = START_MS + offset // 1000
    return assemble_batch(
        BatchHeader(
            offset, 0, 0, 2, 0, 0, count - 1, stamp, stamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count
        ),
        payload,
    )


def place(system: System, source: Path) -> Path:
    """Copy the log into a topic of this system and leave the system stopped. Returns the partition's directory."""
    data = system.data_directory
    with running(system):
        admin = AdminClient({"bootstrap.servers": system.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        partition = data / f"{TOPIC}-0"
        eventually("the partition exists", partition.exists)
        del admin
    for path in partition.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        shutil.copy(path, partition)
    # Without a recovery point and a clean-shutdown marker, the start recovers every segment.
    for path in (data / ".kafka_cleanshutdown", data / "recovery-point-offset-checkpoint"):
        path.unlink(missing_ok=True)
    return partition


def measure(system: System, source: Path) -> Cleaning:
    """Copy the log into a topic of this system, compact it and measure that."""
    partition = place(system, source)
    clock = SystemClock()
    with running(system):
        pid = broker_pid(system)
        admin = AdminClient({"bootstrap.servers": system.bootstrap})
        eventually("the topic exists", lambda: TOPIC in admin.list_topics(timeout=10).topics)
        roll(system.bootstrap)
        used, start_ns = cpu_seconds(pid), clock.monotonic_ns()
        compact(admin)
        eventually("the log is clean", lambda: is_clean(system.data_directory), LIMIT_MS)
        seconds = (clock.monotonic_ns() - start_ns) / 1e9
        cpu, peak = cpu_seconds(pid) - used, peak_resident_bytes(pid) / MIB
    logs = sorted(partition.glob("*.log"))
    return Cleaning(seconds, cpu, peak, sum(path.stat().st_size for path in logs) / MIB, _count(logs))


def roll(bootstrap: str) -> None:
    """Append a record so much newer than the others that it starts a new segment."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(TOPIC, b"", b"end")
    assert producer.flush(30) == 0


def compact(admin: AdminClient) -> None:
    """Change the topic's cleanup.policy to `compact`."""
    wanted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def is_clean(data: Path) -> bool:
    """Check whether the cleaner's checkpoint covers all but the active segment."""
    path = data / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    offsets = [int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} 0 ")]
    active = max(int(file.stem) for file in (data / f"{TOPIC}-0").glob("*.log"))
    return 0 < active <= max(offsets, default=-1)


def _count(logs: list[Path]) -> int:
    """Count the records. Asserts that no key occurs twice below the active segment."""
    keys: set[bytes | None] = set()
    total = 0
    for path in logs:
        file = OsFileSystem().open(str(path))
        for _, header, batch in scan_batches(file, 0, file.size()):
            total += header.record_count
            if path is not logs[-1]:
                before = len(keys)
                keys.update(record.key for record in iter_records(batch))
                assert len(keys) == before + header.record_count, f"a key occurs twice in {path}"
        file.close()
    return total


@click.command()
@click.option("--records", default=10_000_000, show_default=True)
@click.option("--keys", default=1_000_000, show_default=True, help="Number of different keys, drawn at random.")
@systems_option
@click.option(
    "--log", "kept", type=click.Path(path_type=Path), help="Write the log here, or reuse the one that exists."
)
def main(records: int, keys: int, systems: str, kept: Path | None) -> None:
    """Compare the log cleaners."""
    with directory("compaction") as where:
        source = kept or where / "log"
        if not source.exists():
            source.mkdir()
            write_log(source, records, keys)
        size = sum(path.stat().st_size for path in source.iterdir()) / MIB
        click.echo(f"{records:,} records, {keys:,} keys, {size:.0f} MiB, {os.cpu_count()} cores")
        for index, (name, make) in enumerate(chosen(systems).items()):
            took = measure(make(where / str(index), Kind(), SETTINGS), source)
            click.echo(
                f"{name}: {took.seconds:.1f} s ({records / took.seconds:,.0f} records/s, "
                f"{size / took.seconds:.0f} MiB/s), {took.cpu_seconds:.1f} s of CPU, peak {took.peak_mib:.0f} MiB; "
                f"{took.records_left:,} records in {took.mib_left:.0f} MiB are left"
            )


if __name__ == "__main__":
    main()
