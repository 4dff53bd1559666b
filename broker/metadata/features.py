"""Features: the levels that this software supports, and the finalized levels of the cluster (KIP-584).

Threads: values; their holders replace them whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

UNKNOWN_EPOCH: Final = -1
VERSION_4_3_IV0: Final = 30  # the first metadata.version with cordoned log directories (KIP-1066)

#: Feature name -> (least, greatest level) that this software supports.
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "metadata.version": (7, 30),  # 4.3-IV0
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}

#: What ApiVersions lists. kraft.version is no record of the metadata: the controllers' log has it (KIP-853).
LISTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {**SUPPORTED_FEATURES, "kraft.version": (0, 1)}

#: Feature name -> the levels of other features that its levels from 1 on need.
DEPENDENCIES: Final[Mapping[str, Mapping[str, int]]] = {
    "eligible.leader.replicas.version": {"metadata.version": 23},  # 4.0-IV1
}


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The finalized levels of the cluster, as of a metadata offset (`epoch`)."""

    levels: Mapping[str, int] = field(default_factory=dict)
    epoch: int = UNKNOWN_EPOCH
