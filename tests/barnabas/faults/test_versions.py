"""The table of API versions by release."""

from __future__ import annotations

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.metadata.features import SUPPORTED_FEATURES
from barnabas.faults.versions import MAXIMA, RELEASES, highest_version, release_has_feature
from barnabas.protocol.api_keys import ROWS, ApiKey, supported_versions


def test_every_api_that_is_listed_has_its_row() -> None:
    assert MAXIMA.keys() == {key for key, api in TABLE.items() if api.advertised}


@pytest.mark.parametrize("key", MAXIMA, ids=lambda key: ROWS[key].name)
def test_versions_only_grow(key: int) -> None:
    versions = [highest_version(key, release) for release in RELEASES]
    known = [version for version in versions if version is not None]
    assert known == sorted(known)
    assert versions == [None] * (len(versions) - len(known)) + known, "an API that is there stays"
    assert known[-1] <= supported_versions(key)[1]


def test_versions_of_some_releases() -> None:
    # librdkafka's and kafka-python's tables of brokers have the same.
    assert [highest_version(ApiKey.PRODUCE, release) for release in ("2.0", "2.3", "2.4", "2.8", "3.9")] == [
        6,
        7,
        8,
        9,
        11,
    ]
    assert [highest_version(ApiKey.FETCH, release) for release in ("2.0", "2.8", "3.1", "3.5")] == [8, 12, 13, 15]
    assert highest_version(ApiKey.CONSUMER_GROUP_HEARTBEAT, "3.6") is None
    assert highest_version(ApiKey.DESCRIBE_CLUSTER, "2.7") is None


def test_features_come_with_their_releases() -> None:
    listed = {release: {f for f in SUPPORTED_FEATURES if release_has_feature(release, f)} for release in RELEASES}
    assert listed["2.8"] == set()
    assert listed["3.9"] == {"metadata.version"}
    assert listed["4.2"] == set(SUPPORTED_FEATURES)
