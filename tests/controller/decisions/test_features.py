"""UpdateFeatures: valid and invalid levels."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decisions.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, update_features
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k57_update_features as wire
from tests.controller.rig import Rig

TRANSACTIONS = "transaction.version"


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.join(0, 1)
    return rig


def update(rig: Rig, *levels: tuple[str, int, int], version: int = 2, **fields: Any) -> wire.UpdateFeaturesResponse:
    request = wire.UpdateFeaturesRequest(
        feature_updates=[
            wire.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in levels
        ],
        **fields,
    )
    return rig.decide(lambda view: update_features(view, request, version))


def test_levels_rise_and_an_explicit_downgrade_lowers_them(rig: Rig) -> None:
    assert not update(rig, (TRANSACTIONS, 0, SAFE_DOWNGRADE)).error_code
    assert TRANSACTIONS not in rig.image.features
    response = update(rig, (TRANSACTIONS, 2, UPGRADE))
    assert [(r.feature, r.error_code) for r in response.results] == [(TRANSACTIONS, 0)]
    assert rig.image.features[TRANSACTIONS] == 2


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        (TRANSACTIONS, 1, UPGRADE, "without setting the upgrade type"),
        (TRANSACTIONS, 3, UPGRADE, "The controller does not support this version: it supports versions 0-2"),
        (TRANSACTIONS, -1, UPGRADE, "less than 0"),
        (TRANSACTIONS, 1, 9, "given upgrade type"),
        ("metadata.version", 20, UNSAFE_DOWNGRADE, "might delete metadata"),
        ("no.such.version", 1, UPGRADE, "only the disabled level 0"),
    ],
)
def test_invalid_levels(rig: Rig, name: str, level: int, kind: int, reason: str) -> None:
    before = rig.image.features
    response = update(rig, ("group.version", 1, UPGRADE), (name, level, kind))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert reason in response.error_message
    assert rig.image.features == before  # all or nothing


def test_a_lower_level_is_not_newer(rig: Rig) -> None:
    update(rig, (TRANSACTIONS, 0, SAFE_DOWNGRADE))
    assert "newer" in update(rig, (TRANSACTIONS, 1, SAFE_DOWNGRADE)).error_message


def test_version_0_requests_a_downgrade_by_a_flag(rig: Rig) -> None:
    assert update(rig, (TRANSACTIONS, 1, UPGRADE), version=0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    request = wire.UpdateFeaturesRequest(
        feature_updates=[wire.FeatureUpdateKey(feature=TRANSACTIONS, max_version_level=1, allow_downgrade=True)]
    )
    assert not rig.decide(lambda view: update_features(view, request, 0)).error_code
    assert rig.image.features[TRANSACTIONS] == 1


def test_validate_only_changes_nothing(rig: Rig) -> None:
    assert not update(rig, (TRANSACTIONS, 0, SAFE_DOWNGRADE), validate_only=True).error_code
    assert rig.image.features[TRANSACTIONS] == 2
