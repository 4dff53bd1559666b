"""Features: the levels that this software supports, and the finalized levels of the cluster (KIP-584).

Threads: values; their holders replace them whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

UNKNOWN_EPOCH: Final = -1

#: Feature name -> (least, greatest level) that this software supports.
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "group.version": (0, 1),
    "metadata.version": (7, 30),  # 4.3-IV0
    "transaction.version": (0, 2),
}


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The finalized levels of the cluster, as of a metadata offset (`epoch`)."""

    levels: Mapping[str, int] = field(default_factory=dict)
    epoch: int = UNKNOWN_EPOCH
