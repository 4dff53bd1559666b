"""Mistakes in waiting: purgatories, the queues between threads, runs of requests."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

WAITING: Final = {
    "a-watcher-is-tried-once": Mutant(
        "broker.purgatory",
        "is_complete = not operation.is_completed and operation.try_complete()",
        "is_complete = operation.is_completed",
        "a change between the first try and the watching is not missed",
        life="restless=1,pause_ms=800",
    ),
    "operations-are-not-timed": Mutant(
        "broker.purgatory",
        "if operation.delay_ms != _FOR_EVER_MS:\n            self._time(operation)",
        "if operation.delay_ms == _FOR_EVER_MS:\n            self._time(operation)",
        "a request that waits is answered when its time is up",
    ),
    "late-produce-is-acknowledged": Mutant(
        "broker.replication.delayed.delayed_produce",
        "errors = dict.fromkeys(self._pending, ErrorCode.REQUEST_TIMED_OUT)",
        "errors = dict.fromkeys(self._pending, ErrorCode.NONE)",
        "a produce that ran out of time is no success",
    ),
    "a-former-leader-acknowledges": Mutant(
        "broker.replication.delayed.delayed_produce",
        "if error is not _NONE:\n                    self._errors[tp] = error",
        "if error is _NONE:\n                    self._errors[tp] = error",
        "a batch that waits at a broker that leads no more is refused",
    ),
    "pushes-wake-nobody": Mutant(
        "broker.replication.leadership",
        "self._manager.complete_all_delayed([*errors, *dropped])",
        "pass",
        "a request that waits at a former leader is answered at the push",
        "e4979d3",
    ),
    "follower-fetches-wake-nobody": Mutant(
        "broker.replication.reading",
        "self._note(held, partition, params, item, now_ms):\n            moved.append(item.tp)",
        "self._note(held, partition, params, item, now_ms) and False:\n            moved.append(item.tp)",
        "a produce is answered as soon as the watermark has passed it",
    ),
    "appends-wake-nobody": Mutant(
        "broker.apis.k00_produce",
        "request.moved.append(tp)",
        "request.moved += ()",
        "a fetch that waits is answered as soon as there are records",
    ),
    "answers-wake-no-processor": Mutant(
        "broker.request_channel",
        "self.queue.append(item)\n            must_wake = self._is_asleep",
        "self.queue.append(item)\n            must_wake = False",
        "an answer is sent although its processor sleeps",
    ),
    "processors-sleep-over-answers": Mutant(
        "broker.request_channel",
        "self._is_asleep = not self.queue\n            return self._is_asleep",
        "self._is_asleep = not self.queue\n            return True",
        "a processor does not sleep while answers wait",
    ),
    "stalled-requests-wait": Mutant(
        "broker.network.event_wait",
        "self._requests.wake_if_stalled()",
        "self._requests.has_waiting()",
        "a request that waits behind a slow one gets a handler that sleeps",
        life="stalls=1,producers=2,pause_ms=50",
    ),
    "pushes-wait-behind-clients": Mutant(
        "broker.processors",
        "self._queue_push(self._control)",
        "pass",
        "a broker whose handlers are all held obeys the controllers (issue 15, A11)",
        life="stalls=1,producers=2,pause_ms=50",
    ),
    "the-rest-of-a-run-is-forgotten": Mutant(
        "broker.processors",
        "connection.postponed = last.following",
        "connection.postponed = None",
        "every request of a run is answered",
    ),
    "a-run-goes-on-while-one-waits": Mutant(
        "broker.handlers",
        "if request is not None and request.goes_on else None",
        "if request is not None and (request.goes_on or request.operation is not None) else None",
        "the requests of a connection are carried out one at a time",
        "416bf63",
    ),
    "unmuted-connections-are-not-read": Mutant(
        "broker.processors",
        "connection.is_muted = False\n        if connection.may_have_input or not connection.frames.is_at_boundary():\n"
        "            self._read(connection)",
        "connection.is_muted = False",
        "a request that came while its connection was muted is read",
    ),
}
