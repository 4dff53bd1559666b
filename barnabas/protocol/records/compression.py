"""The four compressions of record batches, as the Java client frames them.

Format
- gzip: one RFC 1952 member (or several).
- snappy: what the Java client's stream writes: a 16 byte header (`82 53 4e 41 50 50 59 00`, version 1, compatible 1,
  both int32) and then blocks, each an int32 length and raw snappy of at most 32 KiB; raw snappy without the frame is
  read too.
- lz4: the lz4 frame format with independent blocks (the Java client refuses linked ones).
- zstd: zstd frames.

`decompress` never produces more than `size_max` bytes: a decompression bomb is an error like any other malformed input.
`cramjam` does the work in native code without holding the GIL. It is imported on first use: a broker that never reads a
compressed batch does not need it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

from barnabas.protocol.errors import MalformedMessageError

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_SIZE_MAX = 1 << 30
"""The bound for readers of a log. A leader appends nothing larger (`barnabas.record.decompressed.max.bytes`)."""

_FIRST_GUESS_MIN = 64 * 1024
_GUESS_FACTOR = 8
_LARGE_GUESS = 64 << 20  # from here on a guess that is eight times too large would cost more than another try
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
_INT32 = struct.Struct(">i")


class DecompressedTooLargeError(MalformedMessageError):
    """The records decompress to more bytes than allowed; they may be valid, or a decompression bomb."""


class CompressionType(IntEnum):
    """Ids as in the low three attribute bits of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DEFAULT_LEVELS = {CompressionType.GZIP: 6, CompressionType.LZ4: 9, CompressionType.ZSTD: 3}
"""The levels used if none is given: Kafka's defaults (gzip's -1 means 6)."""


def compress(kind: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """Compress a batch's records; `level` is ignored if the codec has none."""
    import cramjam

    if kind is CompressionType.NONE:
        return bytes(data)
    if kind is CompressionType.SNAPPY:
        return _compress_xerial(data)
    chosen = DEFAULT_LEVELS[kind] if level is None else level
    if kind is CompressionType.GZIP:
        return bytes(cramjam.gzip.compress(data, DEFAULT_LEVELS[kind] if chosen == -1 else chosen))
    if kind is CompressionType.ZSTD:
        return bytes(cramjam.zstd.compress(data, chosen))
    compressor = cramjam.lz4.Compressor(chosen, False, False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def decompress(kind: CompressionType, data: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> Buffer:
    """Undo `compress`.

    Raises MalformedMessageError for damaged data; DecompressedTooLargeError, a kind of it, for more than `size_max`
    bytes of output.
    """
    import cramjam

    if kind is CompressionType.NONE:
        return data
    if kind is CompressionType.SNAPPY:
        return _decompress_snappy(memoryview(data), size_max)
    codec = {CompressionType.GZIP: cramjam.gzip, CompressionType.LZ4: cramjam.lz4, CompressionType.ZSTD: cramjam.zstd}
    return _decompress_bounded(codec[kind].decompress_into, data, size_max)


def _decompress_bounded(decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, size_max: int) -> Buffer:
    """Decompress into a buffer of guessed size; if it overflows, into larger ones of up to `size_max`."""
    import cramjam

    size = min(max(_FIRST_GUESS_MIN, len(data) * _GUESS_FACTOR), size_max)
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
            return memoryview(output)[:written]
        except cramjam.DecompressionError as error:
            # Why: the library has one error class; all three codecs give this text for a full output buffer.
            if "whole buffer" not in str(error):
                raise MalformedMessageError(f"cannot decompress records: {error}") from None
            if size >= size_max:
                raise _too_large(size_max) from None
        size = min(size * (_GUESS_FACTOR if size < _LARGE_GUESS else 2), size_max)


def _too_large(size_max: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(f"records decompress to more than {size_max} bytes")


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, size_max: int) -> Buffer:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_block(data, size_max, size_max)
    position = len(_XERIAL_HEADER)
    left = size_max
    blocks: list[Buffer] = []
    while position < len(data):
        if position + 4 > len(data):
            raise MalformedMessageError("snappy: a block length is cut short")
        (length,) = _INT32.unpack_from(data, position)
        position += 4
        if length < 0 or length > len(data) - position:
            raise MalformedMessageError(f"snappy: a block of {length} bytes does not fit")
        block = _decompress_block(data[position : position + length], left, size_max)
        left -= len(block)
        blocks.append(block)
        position += length
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _decompress_block(data: memoryview, left: int, size_max: int) -> Buffer:
    """Decompress raw snappy, which begins with its size; `left` of `size_max` bytes are still allowed."""
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > left:
            raise _too_large(size_max)
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(data, output)
    except cramjam.DecompressionError as error:
        raise MalformedMessageError(f"cannot decompress records: {error}") from None
    return memoryview(output)[:written]
