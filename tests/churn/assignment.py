"""Parses the assignment of a consumer, as its group's leader encoded it.

Format (all versions begin like version 0): int16 version, array of (string topic, array of int32 partitions).
"""

from __future__ import annotations

import struct


def assigned_partitions(assignment: bytes, topic: str) -> list[int]:
    """The assigned partitions of a topic; none for an empty assignment."""
    if not assignment:
        return []
    found: list[int] = []
    (topics,) = struct.unpack_from(">i", assignment, 2)
    position = 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", assignment, position)
        name = assignment[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (count,) = struct.unpack_from(">i", assignment, position)
        numbers = struct.unpack_from(f">{count}i", assignment, position + 4)
        position += 4 + 4 * count
        if name == topic:
            found += numbers
    return found
