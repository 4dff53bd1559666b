"""How a processor waits for events: asleep in its selector, or spinning (busy_poll.py).

Both count as idle time.

Threads: the processor that owns the selector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.network.busy_poll import BusyPoll, BusyPollTurn
from barnabas.broker.network.selector import EdgeSelector
from barnabas.broker.network.transport import TURN_BYTES
from barnabas.broker.request_channel import STALL_S, RequestQueue, ResponseQueue
from barnabas.common.processes.calls import yield_core

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.network.network_metrics import IdleMeter
    from barnabas.protocol.schema import Part

Events = list[tuple[int, int]]


class EventWait:
    """Waits for one processor's events."""

    __slots__ = ("_busy_poll", "_idle", "_now_ns", "_requests", "_responses", "_selector")

    def __init__(
        self,
        selector: EdgeSelector,
        requests: RequestQueue,
        responses: ResponseQueue,
        turn: BusyPollTurn,
        idle: IdleMeter,
        now_ns: Callable[[], int],
    ) -> None:
        self._selector = selector
        self._requests = requests
        self._responses = responses
        self._busy_poll = BusyPoll(turn)
        self._idle = idle
        self._now_ns = now_ns

    def for_answer(self) -> Events:
        """Spin while a handler answers, if that pays, until the answer is queued (busy_poll.py, rule 5).

        Returns the events that come meanwhile.
        """
        budget_ns = self._busy_poll.budget_ns()
        if not budget_ns or self._requests.is_idle():
            return []
        now_ns = self._now_ns()
        end_ns = now_ns + budget_ns
        events: Events = []
        self._idle.begin(now_ns)
        while not events and now_ns < end_ns:
            yield_core()
            if self._responses.has_waiting():
                break
            events = self._selector.poll(0)
            now_ns = self._now_ns()
        self._idle.end(self._now_ns())
        return events

    def for_events(self, now_ns: int, timeout_s: float) -> Events:
        """Wait for events, at most `timeout_s`, and at most STALL_S while requests wait for a handler.

        The caller has called the response queue's `may_sleep`.
        """
        self._idle.begin(now_ns)
        events = self._wait(now_ns, self._limited(timeout_s))
        self._woke_up(self._now_ns())
        return events

    def while_sending(
        self, now_ns: int, timeout_s: float, descriptors: list[int], parts: list[list[Part]]
    ) -> tuple[Events, list[tuple[int, int, bool, int]]]:
        """Wait as `for_events` does, but never spin, and send parts whenever a full socket has space.

        Returns the other events, and what was sent to each socket (`python_wait_and_send`). Sending is not idle time.
        """
        if self._busy_poll.budget_ns():
            self._busy_poll.stop()  # another processor may spin meanwhile
        self._idle.begin(now_ns)
        sending_ns = 0
        try:
            events, sent, sending_ns = self._selector.poll_and_send(
                self._limited(timeout_s), descriptors, parts, TURN_BYTES
            )
        finally:
            self._woke_up(self._now_ns() - sending_ns)
        return events, sent

    def _limited(self, timeout_s: float) -> float:
        return min(timeout_s, STALL_S) if self._requests.has_waiting() else timeout_s

    def _woke_up(self, idle_until_ns: int) -> None:
        self._idle.end(idle_until_ns)
        self._responses.stay_awake()
        self._requests.wake_if_stalled()

    def stop(self) -> None:
        """Spin no more until many waits were short again; let another processor spin."""
        self._busy_poll.stop()

    def _wait(self, now_ns: int, timeout_s: float) -> Events:
        if not self._requests.is_idle():
            return self._selector.poll(timeout_s)
        budget_ns = self._busy_poll.budget_ns()
        if not budget_ns:
            events = self._selector.poll(timeout_s)
            self._busy_poll.waited(self._now_ns() - now_ns)
            return events
        waited_ns = 0
        events = []
        while not events and waited_ns < budget_ns:
            yield_core()
            events = self._selector.poll(0)
            waited_ns = self._now_ns() - now_ns
        self._busy_poll.waited(waited_ns)
        return events or self._selector.poll(timeout_s)
