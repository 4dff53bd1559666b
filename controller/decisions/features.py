"""UpdateFeatures: changes the finalized feature levels of the cluster (KIP-584), all of a request or none.

Every registered broker and every registered controller must support the new level, and every static voter must be
registered, since it may be of an older release. A lower level needs an explicit downgrade. kraft.version is no record
of the metadata: the quorum's log has it (KIP-853).
eligible.leader.replicas.version needs the same min.insync.replicas on all brokers (configs.py, rule 5): its upgrade
writes that too.

Source: FeatureControlManager, QuorumFeatures, ConfigurationControlManager.updateFeatures (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from barnabas.broker.metadata.features import DEPENDENCIES, SUPPORTED_FEATURES
from barnabas.controller.decision import Decision, Failure, View, check_item_count
from barnabas.controller.decisions.configs import elr_safety_records
from barnabas.controller.image import ELR_VERSION, METADATA_VERSION
from barnabas.controller.raft.raft_config import KRAFT_VERSIONS
from barnabas.controller.raft.voter_set import KRAFT_VERSION_FEATURE
from barnabas.protocol.errors import ApiError, ErrorCode, message_that_fits
from barnabas.protocol.messages import k57_update_features as wire
from barnabas.protocol.metadata_records import FeatureLevelRecord, MetadataRecord, NoOpRecord

log = logging.getLogger("barnabas.controller.features")

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

#: The levels of metadata.version with other records than the level below; a downgrade across one is refused.
_CHANGES_METADATA: Final = (7, 8, 11, 13, 14, 15, 17, 23, 30)


class KRaftVersionAccess(Protocol):
    """The kraft.version, which is in the control records of the log (Kafka's KRaftVersionAccessor)."""

    @property
    def level(self) -> int:
        """The level."""

    def upgrade(self, level: int, *, validate_only: bool) -> None:
        """Append the records of a higher level; raises ApiError."""


def update_features(
    view: View,
    request: wire.UpdateFeaturesRequest,
    kraft: KRaftVersionAccess | None = None,
) -> Decision[wire.UpdateFeaturesResponse]:
    """Set the requested levels, unless one is invalid; with validate_only write nothing.

    `kraft`: None for a controller that is alone, which has no kraft.version.
    """
    check_item_count(len(request.feature_updates))
    proposed = {**view.image.features, **{u.feature: u.max_version_level for u in request.feature_updates}}
    for update in request.feature_updates:
        message = _reason_against(view, update, kraft, proposed)
        if message is not None:
            return Decision([], _failed(Failure(ErrorCode.INVALID_UPDATE_VERSION, message)))
    needs_elr_safety = any(u.feature == ELR_VERSION and u.max_version_level > 0 for u in request.feature_updates)
    safety = elr_safety_records(view) if needs_elr_safety and not request.validate_only else []
    for record in safety:
        who = f"broker {record.resource_name}" if record.resource_name else "all brokers"
        log.warning("Enabling %s: %s of %s becomes %s", ELR_VERSION, record.name, who, record.value or "that of all")
    records: list[MetadataRecord] = list(safety)
    records += [
        FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
        for update in request.feature_updates
        if update.feature != KRAFT_VERSION_FEATURE
    ]
    # Why the last one alone: each is checked against the level before the request.
    levels = [each.max_version_level for each in request.feature_updates if each.feature == KRAFT_VERSION_FEATURE]
    if levels and kraft is not None:
        try:  # Why at the end: nothing is refused after it
            kraft.upgrade(levels[-1], validate_only=request.validate_only)
        except ApiError as error:
            return Decision([], _failed(Failure(error.code, str(error))))
        records.append(NoOpRecord())  # Why: the response waits until it is committed, and so is what is before it
    results = [
        wire.UpdatableFeatureResult(feature=update.feature, error_code=0, error_message=None)
        for update in request.feature_updates
    ]
    response = wire.UpdateFeaturesResponse(error_code=0, error_message=None, results=results)
    return Decision([] if request.validate_only else records, response)


def _reason_against(
    view: View,
    update: wire.FeatureUpdateKey,
    kraft: KRaftVersionAccess | None,
    proposed: Mapping[str, int],
) -> str | None:
    """Return why an update is invalid, None if it is valid; `proposed` are all levels after the request."""
    feature, level, current = update.feature, update.max_version_level, view.image.features.get(update.feature, 0)
    is_kraft = feature == KRAFT_VERSION_FEATURE and kraft is not None
    if kraft is not None and is_kraft:
        current = kraft.level
    kind = update.upgrade_type  # UPGRADE in v0, whose allow_downgrade Kafka's controller ignores too
    reason = _reason_against_kind(kind, level, current, _reason_not_supported(view, feature, level, is_kraft=is_kraft))
    if reason is None and feature == METADATA_VERSION:
        return _reason_against_downgrade(current, level, kind)
    if reason is None and is_kraft:
        reason = "Can't downgrade the version of this feature." if level < current else None
    elif reason is None:
        reason = _reason_of_dependencies(feature, level, proposed)
    return None if reason is None else f"Invalid update version {level} for feature {feature}. {reason}"


def _reason_against_kind(kind: int, level: int, current: int, not_supported: str | None) -> str | None:
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if not_supported is not None:
        return not_supported
    if level < current and kind == UPGRADE:
        return "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "\
            "downgrade."  # fmt: skip
    if level > current and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _reason_not_supported(view: View, feature: str, level: int, *, is_kraft: bool) -> str | None:
    nodes = _controllers(view) if is_kraft else _supporters(view, feature)
    for node, (low, high) in nodes:
        if not low <= level <= high:
            if high == 0:
                return f"{node} does not support this feature."
            return f"{node} only supports versions {low if low == high else f'{low}-{high}'}"
    known = {int(view.config.node_id), *view.image.controllers}
    for voter in view.config.controller_voters() if view.image.can_register_controllers else ():
        if voter not in known:
            return f"controller {voter} has not registered, and may not support this feature"
    return None


def _reason_of_dependencies(feature: str, level: int, proposed: Mapping[str, int]) -> str | None:
    if feature not in SUPPORTED_FEATURES:
        return f"Feature {feature} not found."
    for other, least in DEPENDENCIES.get(feature, {}).items() if level > 0 else ():
        if proposed.get(other, 0) < least:
            return f"{feature} could not be set to {level} because it depends on {other} level {least}"
    return None


def _reason_against_downgrade(current: int, level: int, kind: int) -> str | None:
    """Return why metadata.version cannot be lowered: a level in between changed the records."""
    if not any(level < changed <= current for changed in _CHANGES_METADATA):
        return None
    if kind == UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    else:
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
    return f"Unsupported metadata.version downgrade from {current} to {level}. {reason}"


def _controllers(view: View) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield (node, (least, greatest kraft.version)). Why no brokers: they do not read the metadata log."""
    yield f"Local controller {view.config.node_id}", KRAFT_VERSIONS
    for node in view.image.controllers.values():
        ranges = {name: (low, high) for name, low, high in node.features}
        yield f"Controller {node.id}", ranges.get(KRAFT_VERSION_FEATURE, (0, 0))


def _supporters(view: View, feature: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield (node, (least, greatest level)) for every node that must support a feature."""
    yield f"Local controller {view.config.node_id}", SUPPORTED_FEATURES.get(feature, (0, 0))
    for role, nodes in (("Broker", view.image.brokers), ("Controller", view.image.controllers)):
        for node in nodes.values():
            ranges = {name: (low, high) for name, low, high in node.features}
            yield f"{role} {node.id}", ranges.get(feature, (0, 0))


def _failed(failure: Failure) -> wire.UpdateFeaturesResponse:
    return wire.UpdateFeaturesResponse(
        error_code=failure.code,
        error_message=message_that_fits(
            f"The update failed for all features since the following feature had an error: {failure.text}"
        ),
        results=[],
    )
