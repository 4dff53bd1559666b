"""ApiVersions: v0-v4

Behaviour, errors: as a broker's (broker/apis/k18_api_versions.py), over the controller's own table; the finalized
features are those of the committed metadata.
"""

from __future__ import annotations

from barnabas.broker.apis.api import Table
from barnabas.broker.apis.k18_api_versions import make_api
from barnabas.broker.features import FinalizedFeatures
from barnabas.controller.apis.services import ControllerServices


def _table() -> Table:
    from barnabas.controller.apis.table import TABLE  # Why here: the table imports this module.

    return TABLE


def finalized_features(services: ControllerServices) -> FinalizedFeatures:
    """What the cluster has agreed on, as of the last commit."""
    image = services.controller.committed_image
    return FinalizedFeatures(image.features, image.offset)


API = make_api(_table, finalized_features)
