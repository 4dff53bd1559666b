"""Brokers as the controller sees them: registration, heartbeats, sessions, fencing, controlled shutdown.

States of a broker, and the transition -> function:

    (none) --register--> FENCED --heartbeat, caught up--> UNFENCED --want_shut_down--> CONTROLLED_SHUTDOWN
                           ^  |                              |                              |
                           |  +--want_shut_down------------> SHUTDOWN_NOW <--no leaderships-+
                           +----- session over, want_fence --+           (answers should_shut_down; fenced)

    register_broker      (none) or any -> FENCED, under a new epoch; the same incarnation only amends
    process_heartbeat    all arrows of a heartbeat
    fence_stale_brokers  UNFENCED, CONTROLLED_SHUTDOWN -> FENCED
    unregister_broker    any -> (none)

Rules
1. The broker epoch is the offset of the record that registered this incarnation; whatever carries another is refused
   with STALE_BROKER_EPOCH. So an old incarnation, or one that missed its own funeral, can change nothing.
2. A broker is unfenced only after it has seen metadata up to its own registration.
3. A broker that leaves (fenced, shutting down, registered anew) leaves every ISR in the same atomic batch, unless it
   is the last member.
4. A controlled shutdown is granted once the broker leads nothing and every active broker has heard of it.

Threads: the event thread owns `Sessions`; decisions run there.

Source: BrokerHeartbeatManager, ClusterControlManager.registerBroker, ReplicationControlManager (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from barnabas.controller.decision import Decision, View, check_broker_epoch
from barnabas.controller.directories import cordoning, directory_failures
from barnabas.controller.elections import leader_and_isr_updates, leaderless_partitions, partitions_with_isr_member
from barnabas.controller.image import RESERVED_DIRECTORIES, Broker, Image
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

log = logging.getLogger("barnabas.controller.brokers")

_SET: Final = 1
_CLEAR: Final = -1
METADATA_VERSION: Final = "metadata.version"
NO_OFFSET: Final = -1


class BrokerState(Enum):
    """See the diagram of the module."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        """Whether clients are not told of the broker."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


@dataclass(slots=True)
class Session:
    """What is known of a registered broker beside the log. Owner: event thread."""

    last_contact_ms: int
    metadata_offset: int = NO_OFFSET  # the broker has applied everything up to here, inclusive
    controlled_shutdown_offset: int = NO_OFFSET


class Sessions:
    """The sessions of registered brokers. Owner: event thread.

    A controller that starts gives every registered broker a whole session timeout to report itself.
    """

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms  # fixed before start
        self._by_id: dict[int, Session] = {}

    def start(self, image: Image, now_ms: int) -> None:
        """Open a session for each registered broker of a replayed log."""
        self._by_id = {broker_id: Session(now_ms) for broker_id in image.brokers}

    def get(self, broker_id: int) -> Session:
        """The session of a registered broker."""
        return self._by_id[broker_id]

    def open(self, broker_id: int, now_ms: int, *, is_new_incarnation: bool) -> None:
        """Note a registration."""
        if is_new_incarnation or broker_id not in self._by_id:
            self._by_id[broker_id] = Session(now_ms)
        else:
            self._by_id[broker_id].last_contact_ms = now_ms

    def close(self, broker_id: int) -> None:
        """Forget an unregistered broker."""
        self._by_id.pop(broker_id, None)

    def touch(self, broker_id: int, now_ms: int, *, is_fenced: bool, metadata_offset: int) -> None:
        """Note a heartbeat."""
        session = self._by_id[broker_id]
        session.last_contact_ms = now_ms
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        if is_fenced:
            session.controlled_shutdown_offset = NO_OFFSET

    def note_applied(self, broker_id: int, metadata_offset: int) -> None:
        """Note that a broker acknowledged a push up to an offset; it counts like a heartbeat's report."""
        session = self._by_id.get(broker_id)
        if session is not None:
            session.metadata_offset = max(session.metadata_offset, metadata_offset)

    def is_valid(self, broker: Broker, now_ms: int) -> bool:
        """Whether the broker is unfenced and was heard of within the session timeout."""
        session = self._by_id.get(broker.id)
        if session is None or broker.is_fenced:
            return False
        return session.last_contact_ms + self.session_timeout_ms >= now_ms

    def stale(self, image: Image, now_ms: int) -> list[int]:
        """Unfenced brokers that were silent for longer than the session timeout, the longest first."""
        late = [
            broker.id for broker in image.brokers.values() if not broker.is_fenced and not self.is_valid(broker, now_ms)
        ]
        return sorted(late, key=lambda broker_id: self._by_id[broker_id].last_contact_ms)

    def next_expiry_ms(self, image: Image) -> int | None:
        """When the next session ends if nobody reports; None while no broker is unfenced."""
        times = [
            self._by_id[broker.id].last_contact_ms
            for broker in image.brokers.values()
            if not broker.is_fenced and broker.id in self._by_id
        ]
        return min(times) + self.session_timeout_ms + 1 if times else None

    def lowest_active_offset(self, image: Image) -> int | None:
        """How far every active broker has come; None if there is no active broker."""
        offsets = [
            session.metadata_offset
            for broker_id, session in self._by_id.items()
            if image.is_active(broker_id) and session.controlled_shutdown_offset == NO_OFFSET
        ]
        return min(offsets, default=None)

    def contact_age_ms(self, broker_id: int, now_ms: int) -> int:
        """Time since the last heartbeat, for a metric."""
        session = self._by_id.get(broker_id)
        return 0 if session is None else now_ms - session.last_contact_ms


