"""Maps a group id or a transactional id to the partition of the internal topic that coordinates it.

Source: Kafka's GroupCoordinatorService.partitionFor, TransactionStateManager.partitionFor, Utils.abs (4.3).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

HASHES_CACHED: Final = 4096


@lru_cache(maxsize=HASHES_CACHED)
def java_hash(text: str) -> int:
    """Compute Java's String.hashCode(): over UTF-16 units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (value * 31 + units[index] * 256 + units[index + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(coordinated_id: str, partition_count: int) -> int:
    """Return the partition for an id: abs(hash) % count, where abs of the smallest int is 0, as in Kafka."""
    value = java_hash(coordinated_id)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
