"""Broker states: heartbeats, fencing and controlled shutdown.

The states of a broker, and the functions of the transitions:

    (none) --register--> FENCED --heartbeat, caught up--> UNFENCED --want_shut_down--> CONTROLLED_SHUTDOWN
                           ^  |                              |                              |
                           |  +--want_shut_down------------> SHUTDOWN_NOW <--no leaderships-+
                           +----- session over, want_fence --+           (response: should_shut_down; fenced)

    register_broker      (none) or any -> FENCED, under a new epoch; the same incarnation only amends (registration.py)
    process_heartbeat    the transitions of a heartbeat
    fence_stale_broker   UNFENCED, CONTROLLED_SHUTDOWN -> FENCED: the session has timed out
    fence_lagging_broker UNFENCED -> FENCED: heartbeats arrive, but the pushes do not reach the broker (sessions.py)
    unregister_broker    any -> (none) (registration.py)

Rules
1. The broker epoch is the offset of the record that registered this incarnation. A request with another epoch is
   refused with STALE_BROKER_EPOCH. So an old incarnation can change nothing.
2. A broker is unfenced only after it has applied the metadata up to its own registration. A broker that was fenced
   because it lagged must also have applied what it missed.
3. A broker that leaves (fenced, shutting down, registered again) leaves every ISR in the same atomic batch. Without
   eligible leader replicas, the last member stays.
4. A controlled shutdown is granted once the broker leads nothing and every active broker has applied this.
5. If a heartbeat reports a failed log directory, the directory counts as gone for the rest of that heartbeat. So a
   broker that it unfences does not become the leader of replicas there.

Threads: decisions run on the event thread.

Source: BrokerHeartbeatManager, ClusterControlManager.registerBroker, ReplicationControlManager (Kafka 4.3).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.controller.decision import Decision, View, check_broker_epoch
from barnabas.controller.decisions.directories import cordoning, directory_failures
from barnabas.controller.decisions.elections import (
    leader_and_isr_updates,
    leaderless_partitions,
    partitions_with_isr_member,
)
from barnabas.controller.image import Broker, Image
from barnabas.controller.image_editor import with_records
from barnabas.controller.sessions import NO_OFFSET, Session, Sessions
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.metadata_records import BrokerRegistrationChangeRecord, MetadataRecord

log = logging.getLogger("barnabas.controller.brokers")

_SET: Final = 1
_CLEAR: Final = -1


class BrokerState(Enum):
    """See the diagram of the module."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        """Whether the broker is hidden from clients."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The response to a heartbeat; `state` is the broker's state after it."""

    is_caught_up: bool
    state: BrokerState


def current_state(broker: Broker, session: Session) -> BrokerState:
    """Return the present state of a broker."""
    if broker.is_fenced:
        return BrokerState.FENCED
    if broker.in_controlled_shutdown or session.controlled_shutdown_offset != NO_OFFSET:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


def next_state(broker: Broker, sessions: Sessions, image: Image, request: BrokerHeartbeatRequest) -> BrokerState:
    """Return the state after a heartbeat; changes nothing."""
    session = sessions.get(broker.id)
    match current_state(broker, session):
        case BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            may_return = is_caught_up(broker, session, request) and not request.want_fence
            return BrokerState.UNFENCED if may_return else BrokerState.FENCED
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
    """Return SHUTDOWN_NOW if rule 4 allows it."""
    lowest = sessions.lowest_active_offset(image)
    wanted = sessions.get(broker.id).controlled_shutdown_offset
    if image.has_leaderships(broker.id) or (lowest is not None and wanted > lowest):
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.SHUTDOWN_NOW


def is_caught_up(broker: Broker, session: Session, request: BrokerHeartbeatRequest) -> bool:
    """Return whether a broker has applied what it must before it is unfenced (rule 2)."""
    reached = max(session.metadata_offset, request.current_metadata_offset)
    return reached >= max(broker.epoch, session.required_offset)


