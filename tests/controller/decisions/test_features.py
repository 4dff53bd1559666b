"""UpdateFeatures: valid and invalid levels."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decision import Decision
from barnabas.controller.decisions.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, update_features
from barnabas.controller.image import BROKER_RESOURCE
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k57_update_features as wire
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    ControllerFeature,
    FeatureLevelRecord,
    RegisterControllerRecord,
)
from tests.controller.rig import Rig

TRANSACTIONS = "transaction.version"


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.join(0, 1)
    return rig


def update(rig: Rig, *levels: tuple[str, int, int], **fields: Any) -> wire.UpdateFeaturesResponse:
    request = wire.UpdateFeaturesRequest(
        feature_updates=[
            wire.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in levels
        ],
        **fields,
    )
    return rig.decide(lambda view: update_features(view, request))


def test_levels_rise_and_an_explicit_downgrade_lowers_them(rig: Rig) -> None:
    assert not update(rig, (TRANSACTIONS, 0, SAFE_DOWNGRADE)).error_code
    assert TRANSACTIONS not in rig.image.features
    response = update(rig, (TRANSACTIONS, 2, UPGRADE))
    assert [(r.feature, r.error_code) for r in response.results] == [(TRANSACTIONS, 0)]
    assert rig.image.features[TRANSACTIONS] == 2


def test_a_static_voter_that_has_not_registered_may_be_of_an_older_release() -> None:
    rig = Rig(controller_quorum_voters="100@a:1,101@b:1", controller_quorum_bootstrap_servers="")
    message = update(rig, (TRANSACTIONS, 0, SAFE_DOWNGRADE)).error_message or ""
    assert message.endswith("controller 101 has not registered, and may not support this feature")
    registered = RegisterControllerRecord(
        controller_id=101,
        incarnation_id=b"i" * 16,
        end_points=[],
        features=[ControllerFeature(name=TRANSACTIONS, min_supported_version=0, max_supported_version=2)],
    )
    rig.decide(lambda _view: Decision([registered], None))
    assert not update(rig, (TRANSACTIONS, 0, SAFE_DOWNGRADE)).error_code


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        (TRANSACTIONS, 1, UPGRADE, "without setting the upgrade type"),
        (TRANSACTIONS, 3, UPGRADE, "Local controller 100 only supports versions 0-2"),
        (TRANSACTIONS, -1, UPGRADE, "less than 0"),
        (TRANSACTIONS, 1, 9, "given upgrade type"),
        ("metadata.version", 20, SAFE_DOWNGRADE, "Unsupported metadata.version downgrade from 30 to 20. Refusing"),
        ("metadata.version", 20, UNSAFE_DOWNGRADE, "Unsafe metadata downgrade is not supported"),
        ("no.such.version", 0, UPGRADE, "Feature no.such.version not found."),
        ("no.such.version", 1, UPGRADE, "Local controller 100 does not support this feature."),
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


def test_version_0_lowers_no_level(rig: Rig) -> None:
    sent = wire.UpdateFeaturesRequest(
        feature_updates=[wire.FeatureUpdateKey(feature=TRANSACTIONS, max_version_level=1, allow_downgrade=True)]
    )
    request = wire.UpdateFeaturesRequest.decode(sent.encode(0), 0)
    response = rig.decide(lambda view: update_features(view, request))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert rig.image.features[TRANSACTIONS] == 2


def test_validate_only_changes_nothing(rig: Rig) -> None:
    assert not update(rig, (TRANSACTIONS, 0, SAFE_DOWNGRADE), validate_only=True).error_code
    assert rig.image.features[TRANSACTIONS] == 2


class Kraft:
    """A quorum's kraft.version."""

    def __init__(self) -> None:
        self.level = 0
        self.asked: list[int] = []

    def upgrade(self, level: int, *, validate_only: bool) -> None:
        """Note the level; a lower one is refused."""
        self.asked.append(level)
        if level < self.level:
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)
        self.level = self.level if validate_only else level


