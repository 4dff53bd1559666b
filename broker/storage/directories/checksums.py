"""Checksums for Kafka's text files, which have none of their own: without them a flipped digit would go unnoticed.

The checksum is the CRC-32C of the file without it. It stands in a place that Kafka's readers ignore:

    file                            place of the checksum
    the offset checkpoints and      the end of the last line, as 32 blanks: a space for a 0, a tab for a 1. Kafka splits
    leader-epoch-checkpoint         lines at white space and allows no further line. Without entries: no checksum
    partition.metadata              a third line, `crc32c: 1f2e3d4c`; Kafka reads two
    meta.properties                 a comment, the first line: `#crc32c=1f2e3d4c`

Why in the files and not beside them: one rename replaces content and checksum together, so no crash separates them.
When Apache Kafka or a person replaces a file, its checksum goes with it. A file without a checksum is accepted: Kafka
writes such files, and a single flipped bit removes none of these checksums.

Pure functions. Source: Kafka's CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile,
PartitionMetadataReadBuffer; java.util.Properties.
"""

from __future__ import annotations

from barnabas.protocol.records.crc import crc32c

CHECKSUM_BITS = 32
_TO_BLANKS = bytes.maketrans(b"01", b" \t")
_LINE_MARK = b"crc32c: "
_COMMENT_MARK = b"#crc32c="


class ChecksumError(ValueError):
    """The content of a file does not match its checksum."""

    def __init__(self) -> None:
        super().__init__("its checksum is wrong")


def add_to_entries(text: bytes) -> bytes:
    """Add the checksum to the lines of a checkpoint; the last line is an entry."""
    bits = f"{crc32c(text):0{CHECKSUM_BITS}b}".encode()
    return text[:-1] + bits.translate(_TO_BLANKS) + b"\n"


def strip_from_entries(data: bytes) -> bytes:
    """Return a checkpoint without its checksum; raises ChecksumError."""
    text = data.rstrip(b" \t\n") + b"\n"
    has_blanks = b"\t" in data or b"  " in data  # of a damaged checksum
    if data != add_to_entries(text) and (data != text or has_blanks):
        raise ChecksumError
    return text


def add_to_metadata(text: bytes) -> bytes:
    """Add the checksum to a `partition.metadata`."""
    return text + _LINE_MARK + _hex(text) + b"\n"


def strip_from_metadata(data: bytes) -> bytes:
    """Return a `partition.metadata` without its checksum; raises ChecksumError."""
    text, mark, _ = data.partition(_LINE_MARK)
    if mark and data != add_to_metadata(text):
        raise ChecksumError
    return text


def add_to_properties(text: bytes) -> bytes:
    """Add the checksum to a `meta.properties`."""
    return _COMMENT_MARK + _hex(text) + b"\n" + text


def strip_from_properties(data: bytes) -> bytes:
    """Return a `meta.properties` without its checksum; raises ChecksumError."""
    if not data.startswith(_COMMENT_MARK):
        return data
    text = data.partition(b"\n")[2]
    if data != add_to_properties(text):
        raise ChecksumError
    return text


def _hex(text: bytes) -> bytes:
    return f"{crc32c(text):08x}".encode()
