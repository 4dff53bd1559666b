"""Registrations: decides which brokers may join the cluster, and under which epoch; and notes the controllers.

Rules
1. One process per id: while a broker is heard of, fenced or not, no other incarnation gets its id. A broker that is
   shutting down frees it at once.
2. One broker per address: while a broker sends heartbeats, no other broker gets an address that it advertises.
   Otherwise a copied config file would direct the pushes for one broker to the other. A broker may take over the
   address of a silent, fenced broker. That one loses its registration, so nothing is pushed there for it. It may
   register again.
3. A broker that has applied metadata which this controller's log does not hold is refused. The log is then a wrong or
   old one, and its pushes would take the broker's topics away. The log must hold the applied offset *under the epoch*
   in which the broker applied it, since offsets alone grow past it. The same check applies to heartbeats: an old copy
   of the log may hold the registration of a broker that has applied more since.
4. A new process names the registration in which its logs were closed. If that is not the last one, the shutdown was
   unclean, and the broker leaves every ISR and every ELR (elections.py, rule 8), also an ELR from before the feature
   was disabled. A broker without a registration leaves the ELRs.
5. A registration is kept: in the log, in each snapshot, in pushes and in what clients see. So it has no more listeners
   and features than a node has, and no longer names. (Apache Kafka writes what the request has.)

Threads: none; pure.

Source: ClusterControlManager.registerBroker, registerController (Kafka 4.3), which has none of the rules 2, 3 and 5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from barnabas.common.ids import uuid_to_string
from barnabas.config.listeners import PROTOCOLS
from barnabas.controller.decision import Decision, View
from barnabas.controller.decisions.elections import (
    leader_and_isr_updates,
    partitions_with_elr_member,
    partitions_with_isr_member,
)
from barnabas.controller.image import METADATA_VERSION, RESERVED_DIRECTORIES, Broker, Controller, Endpoint, Image
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.k70_controller_registration import ControllerRegistrationRequest
from barnabas.protocol.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas.protocol.push_tags import Applied, applied_of

log = logging.getLogger("barnabas.controller.brokers")

LISTENERS_MAX: Final = 64
FEATURES_MAX: Final = 256
NAME_LENGTH_MAX: Final = 255  # of a listener, of a host and of a feature
RACK_BYTES_MAX: Final = (1 << 15) - 1  # what the older versions of Metadata can hold


class Known(NamedTuple):
    """Facts that are not in the image."""

    cluster_id: str
    keeps_id: Callable[[int], bool]  # the process with this id is heard of, fenced or not, and not about to leave
    uses_address: Callable[[int], bool]  # the broker with this id sends heartbeats and is not about to leave
    holds: Callable[[Applied], bool]  # whether the log holds what a broker has applied (rule 3)


class MissingMetadataError(ApiError):
    """This controller's log lacks metadata that a broker has applied (rule 3)."""


def register_broker(view: View, request: BrokerRegistrationRequest, known: Known) -> Decision[int]:
    """Register a broker; the response is its epoch.

    Raises ApiError:
        INCONSISTENT_CLUSTER_ID
        OFFSET_OUT_OF_RANGE             as MissingMetadataError
        DUPLICATE_BROKER_REGISTRATION   another process with that id, or at that address, is alive
        INVALID_REGISTRATION            bad log directories or tags, or beyond the bounds of rule 5
        UNSUPPORTED_VERSION             the broker does not support a finalized feature
    """
    image = view.image
    if request.cluster_id != known.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {known.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    _check_metadata(image, request, known)
    existing = image.brokers.get(request.broker_id)
    is_same = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not is_same and known.keeps_id(existing.id) and not existing.in_controlled_shutdown:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    _check_log_dirs(image, request)
    given = [(f.name, f.min_supported_version, f.max_supported_version) for f in request.features]
    _check_bounds(request.broker_id, request.listeners, given)
    if request.rack is not None and len(request.rack.encode()) > RACK_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "The rack is too long")
    features = _checked_features(image.features, given, "broker")
    records: list[MetadataRecord] = _take_addresses(view, request, known)
    if not is_same:
        records += _shutdown_records(view, request, existing)
    epoch = existing.epoch if existing is not None and is_same else view.next_offset + len(records)
    amended = existing if is_same else None
    records.append(_registration_record(request, epoch, features, amended, may_cordon=image.can_cordon))
    log.info(
        "%s broker %d, epoch %d",
        "Amending the registration of" if is_same else "Registering",
        request.broker_id,
        epoch,
    )
    return Decision(records, epoch)


def _shutdown_records(
    view: View, request: BrokerRegistrationRequest, existing: Broker | None
) -> list[PartitionChangeRecord]:
    """Return the changes after the shutdown of the process that had the broker's id before (rule 4)."""
    broker_id = request.broker_id
    in_isr = [] if existing is None else partitions_with_isr_member(view.image, broker_id)
    is_clean = existing is not None and request.previous_broker_epoch == existing.epoch
    if is_clean:
        return leader_and_isr_updates(view, in_isr, broker_to_remove=broker_id)
    keys = in_isr + partitions_with_elr_member(view.image, broker_id)
    return leader_and_isr_updates(view, keys, broker_to_remove=broker_id, is_unclean_shutdown=True)


