"""The metrics that a client pushed, decompressed within bounds."""

from __future__ import annotations

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.compression import Buffer, CompressionType, decompress


class PayloadError(Exception):
    """The payload of a push cannot be read."""


def decompressed(compression: CompressionType, data: Buffer, bytes_max: int) -> bytes:
    """Return the payload, at most `bytes_max` bytes; raises PayloadError for more, and for damaged data."""
    try:
        return bytes(decompress(compression, data, bytes_max))
    except MalformedMessageError as error:
        raise PayloadError(str(error)) from None
