"""A broker's report on the cluster, from which `barnabas controller recover` rebuilds a lost metadata log.

A report has two parts. The *image* is the metadata of the last push: the broker has it in memory, and a copy on disk
(broker/metadata/recovery_reporter.py). The *logs* are the replicas on the broker's disks now.

Format: 4 bytes (big endian) with the CRC-32C of the rest, then JSON in UTF-8, compressed by zlib. Topic ids are
hexadecimal. A config with a secret value is named without the value. SCRAM credentials are in copies on disk, and in
reports to authenticated requesters only. The image has the key
"picture", so that copies on existing disks can be decoded.

Threads: none; values and pure functions.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from barnabas.protocol.records.crc import crc32c

NOTHING: Final = -1
MAX_BYTES: Final = 256 << 20  # decompressed
#: No cluster allocates so many. A client can write any producer id into its batches, but none above this is genuine.
PRODUCER_ID_MAX: Final = 1 << 62
_CRC: Final = struct.Struct(">I")
_IMAGE_KEY: Final = "picture"


class ReportError(ValueError):
    """A report that cannot be decoded; the message is the reason."""


class PartitionState(NamedTuple):
    """The state of a partition as of the last push."""

    partition: int
    leader_epoch: int
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]


class ConfigValue(NamedTuple):
    """A dynamic config; `value` None means that it is set to a secret."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(slots=True)
class ReportedImage:
    """The metadata of the cluster, complete up to `offset`, inclusive."""

    offset: int
    features: dict[str, int] = field(default_factory=dict)
    topics: dict[str, tuple[str, list[PartitionState]]] = field(default_factory=dict)  # name -> (id, partitions)
    configs: list[ConfigValue] = field(default_factory=list)
    security: list[str] = field(default_factory=list)  # ACLs, SCRAM credentials, tokens and quotas: framed records, hex
    withheld: list[str] = field(default_factory=list)  # users whose SCRAM credentials are not in `security`


class LogState(NamedTuple):
    """A replica on disk: the leader epoch of its last batch, and its log end offset (exclusive).

    `leads_epoch`, `isr` and `partition_epoch` are set if the broker leads the partition; otherwise they are -1 and ().
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
    """Everything that one broker knows about the cluster."""

    broker_id: int
    cluster_id: str
    controller_epoch: int = NOTHING  # the highest that the broker has obeyed
    metadata_offset: int = NOTHING  # the highest that the broker has obeyed
    broker_epoch: int = NOTHING
    highest_producer_id: int = NOTHING  # in its blocks or in a log; below PRODUCER_ID_MAX
    image: ReportedImage | None = None
    logs: list[LogState] = field(default_factory=list)


def encode_report(report: Report) -> bytes:
    """Return a report in its format."""
    compressor = zlib.compressobj()
    pieces = [compressor.compress(text.encode()) for text in _texts(report)]
    data = b"".join([*pieces, compressor.flush()])
    return _CRC.pack(crc32c(data)) + data


def _texts(report: Report) -> Iterator[str]:
    """Yield the JSON text topic by topic: the encoder makes an object of each number, and keeps all to the end."""
    values, image = _shallow(report), report.image
    del values["image"]
    if image is None:
        yield _json({**values, _IMAGE_KEY: None})
        return
    yield f'{_json(values)[:-1]},"{_IMAGE_KEY}":'
    before = "{"
    for name, value in _shallow(image).items():
        yield f"{before}{_json(name)}:"
        yield from _topic_texts(image) if name == "topics" else (_json(value),)
        before = ","
    yield "}}"


def _topic_texts(image: ReportedImage) -> Iterator[str]:
    yield "{"
    for number, (name, topic) in enumerate(image.topics.items()):
        yield f"{',' if number else ''}{_json(name)}:{_json(topic)}"
    yield "}"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _shallow(value: Report | ReportedImage) -> dict[str, Any]:
    """Return the fields. Why not `asdict`: it copies every partition."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def decode_report(data: bytes) -> Report:
    """Read a report; raises ReportError."""
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != crc32c(data[_CRC.size :]):
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
    image = values.pop(_IMAGE_KEY)
    if image is not None:
        topics = {
            str(name): (str(topic_id), [PartitionState(*state) for state in states])
            for name, (topic_id, states) in image["topics"].items()
        }
        image = ReportedImage(
            offset=int(image["offset"]),
            features={str(name): int(level) for name, level in image["features"].items()},
            topics=topics,
            configs=[ConfigValue(*config) for config in image["configs"]],
            security=[str(record) for record in image.get("security", ())],
            withheld=[str(name) for name in image.get("withheld", ())],
        )
    logs = [LogState(*state) for state in values.pop("logs")]
    return Report(**values, image=image, logs=logs)
