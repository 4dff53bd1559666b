"""ApiVersions: v0-v4

Behaviour, errors: as on a broker (broker/apis/k18_api_versions.py), with the controller's own table. The finalized
features are those of the committed metadata.
"""

from __future__ import annotations

from barnabas.broker.apis.k18_api_versions import make_api
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.controller.apis.services import ControllerServices


def finalized_features(services: ControllerServices) -> FinalizedFeatures:
    """Return the features of the committed metadata."""
    image = services.controller.committed_image
    return FinalizedFeatures(image.features, image.offset)


API = make_api(finalized_features)
