"""The tables of API versions and features by release (protocol/data/releases.py)."""

from __future__ import annotations

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from barnabas.broker.apis.table import TABLE
from barnabas.broker.metadata.features import LISTED_FEATURES
from barnabas.protocol.api_keys import ROWS, ApiKey, supported_versions
from barnabas.protocol.data.releases import (
    ALIASES,
    FEATURES,
    FINALIZED,
    MAXIMA,
    RELEASES,
    finalized_level,
    has_removed_versions,
    highest_level,
    highest_version,
    release_of,
)


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
    listed = {release: {f for f in LISTED_FEATURES if highest_level(f, release)} for release in RELEASES}
    assert listed["2.8"] == set()
    assert listed["3.9"] == {"metadata.version", "kraft.version"}
    assert listed["4.2"] == set(LISTED_FEATURES)
    assert [highest_level("metadata.version", release) for release in ("3.2", "3.3", "3.9", "4.2")] == [None, 7, 21, 29]


def test_a_new_cluster_has_no_higher_level_than_its_release_supports() -> None:
    assert FINALIZED.keys() <= FEATURES.keys()
    for feature in FEATURES:
        for release in RELEASES:
            level, highest = finalized_level(feature, release), highest_level(feature, release)
            assert (level is None) == (highest is None)
            assert (level or 0) <= (highest or 0)


def test_names_of_releases() -> None:
    assert [release_of(name) for name in ("0.10", "0.10.0", "2.8")] == ["0.10.2", "0.10.0", "2.8"]
    assert set(ALIASES.values()) <= set(RELEASES)
    assert [has_removed_versions(release) for release in ("0.10.0", "3.9", "4.0")] == [True, True, False]


def test_the_rows_are_those_of_a_clients_own_table() -> None:
    """kafka-python copied them from brokers. It has old releases of ZooKeeper's; KRaft's list more, or fewer."""
    for release in (
        "0.10.0",
        "0.10.1",
        "0.10.2",
        "0.11",
        "1.0",
        "1.1",
        "2.0",
        "2.1",
        "2.2",
        "2.3",
        "2.4",
        "2.5",
        "2.6",
        "2.7",
        "2.8",
    ):
        theirs = BROKER_API_VERSIONS[tuple(map(int, release.split(".")))]
        ours = {int(key): highest_version(key, release) for key in MAXIMA}
        assert {key: high for key, high in ours.items() if high is not None} == {
            key: high for key, (_, high) in theirs.items() if key in MAXIMA and ours[key] is not None
        }
