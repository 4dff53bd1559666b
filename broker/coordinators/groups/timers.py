"""The timers of one shard's groups, on the coordinator's timing wheel.

Theory
Every heartbeat renews a session, and sessions almost never expire. So a renewal only moves the deadline in the timer's
entry; the task on the wheel stays where it is. A task that fires too early is put back for the rest. The wheel is
touched once per session timeout rather than once per heartbeat.

Threads: owner is the shard, under its lock. The wheel's thread only posts the entry to the shard (`post`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from barnabas.broker.coordinators.classic.events import Event, TimerKey
from barnabas.broker.coordinators.consumer.values import GroupEvent
from barnabas.broker.coordinators.streams_groups.values import AssignmentDue
from barnabas.broker.timing_wheel import TimerTask

if TYPE_CHECKING:
    from barnabas.broker.timing_wheel import Timer
    from barnabas.common.clock import Clock

EntryKey: TypeAlias = tuple[str, TimerKey]
TimerEvent: TypeAlias = Event | GroupEvent | AssignmentDue  # of a classic group, or of another one
Post: TypeAlias = "Callable[[TimerEntry], None]"


class TimerEntry(TimerTask):
    """One timer on the wheel; its deadline may have moved since it was put there."""

    __slots__ = ("_post", "deadline_ms", "due_ms", "event", "group_id", "key")

    def __init__(self, group_id: str, key: TimerKey, event: TimerEvent, delay_ms: int, now_ms: int, post: Post) -> None:
        super().__init__(delay_ms)
        self.group_id = group_id
        self.key = key
        self.event = event
        self.due_ms = now_ms + delay_ms  # monotonic; when the wheel fires
        self.deadline_ms = self.due_ms  # monotonic; when the timer expires, never before due_ms
        self._post = post

    def run(self) -> None:
        """Post the entry to the shard."""
        self._post(self)


class ShardTimers:
    """The running timers of a shard, by group and key."""

    __slots__ = ("_clock", "_entries", "_post", "_timer")

    def __init__(self, timer: Timer, clock: Clock, post: Post) -> None:
        self._timer = timer
        self._clock = clock
        self._post = post
        self._entries: dict[EntryKey, TimerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def start(self, group_id: str, key: TimerKey, delay_ms: int, event: TimerEvent) -> None:
        """Start or restart a timer."""
        entry = self._entries.get((group_id, key))
        now_ms = self._clock.monotonic_ms()
        if entry is not None:
            deadline_ms = now_ms + delay_ms
            if deadline_ms >= entry.due_ms:
                entry.deadline_ms = deadline_ms
                entry.event = event
                return
            self._timer.cancel(entry)
        self._put(TimerEntry(group_id, key, event, delay_ms, now_ms, self._post))

    def renew(self, group_id: str, key: TimerKey, delay_ms: int) -> None:
        """Restart a timer, if it runs."""
        entry = self._entries.get((group_id, key))
        if entry is not None:
            self.start(group_id, key, delay_ms, entry.event)

    def is_running(self, group_id: str, key: TimerKey) -> bool:
        """Return whether a timer was started and has neither expired nor been stopped."""
        return (group_id, key) in self._entries

    def stop(self, group_id: str, key: TimerKey) -> None:
        """Stop a timer, if it runs."""
        entry = self._entries.pop((group_id, key), None)
        if entry is not None:
            self._timer.cancel(entry)

    def expired_event(self, entry: TimerEntry) -> TimerEvent | None:
        """Return the event of an entry that the wheel fired; None if the timer was stopped, restarted or renewed."""
        if self._entries.get((entry.group_id, entry.key)) is not entry:
            return None
        now_ms = self._clock.monotonic_ms()
        if entry.deadline_ms > now_ms:
            rest_ms = entry.deadline_ms - now_ms
            self._put(TimerEntry(entry.group_id, entry.key, entry.event, rest_ms, now_ms, self._post))
            return None
        del self._entries[entry.group_id, entry.key]
        return entry.event

    def stop_group(self, group_id: str) -> None:
        """Stop all timers of a group."""
        for owner, key in [entry for entry in self._entries if entry[0] == group_id]:
            self.stop(owner, key)

    def stop_all(self) -> None:
        """Stop every timer."""
        for entry in self._entries.values():
            self._timer.cancel(entry)
        self._entries.clear()

    def _put(self, entry: TimerEntry) -> None:
        self._entries[entry.group_id, entry.key] = entry
        self._timer.add(entry)
