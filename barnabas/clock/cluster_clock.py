"""Moves the clocks of all nodes of a cluster together, step by step.

Rules
1. All nodes are moved to the same offset before the next step. Each step ends when no node has work left that the time
   caused: two rounds of looks in a row find nothing, since the work of one node can cause work of another (markers of
   an aborted transaction).
2. After the last step every periodic task runs once more, twice in all: what its first run caused (an aborted
   transaction) may be work of another (compaction).
3. A node whose process has ended is left out; it has the offset when it starts again (`barnabas.clock.file`). A node
   that ends in the middle of an answer breaks the connection: it is asked again, until it refuses, at most TRIES times.
   Nodes that appear during a walk are moved with the next step.
4. A walk has at most STEPS_MAX steps, so it ends although its caller may have gone.

Threads: any; one walk at a time for a cluster, in all processes (a lock file in its directory).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from barnabas.clock.durations import MS_MAX, duration_ms
from barnabas.clock.errors import ClockError
from barnabas.clock.walk import LEAST_MS, next_point_ms
from barnabas.cluster import LocalCluster
from barnabas.common.clock import SystemClock
from barnabas.common.deadline import Deadline
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.pages.page_client import UNAUTHORIZED, ask
from barnabas.faults.pages import OFF, FaultsUnavailableError, NodePage, target_of

TIMEOUT_S: Final = 60.0
PAGE_TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 0.003
BROKEN_PAUSE_S: Final = 0.05
LOOKS: Final = 2
LAST_RUNS: Final = 2
TRIES: Final = 5
STEPS_MAX: Final = 100_000
LOCK: Final = "clock.lock"

Status = dict[str, Any]  # of a node, as in GET /clock
Ask = Callable[[NodePage, str, object], Status]


class BrokenError(ClockError):
    """A node's connection broke: it may be about to end."""


class ClusterClock:
    """See the module. `target` is a `LocalCluster` or the directory of a cluster that runs."""

    def __init__(self, target: object) -> None:
        self._directory = target.directory if isinstance(target, LocalCluster) else Path(str(target))
        if not self._directory.is_dir():
            raise ClockError(f"{str(target)!r} is not a cluster: give a LocalCluster or its directory")
        self._target = target_of(target if isinstance(target, LocalCluster) else self._directory)
        self._ask: Ask = ask_node

    def now(self) -> datetime:
        """Return the time of the cluster, in UTC. Raises ClockError."""
        return datetime.fromtimestamp(max(status["now_ms"] for status in self.look()) / 1000, UTC)

    def offset_ms(self) -> int:
        """Return by how much the cluster's time is ahead of the machine's. Raises ClockError."""
        return max(int(status["offset_ms"]) for status in self.look())

    def look(self) -> list[Status]:
        """Return the state of every node, as in GET /clock. Raises ClockError."""
        return self._ask_all("GET")

    def advance(self, span: object, *, step: object = None, timeout_s: float = TIMEOUT_S) -> datetime:
        """Move the time forward by `span` ("7d", a timedelta, milliseconds); return the new time.

        Everything that is due meanwhile has expired when it returns, in the order of the deadlines (`walk.py` says how
        exactly). `step` is the longest step, of which there may be STEPS_MAX. Raises ClockError, also if a node still
        works `timeout_s` after a step; the clock then stays where it is.
        """
        span_ms = duration_ms(span)
        step_ms = None if step is None else duration_ms(step)
        if step_ms is not None and span_ms > STEPS_MAX * max(LEAST_MS, step_ms):
            raise ClockError(f"that takes more than {STEPS_MAX:,} steps: let them be longer, or the time shorter")
        with self._alone():
            start_ms = self.offset_ms()
            if start_ms + span_ms > MS_MAX:
                raise ClockError("the cluster would be ahead by more than 100 years")
            due_in_ms = self._move(start_ms, timeout_s)
            walked_ms = 0
            while walked_ms < span_ms:
                walked_ms = next_point_ms(walked_ms, span_ms, due_in_ms, step_ms)
                due_in_ms = self._move(start_ms + walked_ms, timeout_s)
            for _ in range(LAST_RUNS):
                self._move(start_ms + span_ms, timeout_s, is_last=True)
        return self.now()

    def _move(self, offset_ms: int, timeout_s: float, *, is_last: bool = False) -> int | None:
        """Move every node, and wait until none has work; return the time to the next deadline."""
        states = self._ask_all("POST", {"offset_ms": offset_ms, "is_last": is_last})
        deadline = Deadline(SystemClock(), timeout_s * 1000)
        quiet = 0 if any(state["busy"] for state in states) else 1
        while quiet < LOOKS:
            if quiet == 0:
                if deadline.is_expired():
                    raise ClockError(f"{_words(states)} after {timeout_s:g} s: the clock stays where it is")
                select.select([], [], [], PAUSE_S)
            states = self.look()
            quiet = 0 if any(state["busy"] for state in states) else quiet + 1
        return min((state["next_due_in_ms"] for state in states if state["next_due_in_ms"] is not None), default=None)

    def _ask_all(self, method: str, body: object = None) -> list[Status]:
        answers = []
        try:
            pages = self._target.pages().values()
        except FaultsUnavailableError as error:
            raise ClockError(str(error)) from None
        for page in pages:
            with contextlib.suppress(ConnectionRefusedError):  # it has just ended, or does not serve yet
                answers.append(self._ask_again(page, method, body))
        if not answers:
            raise ClockError(f"no node of the cluster in {self._directory} runs")
        return answers

    def _ask_again(self, page: NodePage, method: str, body: object) -> Status:
        """Ask a node that may be ending (rule 3); a move that it had made already changes nothing."""
        for _ in range(TRIES - 1):
            try:
                return self._ask(page, method, body)
            except BrokenError:
                select.select([], [], [], BROKEN_PAUSE_S)
        return self._ask(page, method, body)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            lock = OsFileSystem().lock(str(self._directory / LOCK))
        except BlockingIOError:
            raise ClockError("the clock of this cluster is being moved already") from None
        try:
            yield
        finally:
            lock.release()


def ask_node(page: NodePage, method: str, body: object = None) -> Status:
    """Send a request to /clock of a node. Raises ClockError, BrokenError, ConnectionRefusedError."""
    if page.port <= 0:
        raise ClockError(f"{page.name} has no page for its clock: set barnabas.metrics.port")
    text = None if body is None else json.dumps(body)
    try:
        answer = ask(page.host, page.port, method, "/clock", page.access, timeout_s=PAGE_TIMEOUT_S, body=text)
    except ConnectionRefusedError:
        raise
    except (OSError, http.client.HTTPException) as error:
        kind = ClockError if isinstance(error, TimeoutError) else BrokenError
        raise kind(f"{page.name} does not answer at {page.host}:{page.port}: {error}") from error
    if answer.status == UNAUTHORIZED:
        raise ClockError(f"{page.name} asks for other credentials than it was given")
    status = answer.fields()
    if answer.status in OFF and not status:
        raise ClockError(f"the clock of {page.name} cannot be moved: start it with barnabas.clock.enable=true")
    if answer.status >= 400:
        raise ClockError(f"{page.name}: {status.get('error', f'it answers with status {answer.status}')}")
    return status


def _words(states: list[Status]) -> str:
    busy = [f"{state['role']}-{state['node']} ({', '.join(state['busy'])})" for state in states if state["busy"]]
    return f"{' and '.join(busy)} is still busy"
