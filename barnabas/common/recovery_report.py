"""What a broker tells of the cluster when the controller's log is lost: for `barnabas controller recover`.

A report has two parts. The *picture* is the metadata that the controller last told the broker: it lives in memory, and
a copy of it on disk (broker/metadata_copy.py). The *logs* are what lies on the broker's disks now.

Format: JSON, UTF-8, compressed by zlib, after 4 bytes (big endian) with the CRC-32C of what follows. Ids of topics are
hexadecimal. Configs whose value is secret are named without it.

Threads: none; values and pure functions.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

import crc32c

NOTHING: Final = -1
MAX_BYTES: Final = 256 << 20  # decompressed
#: No cluster gives out so many. A client can write any producer id into its batches: one above this was never given.
PRODUCER_ID_MAX: Final = 1 << 62
_CRC: Final = struct.Struct(">I")


class ReportError(ValueError):
    """A report that cannot be read."""


class PartitionState(NamedTuple):
    """A partition as the controller told it."""

    partition: int
    leader_epoch: int
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]


class ConfigValue(NamedTuple):
    """A dynamic config; `value` None: it is secret, and set."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(slots=True)
class Picture:
    """The metadata of the cluster, complete up to `offset`."""

    offset: int
    features: dict[str, int] = field(default_factory=dict)
    topics: dict[str, tuple[str, list[PartitionState]]] = field(default_factory=dict)  # by name: (id, partitions)
    configs: list[ConfigValue] = field(default_factory=list)


class LogState(NamedTuple):
    """A replica on disk. `epoch`: of its last batch; `end`: its log end offset (exclusive).

    `leads_epoch`, `isr`, `partition_epoch`: what the broker knows as the partition's leader; -1 and () if it is not.
    """

    topic: str
    partition: int
    topic_id: str | None
    epoch: int
    end: int
    leads_epoch: int = NOTHING
    partition_epoch: int = NOTHING
    isr: Sequence[int] = ()


@dataclass(slots=True)
class Report:
    """Everything that one broker knows."""

    broker_id: int
    cluster_id: str
    controller_epoch: int = NOTHING  # the highest that it obeyed
    metadata_offset: int = NOTHING  # the highest that it obeyed
    broker_epoch: int = NOTHING
    highest_producer_id: int = NOTHING  # that it was given to hand out, or found in a log; below PRODUCER_ID_MAX
    picture: Picture | None = None
    logs: list[LogState] = field(default_factory=list)


def encode_report(report: Report) -> bytes:
    """Return the bytes of a report."""
    data = zlib.compress(json.dumps(asdict(report), separators=(",", ":")).encode())
    return _CRC.pack(crc32c.crc32c(data)) + data


def decode_report(data: bytes) -> Report:
    """Return the report in these bytes; raises ReportError."""
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != crc32c.crc32c(data[_CRC.size :]):
        raise ReportError("its checksum is wrong")
    try:
        decompressor = zlib.decompressobj()
        text = decompressor.decompress(data[_CRC.size :], MAX_BYTES)
        if not decompressor.eof:
            raise ReportError(f"it is cut off, or longer than {MAX_BYTES} bytes")
        return _report(json.loads(text))
    except (zlib.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ReportError(str(error)) from error


def _report(values: dict[str, Any]) -> Report:
    picture = values.pop("picture")
    if picture is not None:
        topics = {
            str(name): (str(topic_id), [PartitionState(*state) for state in states])
            for name, (topic_id, states) in picture["topics"].items()
        }
        picture = Picture(
            offset=int(picture["offset"]),
            features={str(name): int(level) for name, level in picture["features"].items()},
            topics=topics,
            configs=[ConfigValue(*config) for config in picture["configs"]],
        )
    logs = [LogState(*state) for state in values.pop("logs")]
    return Report(**values, picture=picture, logs=logs)
