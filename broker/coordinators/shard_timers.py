"""The timers of one shard's groups, on the coordinator's timing wheel.

Theory
Sessions are renewed by every heartbeat and almost never run out. So a renewal only moves the deadline in its entry; the
task on the wheel stays where it is, and when it fires too early it is put back for the rest. A wheel is touched once a
session timeout rather than once a heartbeat.

Threads: owner is the shard, under its lock. The wheel's thread only puts the entry into the shard's mailbox (`post`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.broker.coordinators.group_events import TimerKey
from barnabas.broker.timing_wheel import TimerTask

if TYPE_CHECKING:
    from barnabas.broker.timing_wheel import Timer
    from barnabas.common.clock import Clock

EntryKey: TypeAlias = "tuple[str, TimerKey]"
Post: TypeAlias = "Callable[[TimerEntry], None]"


class TimerEntry(TimerTask):
    """One wait on the wheel; `deadline_ms` may have moved on since it was put there."""

    __slots__ = ("_post", "deadline_ms", "due_ms", "event", "group_id", "key")

    def __init__(self, group_id: str, key: TimerKey, event: Any, delay_ms: int, now_ms: int, post: Post) -> None:
        super().__init__(delay_ms)
        self.group_id = group_id
        self.key = key
        self.event = event  # the group's, whatever its kind
        self.due_ms = now_ms + delay_ms  # monotonic; when the wheel fires
        self.deadline_ms = self.due_ms  # monotonic; when the time is really up, never before due_ms
        self._post = post

    def run(self) -> None:
        self._post(self)


class ShardTimers:
    """See the module."""

    __slots__ = ("_clock", "_entries", "_post", "_timer")

    def __init__(self, timer: Timer, clock: Clock, post: Post) -> None:
        self._timer = timer
        self._clock = clock
        self._post = post
        self._entries: dict[EntryKey, TimerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def start(self, group_id: str, key: TimerKey, delay_ms: int, event: Any) -> None:
        """(Re)start a timer."""
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

    def is_running(self, group_id: str, key: TimerKey) -> bool:
        """Whether a timer was started and neither fired nor was stopped."""
        return (group_id, key) in self._entries

    def stop(self, group_id: str, key: TimerKey) -> None:
        """Forget a timer."""
        entry = self._entries.pop((group_id, key), None)
        if entry is not None:
            self._timer.cancel(entry)

    def fired(self, entry: TimerEntry) -> Any:
        """Take what the wheel fired: the event if its time is up, None if it was stopped, restarted or renewed."""
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
        """Forget all timers of a group."""
        for owner, key in [entry for entry in self._entries if entry[0] == group_id]:
            self.stop(owner, key)

    def stop_all(self) -> None:
        """Forget everything."""
        for entry in self._entries.values():
            self._timer.cancel(entry)
        self._entries.clear()

    def _put(self, entry: TimerEntry) -> None:
        self._entries[entry.group_id, entry.key] = entry
        self._timer.add(entry)
