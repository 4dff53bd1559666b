"""Features: what this software can do, and what the cluster has agreed on (KIP-584).

Threads: values; whoever holds them replaces them whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

UNKNOWN_EPOCH: Final = -1

#: Feature name -> (least, greatest level) of this software, whatever the cluster has agreed on.
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "group.version": (0, 1),
    "metadata.version": (7, 30),  # 4.3-IV0
    "transaction.version": (0, 2),
}


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The levels that the cluster has agreed on, as of a metadata offset."""

    levels: Mapping[str, int] = field(default_factory=dict)
    epoch: int = UNKNOWN_EPOCH
