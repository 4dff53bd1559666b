"""The API table of a broker that answers clients as an older release of Apache Kafka (`barnabas.compat.release`).

Rules
1. Clients see the release's APIs, versions and features, also while they log in. Nodes, on their own listener, see the
   whole table.
2. A request of a later version closes its connection, as it did then; an unknown version of ApiVersions is answered.
3. A release before 4.0 has the versions that 4.0 removed, too (KIP-896): `removed/` carries them out. Nodes have none.
4. Only versions and features are the release's. What a served version does is what it does in 4.3.

Without the setting, nothing here is in the path of a request. Threads: the rows run on handlers; no state.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from barnabas.broker.apis import k18_api_versions
from barnabas.broker.metadata.features import LISTED_FEATURES, UNKNOWN_EPOCH, FinalizedFeatures
from barnabas.broker.requests.answers import Close
from barnabas.protocol.data.releases import (
    finalized_level,
    has_removed_versions,
    highest_level,
    highest_version,
    release_of,
)

if TYPE_CHECKING:
    from barnabas.broker.requests.api import Api, Table
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request


def table_of_release(table: Table, release: str) -> Table:
    """Return the rows with which a broker answers as a release; for an empty release the table itself."""
    if not release:
        return table
    release = release_of(release)
    served = dict(table)
    if has_removed_versions(release):
        from barnabas.broker.wiring.removed.rows import with_removed_versions  # Why here: few brokers need it

        served = {key: with_removed_versions(api) for key, api in table.items()}
    listed = _listed(served, release)
    rows = {key: _row(api, listed.get(key), release) for key, api in served.items()}
    rows[k18_api_versions.KEY] = _api_versions(table[k18_api_versions.KEY], listed, release)
    return rows


def _listed(table: Table, release: str) -> dict[int, Api]:
    """Return what clients may use, with its versions."""
    found = {}
    for key, api in table.items():
        low, high = api.versions
        highest = highest_version(key, release)
        if api.advertised and highest is not None and highest >= low:
            found[key] = dataclasses.replace(api, versions=(low, min(high, highest)))
    return found


def _row(api: Api, listed: Api | None, release: str) -> Api:
    """Return the row that refuses to clients what is not listed (rule 2)."""
    highest = listed.versions[1] if listed is not None else -1
    if highest == api.versions[1]:
        return api

    def handle(services: Any, request: Request) -> Answer:
        version = request.header.api_version
        if version > highest and request.context.is_for_clients:
            return Close(f"Kafka {release} has no {api.name} v{version} (barnabas.compat.release)")
        return api.handle(services, request)

    return dataclasses.replace(api, handle=handle)


def _api_versions(api: Api, listed: Table, release: str) -> Api:
    supported = {
        name: (low, min(high, level))
        for name, (low, high) in LISTED_FEATURES.items()
        if (level := highest_level(name, release)) is not None
    }

    def handle(services: Any, request: Request) -> Answer:
        if not request.context.is_for_clients:
            return api.handle(services, request)
        finalized = _finalized(services.metadata_cache.finalized_features, release)
        return k18_api_versions.answer(request, listed, finalized, supported)

    return dataclasses.replace(api, handle=handle)


def _finalized(features: FinalizedFeatures, release: str) -> FinalizedFeatures:
    """Return the levels that a new cluster of the release has, as far as this one has them."""
    levels = {
        name: min(level, highest)
        for name, level in features.levels.items()
        if (highest := finalized_level(name, release))
    }
    return FinalizedFeatures(levels, features.epoch if levels else UNKNOWN_EPOCH)