def test_of_two_levels_of_kraft_version_the_last_one_counts(rig: Rig) -> None:
    """Otherwise the first one is written, and the request fails as a whole because of the second."""
    kraft = Kraft()
    updates = [
        wire.FeatureUpdateKey(feature="kraft.version", max_version_level=n, upgrade_type=UPGRADE) for n in (1, 0)
    ]
    request = wire.UpdateFeaturesRequest(feature_updates=updates)
    response = rig.decide(lambda view: update_features(view, request, kraft))
    assert (response.error_code, kraft.asked, kraft.level) == (0, [0], 0)


# -- eligible leader replicas

ELR, MIN_ISR = "eligible.leader.replicas.version", "min.insync.replicas"


def of_a_former_release(rig: Rig) -> None:
    """Make the cluster one whose first records did not enable the feature."""
    level = FeatureLevelRecord(name=ELR, feature_level=0)
    config = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=None)
    rig.decide(lambda _view: Decision([level, config], None))


def set_config(rig: Rig, name: str, value: str) -> None:
    record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_ISR, value=value)
    rig.decide(lambda _view: Decision([record], None))


def test_enabling_eligible_leader_replicas_makes_min_isr_one_for_all(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    of_a_former_release(rig)
    set_config(rig, "0", "2")
    assert not update(rig, (ELR, 1, UPGRADE), validate_only=True).error_code
    assert rig.image.resource_configs(BROKER_RESOURCE, "") == {}
    assert not caplog.messages
    assert not update(rig, (ELR, 1, UPGRADE)).error_code
    assert caplog.messages == [
        f"Enabling {ELR}: {MIN_ISR} of all brokers becomes 1",
        f"Enabling {ELR}: {MIN_ISR} of broker 0 becomes that of all",
    ]
    assert rig.image.has_elr
    assert rig.image.resource_configs(BROKER_RESOURCE, "") == {MIN_ISR: "1"}
    assert rig.image.resource_configs(BROKER_RESOURCE, "0") == {}
    set_config(rig, "", "2")
    assert not update(rig, (ELR, 1, UPGRADE)).error_code
    assert rig.image.resource_configs(BROKER_RESOURCE, "") == {MIN_ISR: "2"}, "the value that is there stays"
    assert not update(rig, (ELR, 0, SAFE_DOWNGRADE)).error_code
    assert not rig.image.has_elr


@pytest.mark.parametrize(("metadata_version", "error"), [(22, ErrorCode.INVALID_UPDATE_VERSION), (23, ErrorCode.NONE)])
def test_a_level_depends_on_another_features_level(rig: Rig, metadata_version: int, error: ErrorCode) -> None:
    of_a_former_release(rig)
    old = FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)
    rig.decide(lambda _view: Decision([old], None))
    response = update(rig, (ELR, 1, UPGRADE))
    assert response.error_code == error
    if error:
        assert response.error_message.endswith(
            f"Invalid update version 1 for feature {ELR}. {ELR} could not be set to 1 because it depends on "
            "metadata.version level 23"
        )
        assert not update(rig, (ELR, 1, UPGRADE), ("metadata.version", 23, UPGRADE)).error_code


@pytest.mark.parametrize(("current", "level", "is_possible"), [(29, 23, True), (29, 22, False), (22, 17, True)])
def test_metadata_version_goes_down_as_far_as_the_records_are_the_same(
    rig: Rig, current: int, level: int, is_possible: bool
) -> None:
    old = FeatureLevelRecord(name="metadata.version", feature_level=current)
    rig.decide(lambda _view: Decision([old], None))
    response = update(rig, ("metadata.version", level, SAFE_DOWNGRADE))
    assert response.error_code == (ErrorCode.NONE if is_possible else ErrorCode.INVALID_UPDATE_VERSION)
    assert rig.image.features["metadata.version"] == (level if is_possible else current)
