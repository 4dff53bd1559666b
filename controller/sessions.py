"""What the controller knows of registered brokers beside the log: when each reported, and how far it has come.

A broker whose heartbeats arrive may still be out of reach of the controller's pushes (a link that is cut in one
direction). It would keep its leaderships, and be given others that it never hears of. So each session has a *target*:
the metadata offset that the broker had not applied at some heartbeat. A broker that has not reached its target within
`lag_timeout_ms` *lags*. A slow one that reaches one target after the other does not.

Rules
1. Only records that brokers are told of make a target: `told_offset` is the offset of the last of them.
2. A session begins with the push of everything: its first target may take `FIRST_PUSH_MS` longer.
3. A lagging broker is fenced only if another active one has applied what it missed. If nobody has, the fault may be
   the controller's, and fencing would help nobody.

Threads: the event thread owns all of it.

Source: BrokerHeartbeatManager (Kafka 4.3); Kafka's brokers fetch the metadata log and cannot lag this way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.controller.image import Broker, Image

NO_OFFSET: Final = -1
FIRST_PUSH_MS: Final = 30_000
RECHECK_MS: Final = 1_000


@dataclass(slots=True)
class Session:
    """One registered broker. Owner: event thread."""

    last_contact_ms: int
    metadata_offset: int = NO_OFFSET  # the broker has applied everything up to here, inclusive
    controlled_shutdown_offset: int = NO_OFFSET
    required_offset: int = NO_OFFSET  # a fenced broker is unfenced once it has applied this
    target_offset: int = NO_OFFSET  # what it has to apply next; no target if it has
    target_since_ms: int = 0
    has_caught_up: bool = False  # it has reached a target
    is_leaving: bool = False  # it was told to shut down: it does not use its address any more

    @property
    def has_target(self) -> bool:
        """Whether there is something that the broker has not applied."""
        return self.target_offset > self.metadata_offset

    def note_applied(self, metadata_offset: int) -> None:
        """Note how far the broker has come; what is lower came late."""
        had_target = self.has_target
        self.metadata_offset = max(self.metadata_offset, metadata_offset)
        if had_target and not self.has_target:
            self.has_caught_up = True

    def aim_at(self, told_offset: int, now_ms: int) -> None:
        """Have a target, unless there is one already or the broker has applied everything."""
        if self.has_target:
            return
        if self.metadata_offset >= told_offset:
            self.has_caught_up = True
        else:
            self.target_offset, self.target_since_ms = told_offset, now_ms


class Sessions:
    """The sessions of registered brokers. Owner: event thread.

    A controller that starts gives every registered broker a whole session timeout to report itself.
    """

    def __init__(self, session_timeout_ms: int, lag_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms  # fixed before start
        self.lag_timeout_ms = lag_timeout_ms  # fixed before start
        self.told_offset = NO_OFFSET  # of the last record that brokers are told of
        self._by_id: dict[int, Session] = {}

    def start(self, image: Image, now_ms: int) -> None:
        """Open a session for each registered broker of an image; fenced ones must reach what was told before."""
        self._by_id = {broker_id: Session(now_ms, required_offset=self.told_offset) for broker_id in image.brokers}

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
        session.note_applied(metadata_offset)
        session.aim_at(self.told_offset, now_ms)
        if is_fenced:
            session.controlled_shutdown_offset = NO_OFFSET

    def note_applied(self, broker_id: int, metadata_offset: int) -> None:
        """Note that a broker acknowledged a push up to an offset; it counts like a heartbeat's report."""
        session = self._by_id.get(broker_id)
        if session is not None:
            session.note_applied(metadata_offset)

    def is_valid(self, broker: Broker, now_ms: int) -> bool:
        """Whether the broker is unfenced and was heard of within the session timeout."""
        return not broker.is_fenced and self.is_heard(broker.id, now_ms)

    def is_heard(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker, fenced or not, was heard of within the session timeout."""
        session = self._by_id.get(broker_id)
        return session is not None and session.last_contact_ms + self.session_timeout_ms >= now_ms

    def uses_address(self, broker_id: int, now_ms: int) -> bool:
        """Whether a process with this id is alive and stays."""
        return self.is_heard(broker_id, now_ms) and not self._by_id[broker_id].is_leaving

    def stale(self, image: Image, now_ms: int) -> list[int]:
        """Unfenced brokers that were silent for longer than the session timeout, the longest first."""
        late = [
            broker.id for broker in image.brokers.values() if not broker.is_fenced and not self.is_valid(broker, now_ms)
        ]
        return sorted(late, key=lambda broker_id: self._by_id[broker_id].last_contact_ms)

    # -- who lags

    def lagging(self, image: Image, now_ms: int) -> list[int]:
        """Active brokers that lag while another has applied what they missed (rule 3), the longest first."""
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
        """When the broker will lag; `never_ms` if it has no target."""
        if not session.has_target:
            return never_ms
        return session.target_since_ms + self.lag_timeout_ms + (0 if session.has_caught_up else FIRST_PUSH_MS) + 1

    def restart_target(self, broker_id: int, now_ms: int) -> None:
        """Have a broker that returns begin now with what it missed: its target may be as old as its silence."""
        self._by_id[broker_id].target_since_ms = now_ms

    def require_target(self, broker_id: int) -> None:
        """Have a broker that is fenced because it lags apply what it missed before it is unfenced."""
        session = self._by_id[broker_id]
        session.required_offset = max(session.required_offset, session.target_offset)

    # -- time

    def next_expiry_ms(self, image: Image) -> int | None:
        """When the next session ends if nobody reports, or a broker lags; None while no broker is unfenced."""
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
