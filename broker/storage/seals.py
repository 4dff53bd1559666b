"""The checksums of Kafka's text files, which have none of their own: a digit that flips would be believed.

Each format has a place that Kafka's readers pass over. There stands the *seal*, the CRC-32C of the file without it:

    file                            place of the seal
    the offset checkpoints and      the end of the last line, as 32 blanks: a space for a 0, a tab for a 1. Kafka splits
    leader-epoch-checkpoint         lines at white space and allows no line more; without entries there is no seal
    partition.metadata              a third line, `crc32c: 1f2e3d4c`, of which Kafka reads two
    meta.properties                 a comment, the first line: `#crc32c=1f2e3d4c`

Why in the files and not beside them: one rename replaces content and seal together, so no crash comes between the two,
and a file that somebody else replaces, Apache Kafka or a person, goes with its seal. One without a seal is believed:
that is what Kafka writes, and a single flipped bit takes none of these seals away.

Pure functions. Source: Kafka's CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile,
PartitionMetadataReadBuffer; java.util.Properties.
"""

from __future__ import annotations

import crc32c

SEAL_BITS = 32
_TO_BLANKS = bytes.maketrans(b"01", b" \t")
_LINE_MARK = b"crc32c: "
_COMMENT_MARK = b"#crc32c="


class BrokenSealError(ValueError):
    """The content of a file is not what was sealed, or the seal is not what it was."""

    def __init__(self) -> None:
        super().__init__("its checksum is wrong")


def seal_entries(text: bytes) -> bytes:
    """Seal the lines of a checkpoint, of which the last is an entry."""
    bits = f"{crc32c.crc32c(text):0{SEAL_BITS}b}".encode()
    return text[:-1] + bits.translate(_TO_BLANKS) + b"\n"


def unseal_entries(data: bytes) -> bytes:
    """Return a checkpoint without its seal; raises BrokenSealError."""
    text = data.rstrip(b" \t\n") + b"\n"
    if data != seal_entries(text) and (data != text or b"\t" in data or b"  " in data):  # blanks of a seal
        raise BrokenSealError
    return text


def seal_metadata(text: bytes) -> bytes:
    """Seal a `partition.metadata`."""
    return text + _LINE_MARK + _hex(text) + b"\n"


def unseal_metadata(data: bytes) -> bytes:
    """Return a `partition.metadata` without its seal; raises BrokenSealError."""
    text, mark, _ = data.partition(_LINE_MARK)
    if mark and data != seal_metadata(text):
        raise BrokenSealError
    return text


def seal_properties(text: bytes) -> bytes:
    """Seal a `meta.properties`."""
    return _COMMENT_MARK + _hex(text) + b"\n" + text


def unseal_properties(data: bytes) -> bytes:
    """Return a `meta.properties` without its seal; raises BrokenSealError."""
    if not data.startswith(_COMMENT_MARK):
        return data
    text = data.partition(b"\n")[2]
    if data != seal_properties(text):
        raise BrokenSealError
    return text


def _hex(text: bytes) -> bytes:
    return f"{crc32c.crc32c(text):08x}".encode()
