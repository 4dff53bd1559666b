"""UpdateFeatures: changes the finalized feature levels of the cluster (KIP-584), all of a request or none.

Every registered broker and this controller must support the new level. A lower level needs an explicit downgrade.

Source: FeatureControlManager (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.metadata.features import SUPPORTED_FEATURES
from barnabas.controller.decision import Decision, Failure, View, check_item_count
from barnabas.controller.image import METADATA_VERSION, Image
from barnabas.protocol.errors import ErrorCode, message_that_fits
from barnabas.protocol.messages import k57_update_features as wire
from barnabas.protocol.metadata_records import FeatureLevelRecord, MetadataRecord

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(
    view: View, request: wire.UpdateFeaturesRequest, version: int
) -> Decision[wire.UpdateFeaturesResponse]:
    """Set the requested levels, unless one is invalid; with validate_only write nothing."""
    check_item_count(len(request.feature_updates))
    for update in request.feature_updates:
        failure = _reason_against(view.image, update, version)
        if failure is not None:
            message = f"Invalid update version {update.max_version_level} for feature {update.feature}. {failure}"
            return Decision([], _failed(Failure(ErrorCode.INVALID_UPDATE_VERSION, message)))
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
        for update in request.feature_updates
    ]
    results = [
        wire.UpdatableFeatureResult(feature=update.feature, error_code=0, error_message=None)
        for update in request.feature_updates
    ]
    response = wire.UpdateFeaturesResponse(error_code=0, error_message=None, results=results)
    return Decision([] if request.validate_only else records, response)


def _reason_against(image: Image, update: wire.FeatureUpdateKey, version: int) -> str | None:
    level, current = update.max_version_level, image.features.get(update.feature, 0)
    kind = update.upgrade_type
    if version == 0:
        kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    for node, (low, high) in _supporters(image, update.feature):
        if not low <= level <= high:
            supported = f"versions {low}-{high}" if high else "only the disabled level 0"
            return f"{node} does not support this version: it supports {supported}."
    if level < current and kind == UPGRADE:
        return "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "\
            "downgrade."  # fmt: skip
    if level > current and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    if update.feature == METADATA_VERSION and level < current:
        return "Refusing to perform the requested downgrade because it might delete metadata information."
    return None


def _supporters(image: Image, feature: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield (node, (least, greatest level)) for every node that must support a feature."""
    yield "The controller", SUPPORTED_FEATURES.get(feature, (0, 0))
    for broker in image.brokers.values():
        ranges = {name: (low, high) for name, low, high in broker.features}
        yield f"Broker {broker.id}", ranges.get(feature, (0, 0))


def _failed(failure: Failure) -> wire.UpdateFeaturesResponse:
    return wire.UpdateFeaturesResponse(
        error_code=failure.code,
        error_message=message_that_fits(
            f"The update failed for all features since the following feature had an error: {failure.text}"
        ),
        results=[],
    )