# -- registration


def register_broker(
    view: View, request: BrokerRegistrationRequest, *, cluster_id: str, has_valid_session: bool
) -> Decision[int]:
    """Register a broker; the response is its epoch.

    Raises INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION (another process with that id is alive),
    INVALID_REGISTRATION (bad log directories) and UNSUPPORTED_VERSION (features it cannot do).
    """
    image = view.image
    if request.cluster_id != cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = image.brokers.get(request.broker_id)
    is_same = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not is_same and has_valid_session and not existing.in_controlled_shutdown:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    _check_log_dirs(image, request)
    features = _checked_features(image.features, request)
    records: list[Any] = []
    if existing is not None and not is_same:
        keys = partitions_with_isr_member(image, existing.id)
        records += leader_and_isr_updates(view, keys, broker_to_remove=existing.id)
    epoch = existing.epoch if existing is not None and is_same else view.next_offset + len(records)
    records.append(_registration_record(request, epoch, features, existing if is_same else None))
    log.info(
        "%s broker %d, incarnation %s, epoch %d",
        "Amending the registration of" if is_same else "Registering",
        request.broker_id,
        request.incarnation_id.hex(),
        epoch,
    )
    return Decision(records, epoch)


def _registration_record(
    request: BrokerRegistrationRequest,
    epoch: int,
    features: list[tuple[str, int, int]],
    existing: Broker | None,
) -> RegisterBrokerRecord:
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        rack=request.rack,
        fenced=True if existing is None else existing.is_fenced,
        in_controlled_shutdown=False if existing is None else existing.in_controlled_shutdown,
        log_dirs=list(request.log_dirs),
        cordoned_log_dirs=[] if existing is None else list(existing.cordoned_log_dirs),
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


def _checked_features(finalized: Mapping[str, int], request: BrokerRegistrationRequest) -> list[tuple[str, int, int]]:
    """The broker's feature ranges; raises UNSUPPORTED_VERSION if one excludes what the cluster has finalized."""
    given = [(f.name, f.min_supported_version, f.max_supported_version) for f in request.features]
    names = {name for name, _, _ in given}
    missing = [(name, 0, 0) for name, level in finalized.items() if level and name not in names]
    for name, low, high in given + missing:
        level = finalized.get(name, 1 if name == METADATA_VERSION else 0)
        if not low <= level <= high and (name in finalized or level):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive.",
            )
    return given


def unregister_broker(view: View, broker_id: int) -> Decision[None]:
    """Forget a broker; raises BROKER_ID_NOT_REGISTERED."""
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    keys = partitions_with_isr_member(view.image, broker_id)
    records: list[Any] = list(leader_and_isr_updates(view, keys, broker_to_remove=broker_id))
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Decision(records, None)


# -- heartbeats


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """What a broker is told; `state` is where it stands after the heartbeat."""

    is_caught_up: bool
    state: BrokerState