def register_controller(view: View, request: ControllerRegistrationRequest) -> Decision[None]:
    """Register a controller; the same registration again writes nothing.

    Raises ApiError: UNSUPPORTED_VERSION if the metadata.version does not know this, or the controller does not support
    a finalized feature; INVALID_REGISTRATION without listeners, or beyond the bounds of rule 5.
    """
    image = view.image
    if not image.can_register_controllers:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    if not request.listeners:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "No listeners specified in request")
    given = [(f.name, f.min_supported_version, f.max_supported_version) for f in request.features]
    _check_bounds(request.controller_id, request.listeners, given)
    controller = Controller(
        id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
        features=tuple(_checked_features(image.features, given, "controller")),
    )
    if image.controllers.get(controller.id) == controller:
        return Decision([], None)
    log.info("Registering controller %d, incarnation %s", controller.id, uuid_to_string(controller.incarnation_id))
    return Decision([controller.to_record()], None)


class _Listener(Protocol):
    """The part of a listener of either request that is checked."""

    name: str
    host: str
    security_protocol: int


def _check_bounds(node_id: int, listeners: Sequence[_Listener], features: Sequence[tuple[str, int, int]]) -> None:
    """Raise INVALID_REGISTRATION for what no node has (rule 5)."""
    if node_id < 0:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"{node_id} is no node id")
    if len(listeners) > LISTENERS_MAX or len(features) > FEATURES_MAX:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"A node has at most {LISTENERS_MAX} listeners and {FEATURES_MAX} features",
        )
    names = [name for listener in listeners for name in (listener.name, listener.host)]
    if any(not 0 < len(name) <= NAME_LENGTH_MAX for name in [*names, *(name for name, _, _ in features)]):
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"A listener, a host and a feature have a name of at most {NAME_LENGTH_MAX} characters",
        )
    if any(not 0 <= listener.security_protocol < len(PROTOCOLS) for listener in listeners):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "A listener has an unknown security protocol")


def _check_metadata(image: Image, request: BrokerRegistrationRequest, known: Known) -> None:
    """Raise MissingMetadataError if rule 3 refuses the broker."""
    applied = applied_of(request)
    if applied is not None and not known.holds(applied):
        raise MissingMetadataError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"broker {request.broker_id} has applied metadata offset {applied.offset} of cluster "
            f"{request.cluster_id}, which this controller's metadata log (it ends at {image.offset}) does not hold",
        )


def _take_addresses(view: View, request: BrokerRegistrationRequest, known: Known) -> list[MetadataRecord]:
    """Return the records that unregister the silent owners of the broker's addresses (rule 2).

    Raises DUPLICATE_BROKER_REGISTRATION if an owner is alive.
    """
    wanted = {(listener.host.lower(), listener.port) for listener in request.listeners}
    records: list[MetadataRecord] = []
    for broker in view.image.brokers.values():
        shared = [e for e in broker.endpoints if (e.host.lower(), e.port) in wanted]
        if broker.id == request.broker_id or not shared:
            continue
        address = f"{shared[0].host}:{shared[0].port}"
        if not broker.is_fenced or known.uses_address(broker.id):
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"broker {broker.id} advertises {address} already; give broker {request.broker_id} an address of its "
                "own (advertised.listeners)",
            )
        log.warning(
            "Broker %d takes over %s from broker %d, which is silent and loses its registration",
            request.broker_id, address, broker.id,
        )  # fmt: skip
        records += unregister_broker(view, broker.id).records
    return records


def _registration_record(
    request: BrokerRegistrationRequest,
    epoch: int,
    features: list[tuple[str, int, int]],
    existing: Broker | None,
    *,
    may_cordon: bool,
) -> RegisterBrokerRecord:
    cordoned = [] if existing is None else list(existing.cordoned_log_dirs)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        rack=request.rack,
        fenced=True if existing is None else existing.is_fenced,
        in_controlled_shutdown=False if existing is None else existing.in_controlled_shutdown,
        log_dirs=list(request.log_dirs),
        cordoned_log_dirs=cordoned if may_cordon else None,
    )
    record.end_points = [
        BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
        for e in request.listeners
    ]
    record.features = [
        BrokerFeature(name=n, min_supported_version=low, max_supported_version=high) for n, low, high in features
    ]
    return record


def _check_log_dirs(image: Image, request: BrokerRegistrationRequest) -> None:
    dirs = request.log_dirs
    if not dirs:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(directory in RESERVED_DIRECTORIES for directory in dirs):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(dirs)) != len(dirs):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for broker in image.brokers.values():
        shared = set(dirs) & set(broker.log_dirs)
        if broker.id != request.broker_id and shared:
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION,
                f"Broker {broker.id} is already registered with directory {shared.pop().hex()}",
            )


def _checked_features(
    finalized: Mapping[str, int], given: list[tuple[str, int, int]], role: str
) -> list[tuple[str, int, int]]:
    """Return a node's feature ranges; raises UNSUPPORTED_VERSION if one excludes the finalized level."""
    names = {name for name, _, _ in given}
    missing = [(name, 0, 0) for name, level in finalized.items() if level and name not in names]
    for name, low, high in given + missing:
        level = finalized.get(name, 1 if name == METADATA_VERSION else 0)
        if not low <= level <= high:  # a feature that is not finalized has level 0
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the {role} does not support finalized version {level} of {name}. "
                f"The {role} wants a version between {low} and {high}, inclusive.",
            )
    return given


def unregister_broker(view: View, broker_id: int) -> Decision[None]:
    """Remove a broker's registration; raises BROKER_ID_NOT_REGISTERED."""
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    keys = partitions_with_isr_member(view.image, broker_id) + partitions_with_elr_member(view.image, broker_id)
    records: list[MetadataRecord] = list(leader_and_isr_updates(view, keys, broker_to_remove=broker_id))
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Decision(records, None)
