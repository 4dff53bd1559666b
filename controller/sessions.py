"""Sessions: what the controller knows about registered brokers that is not in the log.

A session holds the time of the last heartbeat and the metadata offset that the broker has applied. A heartbeat counts
from its arrival: it may wait for long until the event thread takes it, behind a slow disk or behind other events.

Heartbeats of a broker may arrive while the controller's pushes do not reach it (a link that is cut in one direction).
Such a broker would keep its leaderships, and get new ones without ever learning of them. So each session has a
*target*: the metadata offset that the broker had not yet applied at some heartbeat. A broker that does not reach its
target within `lag_timeout_ms` *lags*. A slow broker that reaches one target after the other does not lag.

Rules
1. Only pushed records make a target: `pushed_offset` is the offset of the last of them.
2. A session begins with a FULL push, so its first target may take `FIRST_PUSH_MS` longer.
3. A lagging broker is fenced only if another active broker has applied what it missed. Otherwise the fault may be the
   controller's, and fencing would not help.

Threads: the event thread owns everything here, except `Session.arrived_ms`.

Source: BrokerHeartbeatManager, BrokerHeartbeatTracker (Kafka 4.3); Kafka's brokers fetch the metadata log and cannot
lag this way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.controller.image import Image

NO_OFFSET: Final = -1
FIRST_PUSH_MS: Final = 30_000
RECHECK_MS: Final = 1_000


@dataclass(slots=True)
class Session:
    """The session of one registered broker. Owner: event thread."""

    taken_ms: int  # when the event thread took a heartbeat, or the registration
    epoch: int  # of the registration; heartbeats with another one do not count
    arrived_ms: int = 0  # when a heartbeat arrived; the threads that receive one write it
    has_beaten: bool = False  # this controller has taken a heartbeat, or the log says that the broker is unfenced
    metadata_offset: int = NO_OFFSET  # the broker has applied everything up to here, inclusive
    controlled_shutdown_offset: int = NO_OFFSET  # the last record of its controlled shutdown
    required_offset: int = NO_OFFSET  # a fenced broker is unfenced only after it has applied this
    target_offset: int = NO_OFFSET  # the broker has to apply this next; no target if it already has
    target_since_ms: int = 0
    has_caught_up: bool = False  # whether it has ever reached a target
    is_leaving: bool = False  # it may shut down now, so it no longer uses its address

    @property
    def last_contact_ms(self) -> int:
        """When the broker was heard of last."""
        return max(self.taken_ms, self.arrived_ms)

    @property
    def has_target(self) -> bool:
        """Whether the broker has not yet applied its target."""
        return self.target_offset > self.metadata_offset

    def note_applied(self, metadata_offset: int) -> None:
        """Note the offset that the broker has applied; a lower one arrived late and is ignored."""
        had_target = self.has_target
        self.metadata_offset = max(self.metadata_offset, metadata_offset)
        if had_target and not self.has_target:
            self.has_caught_up = True

    def set_target(self, pushed_offset: int, now_ms: int) -> None:
        """Set a target, unless there is one already or the broker has applied everything."""
        if self.has_target:
            return
        if self.metadata_offset >= pushed_offset:
            self.has_caught_up = True
        else:
            self.target_offset, self.target_since_ms = pushed_offset, now_ms


class Sessions:
    """The sessions of all registered brokers. Owner: event thread.

    After the start of a controller, every registered broker has a whole session timeout for its first heartbeat.
    """

    def __init__(self, session_timeout_ms: int, lag_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms  # fixed before start
        self.lag_timeout_ms = lag_timeout_ms  # fixed before start
        self.pushed_offset = NO_OFFSET  # the offset of the last record that was offered to the senders
        self._by_id: dict[int, Session] = {}

    def start(self, image: Image, now_ms: int) -> None:
        """Open a session for each broker of an image; fenced ones must apply everything pushed before."""
        self._by_id = {
            broker.id: Session(
                now_ms, broker.epoch, has_beaten=not broker.is_fenced, required_offset=self.pushed_offset
            )
            for broker in image.brokers.values()
        }

    def clear(self) -> None:
        """Forget all sessions: another controller is active."""
        self._by_id = {}

    def get(self, broker_id: int) -> Session:
        """Return the session of a registered broker."""
        return self._by_id[broker_id]

    def open(self, broker_id: int, epoch: int, now_ms: int, *, is_new_incarnation: bool) -> None:
        """Note a registration; a new incarnation gets a new session."""
        if is_new_incarnation or broker_id not in self._by_id:
            self._by_id[broker_id] = Session(now_ms, epoch)
        else:
            self._by_id[broker_id].taken_ms = now_ms

    def close(self, broker_id: int) -> None:
        """Forget an unregistered broker."""
        self._by_id.pop(broker_id, None)

    def arrived(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Note that a heartbeat has arrived, which the event thread will take; called by the thread that received it.

        An unknown broker, or another epoch, is ignored.
        """
        session = self._by_id.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.arrived_ms = now_ms

    def touch(self, broker_id: int, now_ms: int, *, is_fenced: bool, metadata_offset: int) -> None:
        """Note a heartbeat."""
        session = self._by_id[broker_id]
        session.taken_ms, session.has_beaten = now_ms, True
        session.note_applied(metadata_offset)
        session.set_target(self.pushed_offset, now_ms)
        if is_fenced:
            session.controlled_shutdown_offset = NO_OFFSET

    def note_applied(self, broker_id: int, metadata_offset: int) -> None:
        """Note that a broker acknowledged a push up to an offset; this counts like the offset of a heartbeat."""
        session = self._by_id.get(broker_id)
        if session is not None:
            session.note_applied(metadata_offset)

    def keeps_id(self, broker_id: int, now_ms: int) -> bool:
        """Return whether a process with this id, fenced or not, is alive and not about to leave.

        Of a fenced one only heartbeats tell: it may have ended right after its registration, or long before this
        controller became the active one.
        """
        if not self.uses_address(broker_id, now_ms):
            return False
        session = self._by_id[broker_id]
        return session.has_beaten or session.arrived_ms > 0

    def is_heard(self, broker_id: int, now_ms: int) -> bool:
        """Return whether the broker, fenced or not, sent a heartbeat within the session timeout."""
        session = self._by_id.get(broker_id)
        return session is not None and session.last_contact_ms + self.session_timeout_ms >= now_ms

    def uses_address(self, broker_id: int, now_ms: int) -> bool:
        """Return whether a process with this id is alive and not about to leave."""
        return self.is_heard(broker_id, now_ms) and not self._by_id[broker_id].is_leaving

    def stale(self, image: Image, now_ms: int) -> list[int]:
        """Return the unfenced brokers that were silent for longer than the session timeout, the longest first."""
        late = [
            broker.id
            for broker in image.brokers.values()
            if not broker.is_fenced and not self.is_heard(broker.id, now_ms)
        ]
        return sorted(late, key=lambda broker_id: self._by_id[broker_id].last_contact_ms)

    # -- lagging brokers

    def lagging(self, image: Image, now_ms: int) -> list[int]:
        """Return the active brokers that lag, the longest first, if another broker has applied more (rule 3).

        The target of a broker that is spared by rule 3 is prolonged by `RECHECK_MS`.
        """
        active = {broker_id: s for broker_id, s in self._by_id.items() if image.is_active(broker_id)}
        known = max((session.metadata_offset for session in active.values()), default=NO_OFFSET)
        found = []
        for broker_id, session in active.items():
            late_ms = now_ms - self._lags_at_ms(session, now_ms + 1)
            if late_ms >= 0 and known >= session.target_offset:
                found.append((session.target_since_ms, broker_id))
            elif late_ms >= 0:
                session.target_since_ms += late_ms + RECHECK_MS
        return [broker_id for _, broker_id in sorted(found)]

    def _lags_at_ms(self, session: Session, never_ms: int) -> int:
        """Return the time at which the broker will lag; `never_ms` if it has no target."""
        if not session.has_target:
            return never_ms
        return session.target_since_ms + self.lag_timeout_ms + (0 if session.has_caught_up else FIRST_PUSH_MS) + 1

    def restart_target(self, broker_id: int, now_ms: int) -> None:
        """Start the target's time now. The target of a broker that returns may be as old as its silence."""
        self._by_id[broker_id].target_since_ms = now_ms

    def require_target(self, broker_id: int) -> None:
        """Require a lagging broker, which is fenced now, to apply its target before it is unfenced."""
        session = self._by_id[broker_id]
        session.required_offset = max(session.required_offset, session.target_offset)

    # -- time

    def next_expiry_ms(self, image: Image) -> int | None:
        """Return when the next session times out or the next broker lags; None while all brokers are fenced."""
        times = []
        for broker in image.brokers.values():
            session = self._by_id.get(broker.id)
            if session is None or broker.is_fenced:
                continue
            silent_ms = session.last_contact_ms + self.session_timeout_ms + 1
            times.append(silent_ms)
            if broker.is_active:
                times.append(self._lags_at_ms(session, silent_ms))
        return min(times, default=None)

    def lowest_active_offset(self, image: Image) -> int | None:
        """Return the offset that every active broker has applied; None if there is no active broker."""
        offsets = [
            session.metadata_offset
            for broker_id, session in self._by_id.items()
            if image.is_active(broker_id) and session.controlled_shutdown_offset == NO_OFFSET
        ]
        return min(offsets, default=None)

    def contact_age_ms(self, broker_id: int, now_ms: int) -> int:
        """Return the time since the last heartbeat, for a metric."""
        session = self._by_id.get(broker_id)
        return 0 if session is None else now_ms - session.last_contact_ms

    def metadata_offset(self, broker_id: int) -> int:
        """Return the offset up to which the broker has applied the metadata, as far as its session knows."""
        session = self._by_id.get(broker_id)
        return NO_OFFSET if session is None else session.metadata_offset

    def behind_ms(self, broker_id: int, now_ms: int) -> int | None:
        """Return how long ago a broker that lacks metadata had all of it; None if it never had."""
        session = self._by_id.get(broker_id)
        if session is None or not session.has_caught_up:
            return None
        return now_ms - (session.target_since_ms if session.has_target else session.taken_ms)
