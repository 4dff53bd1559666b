"""Compares the replicas of a partition on disk: up to the high watermark, their batches must be identical.

Whole files are not compared: replicas may roll their segments at different offsets, and may differ above the high
watermark. So each log is read as a sequence of batches. All bytes of each batch are compared, including the offset and
the leader epoch, which the CRC does not cover.

Source: Kafka's kafka-replica-verification, which does the same over the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas.protocol.records.batch import iter_headers


class Batch(NamedTuple):
    """A batch as it is stored; offsets are inclusive."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    content: bytes

    def __str__(self) -> str:
        return f"[{self.base_offset}, {self.last_offset}] of epoch {self.leader_epoch}, {len(self.content)} bytes"


def read_log(directory: Path) -> bytes:
    """All segments of a partition's directory, in the order of their offsets."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def batches(log: bytes) -> Iterator[Batch]:
    """The batches of a log."""
    for position, header in iter_headers(log):
        content = log[position : position + header.size_in_bytes]
        yield Batch(header.base_offset, header.last_offset, header.partition_leader_epoch, content)


def differences(logs: Mapping[str, bytes], high_watermark: int) -> list[str]:
    """The problems of these replicas of a partition: the first one of each log, and of each pair."""
    found = []
    stored: dict[str, list[Batch]] = {}
    for name, log in logs.items():
        stored[name] = [batch for batch in batches(log) if batch.base_offset < high_watermark]
        found += _faults(name, stored[name], high_watermark)
    names = list(stored)
    for name in names[1:]:
        found += _first_difference(names[0], stored[names[0]], name, stored[name])
    return found


def _faults(name: str, log: list[Batch], high_watermark: int) -> list[str]:
    """Check that offsets have no gap up to the high watermark, and that epochs do not decrease."""
    next_offset, epoch = log[0].base_offset if log else 0, -1
    for batch in log:
        if batch.base_offset != next_offset or batch.leader_epoch < epoch:
            return [f"{name}: {batch} follows offset {next_offset - 1} of epoch {epoch}"]
        next_offset, epoch = batch.last_offset + 1, batch.leader_epoch
    return [] if next_offset >= high_watermark else [f"{name} ends at {next_offset}, below {high_watermark}"]


def _first_difference(name: str, log: list[Batch], other_name: str, other: list[Batch]) -> list[str]:
    for mine, its in zip(log, other, strict=False):
        if mine != its:
            return [f"{name} has {mine} where {other_name} has {its}"]
    if len(log) != len(other):
        return [f"{name} has {len(log)} batches, {other_name} {len(other)}"]
    return []