def current_state(broker: Broker, session: Session) -> BrokerState:
    """Where a broker stands."""
    if broker.is_fenced:
        return BrokerState.FENCED
    if broker.in_controlled_shutdown or session.controlled_shutdown_offset != NO_OFFSET:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


def next_state(broker: Broker, sessions: Sessions, image: Image, request: BrokerHeartbeatRequest) -> BrokerState:
    """Where a heartbeat takes a broker; changes nothing."""
    session = sessions.get(broker.id)
    match current_state(broker, session):
        case BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            is_caught_up = _reached(session, request) >= broker.epoch
            return BrokerState.UNFENCED if is_caught_up and not request.want_fence else BrokerState.FENCED
        case BrokerState.UNFENCED:
            if request.want_fence:
                return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
            if not request.want_shut_down:
                return BrokerState.UNFENCED
            has_leaderships = image.has_leaderships(broker.id)
            return BrokerState.CONTROLLED_SHUTDOWN if has_leaderships else BrokerState.SHUTDOWN_NOW
        case _:
            return _next_in_shutdown(broker, sessions, image)


def _next_in_shutdown(broker: Broker, sessions: Sessions, image: Image) -> BrokerState:
    """Rule 4."""
    lowest = sessions.lowest_active_offset(image)
    wanted = sessions.get(broker.id).controlled_shutdown_offset
    if image.has_leaderships(broker.id) or (lowest is not None and wanted > lowest):
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.SHUTDOWN_NOW


def _reached(session: Session, request: BrokerHeartbeatRequest) -> int:
    return max(session.metadata_offset, request.current_metadata_offset)


def process_heartbeat(
    view: View, sessions: Sessions, request: BrokerHeartbeatRequest, now_ms: int
) -> Decision[HeartbeatReply]:
    """Take a heartbeat: touch the session and move the broker to its next state; raises STALE_BROKER_EPOCH."""
    image = view.image
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    session = sessions.get(broker.id)
    current = current_state(broker, session)
    state = next_state(broker, sessions, image, request)
    records: list[Any] = []
    if state is not current:
        log.info("Broker %d goes from %s to %s", broker.id, current.value, state.value)
        records = _transition_records(view, broker, state)
    records += directory_failures(view, broker, request.offline_log_dirs)
    records += cordoning(broker, request.cordoned_log_dirs)
    reply = HeartbeatReply(_reached(session, request) >= broker.epoch, state)
    sessions.touch(broker.id, now_ms, is_fenced=state.is_fenced, metadata_offset=request.current_metadata_offset)
    if state is BrokerState.CONTROLLED_SHUTDOWN and session.controlled_shutdown_offset == NO_OFFSET:
        session.controlled_shutdown_offset = image.offset + len(records)
    return Decision(records, reply)


def _transition_records(view: View, broker: Broker, state: BrokerState) -> list[Any]:
    if state is BrokerState.UNFENCED:
        keys = leaderless_partitions(view.image)
        change = _change(broker, fenced=_CLEAR)
        return [change, *leader_and_isr_updates(view, keys, broker_to_add=broker.id)]
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        keys = partitions_with_isr_member(view.image, broker.id)
        change = _change(broker, in_controlled_shutdown=_SET)
        return [change, *leader_and_isr_updates(view, keys, broker_to_remove=broker.id)]
    return [] if broker.is_fenced else fencing_records(view, broker)


def fencing_records(view: View, broker: Broker) -> list[Any]:
    """Take a broker out of every ISR and leadership, then fence it."""
    keys = partitions_with_isr_member(view.image, broker.id)
    return [*leader_and_isr_updates(view, keys, broker_to_remove=broker.id), _change(broker, fenced=_SET)]


def fence_stale_broker(view: View, sessions: Sessions, now_ms: int) -> Decision[int | None]:
    """Fence the broker whose session ended first, so that the next one is judged by what that led to."""
    stale = sessions.stale(view.image, now_ms)
    if not stale:
        return Decision([], None)
    log.info("Fencing broker %d because its session has timed out.", stale[0])
    return Decision(fencing_records(view, view.image.brokers[stale[0]]), stale[0])


def _change(broker: Broker, *, fenced: int = 0, in_controlled_shutdown: int = 0) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )
