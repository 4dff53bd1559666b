"""A program of a test, in a simulated process of its own, which can be killed and paused.

Programs share the interpreter, so they share the state of modules. All else is their own: address, sockets, threads and
clocks.

Threads: the test's tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.testing.simulation.machine.process import Process
from barnabas.testing.simulation.machine.scheduler import ENDED, Scheduler, Task

POLL_NS = 10_000_000


class Application:
    """A function that runs in a process of its own until it returns, raises or is killed."""

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        address: str,
        function: Callable[..., object],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tell: Callable[[str], None],
    ) -> None:
        self.name = name
        self._tell = tell  # adds to the story
        self.process = Process(scheduler, name, address)
        self.error: BaseException | None = None  # what the function raised, until `join` raises it
        self.result: Any = None  # what the function returned
        self._scheduler = scheduler
        self._main = scheduler.spawn(self.process, name, lambda: self._run(function, args, kwargs))

    def __repr__(self) -> str:
        return self.name

    @property
    def address(self) -> str:
        """Its address in the simulated network."""
        return self.process.address

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return not self.process.is_dead

    def kill(self) -> None:
        """End the process as SIGKILL does; no code of it runs any more."""
        if self.is_running:
            self._tell(f"{self} is killed")
            self.process.kill()

    def pause(self) -> None:
        """Stop the process as SIGSTOP does."""
        if self.is_running and not self.process.is_paused:
            self._tell(f"{self} is paused")
            self._scheduler.pause(self.process)

    def resume(self) -> None:
        """End a pause, as SIGCONT does."""
        if self.is_running and self.process.is_paused:
            self._tell(f"{self} runs on")
            self._scheduler.resume(self.process)

    def join(self, timeout: float = 60.0) -> Any:
        """Wait until the process ends; return what the function returned, or raise what it raised.

        Raises AssertionError if it has not ended within `timeout` seconds of virtual time.
        """
        limit_ns = self._scheduler.now_ns + int(timeout * 1e9)
        while self.is_running:
            if self._scheduler.now_ns >= limit_ns:
                raise AssertionError(f"{self.name} did not end within {timeout:g} s")
            self._scheduler.sleep_ns(POLL_NS)
        error, self.error = self.error, None
        if error is not None:
            raise error
        return self.result

    def _run(self, function: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        try:
            self.result = function(*args, **kwargs)
        except SystemExit:
            pass  # it ends a program
        except BaseException as error:
            self.error = error
        while any(self._keeps_running(task) for task in self._scheduler.tasks):
            self._scheduler.sleep_ns(POLL_NS)
        self.process.kill()

    def _keeps_running(self, task: Task) -> bool:
        """Whether a task is a thread for whose end a Python program waits."""
        is_other = task.process is self.process and task is not self._main
        return is_other and task.state is not ENDED and not getattr(task.thread, "daemon", True)