def process_heartbeat(
    view: View, sessions: Sessions, request: BrokerHeartbeatRequest, now_ms: int
) -> Decision[HeartbeatReply]:
    """Note a heartbeat in the session and move the broker to its next state; raises STALE_BROKER_EPOCH."""
    image = view.image
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    session = sessions.get(broker.id)
    current = current_state(broker, session)
    state = next_state(broker, sessions, image, request)
    records = directory_failures(view, broker, request.offline_log_dirs)
    if state is not current:
        log.info("Broker %d goes from %s to %s", broker.id, current.value, state.value)
        ahead = with_records(image, records) if records else image  # rule 5
        records += _transition_records(View(ahead, view.config, view.rng), ahead.brokers[broker.id], state)
    records += cordoning(image, broker, request.cordoned_log_dirs)
    reply = HeartbeatReply(is_caught_up(broker, session, request), state)
    session.is_leaving = state is BrokerState.SHUTDOWN_NOW
    if broker.is_fenced and not state.is_fenced:
        sessions.restart_target(broker.id, now_ms)
    sessions.touch(broker.id, now_ms, is_fenced=state.is_fenced, metadata_offset=request.current_metadata_offset)
    if state is BrokerState.CONTROLLED_SHUTDOWN and session.controlled_shutdown_offset == NO_OFFSET:
        # Why pushed_offset: after a failover there are no records, and the last one may be none that is pushed.
        session.controlled_shutdown_offset = image.offset + len(records) if records else sessions.pushed_offset
    return Decision(records, reply)


def _transition_records(view: View, broker: Broker, state: BrokerState) -> list[MetadataRecord]:
    if state is BrokerState.UNFENCED:
        keys = leaderless_partitions(view.image)
        change = _change(broker, fenced=_CLEAR)
        return [change, *leader_and_isr_updates(view, keys, broker_to_add=broker.id)]
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        keys = partitions_with_isr_member(view.image, broker.id)
        change = _change(broker, in_controlled_shutdown=_SET)
        return [change, *leader_and_isr_updates(view, keys, broker_to_remove=broker.id)]
    return [] if broker.is_fenced else fencing_records(view, broker)


def fencing_records(view: View, broker: Broker) -> list[MetadataRecord]:
    """Return the records that remove a broker from every ISR and leadership, and then fence it."""
    keys = partitions_with_isr_member(view.image, broker.id)
    return [*leader_and_isr_updates(view, keys, broker_to_remove=broker.id), _change(broker, fenced=_SET)]


def fence_stale_broker(view: View, sessions: Sessions, now_ms: int) -> Decision[int | None]:
    """Fence the broker whose session ended first; one at a time, so that the next decision sees the result.

    The response is the id of the fenced broker, or None.
    """
    stale = sessions.stale(view.image, now_ms)
    if not stale:
        return Decision([], None)
    log.info("Fencing broker %d because its session has timed out.", stale[0])
    return Decision(fencing_records(view, view.image.brokers[stale[0]]), stale[0])


def fence_lagging_broker(view: View, sessions: Sessions, now_ms: int) -> Decision[int | None]:
    """Fence the broker that has lagged for the longest; it returns once it has applied what it missed.

    The response is the id of the fenced broker, or None.
    """
    lagging = sessions.lagging(view.image, now_ms)
    if not lagging:
        return Decision([], None)
    session = sessions.get(lagging[0])
    log.warning(
        "Fencing broker %d: its heartbeats arrive, but in %d ms it has not applied metadata offset %d (it is at %d). "
        "Can it be reached at %s?",
        lagging[0], now_ms - session.target_since_ms, session.target_offset, session.metadata_offset,
        ", ".join(f"{e.host}:{e.port}" for e in view.image.brokers[lagging[0]].endpoints),
    )  # fmt: skip
    sessions.require_target(lagging[0])
    return Decision(fencing_records(view, view.image.brokers[lagging[0]]), lagging[0])


def _change(broker: Broker, *, fenced: int = 0, in_controlled_shutdown: int = 0) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )
