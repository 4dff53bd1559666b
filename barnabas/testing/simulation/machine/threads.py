"""Threads as `threading` has them: each is a task of the process that started it.

Threads: any task.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from barnabas.testing.simulation.machine.scheduler import ENDED, Reason, Task, active

#: Above every real one: a name that is set by this number must reach no real thread.
NATIVE_IDS_FROM: Final = 1 << 40
HUB_IDENT: Final = 1 << 39


class Thread:
    """See threading.Thread."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        assert group is None, "as in threading"
        self._scheduler = active()
        self._target = target
        self._args = tuple(args)
        self._kwargs = dict(kwargs or {})
        self._task: Task | None = None  # set by start
        self._joining: list[Task] = []
        self.name = name or str(getattr(target, "__name__", "thread"))
        self.daemon = bool(daemon)

    @property
    def ident(self) -> int | None:
        """See threading.Thread."""
        return None if self._task is None else self._task.ident

    @property
    def native_id(self) -> int | None:
        """See threading.Thread; no number of a real thread."""
        return None if self._task is None else NATIVE_IDS_FROM + self._task.ident

    def start(self) -> None:
        """See threading.Thread."""
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        starter = self._scheduler.current
        if starter is None:
            raise RuntimeError(f"thread {self.name} is started outside of the simulation")
        self._task = self._scheduler.spawn(starter.process, self.name, self._main)
        self._task.thread = self
        self._scheduler.point()

    def run(self) -> None:
        """See threading.Thread."""
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def is_alive(self) -> bool:
        """See threading.Thread."""
        return self._task is not None and self._task.state is not ENDED

    def join(self, timeout: float | None = None) -> None:
        """See threading.Thread."""
        if self._task is None:
            raise RuntimeError("cannot join thread before it is started")
        if self._task is self._scheduler.current:
            raise RuntimeError("cannot join current thread")
        self._scheduler.point()
        deadline_ns = self._scheduler.deadline_ns(timeout)
        while self.is_alive():
            current = self._scheduler.current
            if current is not None:
                self._joining.append(current)
            if not self._scheduler.park(_End(self._task), deadline_ns):
                if current in self._joining:
                    self._joining.remove(current)
                return

    # The names that these had before Python 3.10, which programs still use.

    def getName(self) -> str:  # noqa: N802
        """See threading.Thread."""
        return self.name

    def setName(self, name: str) -> None:  # noqa: N802
        """See threading.Thread."""
        self.name = name

    def isDaemon(self) -> bool:  # noqa: N802
        """See threading.Thread."""
        return self.daemon

    def setDaemon(self, daemonic: bool) -> None:  # noqa: N802
        """See threading.Thread."""
        self.daemon = daemonic

    def _main(self) -> None:
        try:
            self.run()
        except SystemExit:
            pass  # as in threading: it ends the thread
        finally:
            joining, self._joining = self._joining, []
            assert self._task is not None
            self._task.state = ENDED
            for task in joining:
                self._scheduler.wake(task)


class Timer(Thread):
    """See threading.Timer."""

    def __init__(
        self,
        interval: float,
        function: Callable[..., object],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.interval = interval
        self.function = function
        self.args = tuple(args or ())
        self.kwargs = dict(kwargs or {})
        self.finished = threading.Event()

    def cancel(self) -> None:
        """See threading.Timer."""
        self.finished.set()

    def run(self) -> None:
        """See threading.Thread."""
        if not self.finished.wait(self.interval):
            self.function(*self.args, **self.kwargs)
        self.finished.set()


class _End(Reason):
    """The end of a thread."""

    __slots__ = ("_task",)

    def __init__(self, task: Task) -> None:
        super().__init__(f"the end of {task!r}")
        self._task = task

    def blocker(self) -> Task | None:
        """See Wait."""
        return self._task


class _First:
    """The thread of a task that was not started as one: the main thread of a process."""

    def __init__(self, name: str, ident: int) -> None:
        self.name = name
        self.ident = ident
        self.native_id = NATIVE_IDS_FROM + ident
        self.daemon = False


_HUB_THREAD: Final = _First("MainThread", HUB_IDENT)


def current_thread() -> Any:
    """See threading.current_thread."""
    task = active().current
    if task is None:
        return _HUB_THREAD
    if task.thread is None:
        task.thread = _First("MainThread", task.ident)
    return task.thread


def get_ident() -> int:
    """See threading.get_ident."""
    task = active().current
    return HUB_IDENT if task is None else task.ident


def get_native_id() -> int:
    """See threading.get_native_id; no number of a real thread."""
    return NATIVE_IDS_FROM + get_ident()


def enumerate_threads() -> list[Any]:
    """See threading.enumerate; the threads of the calling task's process."""
    scheduler = active()
    current = scheduler.current
    if current is None:
        return [_HUB_THREAD]
    return [task.thread for task in scheduler.tasks if task.process is current.process and task.thread is not None]


class Local:
    """See threading.local. A subclass may have attributes of its class, and an `__init__`, which each thread calls."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keep the arguments for the other threads."""
        made = super().__new__(cls)
        object.__setattr__(made, "_by_ident", {get_ident(): {}})
        object.__setattr__(made, "_arguments", (args, kwargs))
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattribute__(self, name: str) -> Any:
        values = _values_of(self)
        if name == "__dict__":
            return values
        return values[name] if name in values else object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _values_of(self)[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del _values_of(self)[name]
        except KeyError:
            raise AttributeError(name) from None


def _values_of(local: Local) -> dict[str, Any]:
    """The attributes that a Local has in the calling thread."""
    by_ident: dict[int, dict[str, Any]] = object.__getattribute__(local, "_by_ident")
    ident = get_ident()
    values = by_ident.get(ident)
    if values is None:
        values = by_ident[ident] = {}
        args, kwargs = object.__getattribute__(local, "_arguments")
        local.__init__(*args, **kwargs)  # type: ignore[misc]
    return values
