"""ApiVersions: v0-v4

Behaviour, errors: as on a broker (broker/apis/k18_api_versions.py), with the controller's own table. The finalized
features are those of the committed metadata. A member of a quorum supports kraft.version 0 and 1; level 1 is finalized
if the quorum has it.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.apis.k18_api_versions import make_api
from barnabas.broker.metadata.features import LISTED_FEATURES, SUPPORTED_FEATURES, FinalizedFeatures
from barnabas.controller.apis.services import ControllerServices
from barnabas.controller.raft.voter_set import KRAFT_VERSION_FEATURE


def finalized_features(services: ControllerServices) -> FinalizedFeatures:
    """Return the features of the committed metadata."""
    image = services.controller.committed_image
    levels = image.features
    if services.raft is not None and services.raft.kraft_version > 0:
        levels = {**levels, KRAFT_VERSION_FEATURE: services.raft.kraft_version}
    return FinalizedFeatures(levels, image.offset)


def supported_features(services: ControllerServices) -> Mapping[str, tuple[int, int]]:
    """Return the features that this controller supports."""
    return SUPPORTED_FEATURES if services.raft is None else LISTED_FEATURES


API = make_api(finalized_features, supported_features)
