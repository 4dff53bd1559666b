"""epoll and eventfd, as epoll(7) describes them.

Facts that the code under test depends on
- A change of a descriptor puts its registration into the ready list of the epoll if it concerns a watched event.
- `poll` reports the whole present state of a ready registration. An edge-triggered one then leaves the list; a
  level-triggered one stays while the state lasts.
- Registering and modifying look at the state once, so that nothing that is there already is missed.
- Each write to an eventfd is a new edge.

Threads: any task.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.testing.simulation.machine.scheduler import Reason, SimulationError, active

if TYPE_CHECKING:
    from barnabas.testing.simulation.machine.process import Process
    from barnabas.testing.simulation.machine.scheduler import Task

_ALWAYS: Final = select.EPOLLERR | select.EPOLLHUP


class Pollable:
    """Something whose state tasks wait for: a socket, an eventfd."""

    def __init__(self) -> None:
        self.watches: list[Watch] = []
        self._waiting: list[Task] = []

    def readiness(self) -> int:
        """Return the present state, in the bits of epoll."""
        raise NotImplementedError

    def release(self) -> None:
        """See Descriptor."""
        raise NotImplementedError

    def notify(self, bits: int) -> None:
        """Report a change to everybody who waits for it."""
        for watch in self.watches:
            if watch.mask & bits:
                watch.epoll.changed(watch)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            scheduler = active()
            for task in waiting:
                scheduler.wake(task)

    def wait_for(self, bits: int, deadline_ns: int | None, reason: Reason) -> bool:
        """Wait until the state has one of these bits; false if the time is up first."""
        scheduler = active()
        while not self.readiness() & bits:
            task = scheduler.current
            if task is None:
                raise SimulationError(f"code outside of the simulation waits for {reason.describe()}")
            self._waiting.append(task)
            if not scheduler.park(reason, deadline_ns):
                if task in self._waiting:
                    self._waiting.remove(task)
                return bool(self.readiness() & bits)
        return True

    def wake_at_change(self, task: Task) -> None:
        """Wake a task at the next change."""
        self._waiting.append(task)

    def forget_task(self, task: Task) -> None:
        """Wake this task at no change any more."""
        if task in self._waiting:
            self._waiting.remove(task)

    def unwatch(self) -> None:
        """Leave every epoll, as a closed descriptor does."""
        watches, self.watches = self.watches, []
        for watch in watches:
            watch.epoll.forget(watch)


class Watch:
    """A registration of a descriptor with an epoll."""

    __slots__ = ("epoll", "fd", "is_edge", "mask", "pollable")

    def __init__(self, epoll: Epoll, fd: int, pollable: Pollable, events: int) -> None:
        self.epoll = epoll
        self.fd = fd
        self.pollable = pollable
        self.use(events)

    def use(self, events: int) -> None:
        """Watch these events from now on."""
        self.mask = (events | _ALWAYS) & ~select.EPOLLET
        self.is_edge = bool(events & select.EPOLLET)

    def state(self) -> int:
        """Return the watched part of the state."""
        return self.pollable.readiness() & self.mask


class Epoll:
    """See select.epoll."""

    def __init__(self, sizehint: int = -1, flags: int = 0) -> None:
        self._scheduler = active()
        self._process = current_process()
        self._watches: dict[int, Watch] = {}
        self._ready: dict[Watch, None] = {}  # in the order in which they became ready
        self._waiting: list[Task] = []
        self._reason = Reason("events of an epoll")
        self._fd = self._process.open(self)

    @property
    def closed(self) -> bool:
        """See select.epoll."""
        return self._fd < 0

    def fileno(self) -> int:
        """See select.epoll."""
        return self._fd

    def register(self, fd: object, eventmask: int = select.EPOLLIN | select.EPOLLPRI | select.EPOLLOUT) -> None:
        """See select.epoll."""
        self._check_open()
        number = descriptor_number(fd)
        if number in self._watches:
            raise FileExistsError(17, "File exists")
        pollable = pollable_of(self._process, number)
        watch = self._watches[number] = Watch(self, number, pollable, eventmask)
        pollable.watches.append(watch)
        if watch.state():
            self.changed(watch)

    def modify(self, fd: object, eventmask: int) -> None:
        """See select.epoll."""
        self._check_open()
        watch = self._watches.get(descriptor_number(fd))
        if watch is None:
            raise FileNotFoundError(2, "No such file or directory")
        watch.use(eventmask)
        if watch.state():
            self.changed(watch)

    def unregister(self, fd: object) -> None:
        """See select.epoll."""
        self._check_open()
        watch = self._watches.get(descriptor_number(fd))
        if watch is None:
            raise FileNotFoundError(2, "No such file or directory")
        watch.pollable.watches.remove(watch)
        self.forget(watch)

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """See select.epoll."""
        self._check_open()
        scheduler = self._scheduler
        scheduler.point()
        found = self._collect(maxevents)
        if found or timeout == 0:
            return found
        deadline_ns = scheduler.deadline_ns(timeout)
        while not found:
            task = scheduler.current
            if task is not None:
                self._waiting.append(task)
            if not scheduler.park(self._reason, deadline_ns):
                assert task is not None
                if task in self._waiting:
                    self._waiting.remove(task)
                return self._collect(maxevents)
            found = self._collect(maxevents)
        return found

    def close(self) -> None:
        """See select.epoll."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._process.close(fd)

    def __enter__(self) -> Epoll:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For descriptors.

    def changed(self, watch: Watch) -> None:
        """Put a registration into the ready list, and wake the tasks that poll."""
        self._ready[watch] = None
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for task in waiting:
                self._scheduler.wake(task)

    def forget(self, watch: Watch) -> None:
        """Drop the registration of a closed descriptor."""
        self._watches.pop(watch.fd, None)
        self._ready.pop(watch, None)

    # See Descriptor.

    def release(self) -> None:
        """See Descriptor."""
        for watch in list(self._watches.values()):
            watch.pollable.watches.remove(watch)
        self._watches.clear()
        self._ready.clear()

    def _collect(self, events_max: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for watch in list(self._ready):
            if 0 < events_max <= len(found):
                break
            state = watch.state()
            # Why: a level-triggered one that is still ready goes to the end of the list, so that others get a turn.
            del self._ready[watch]
            if state:
                found.append((watch.fd, state))
                if not watch.is_edge:
                    self._ready[watch] = None
        return found

    def _check_open(self) -> None:
        if self._fd < 0:
            raise ValueError("I/O operation on closed epoll object")


class Poll:
    """See select.poll: level-triggered, and without a descriptor of its own."""

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}

    def register(self, fd: object, eventmask: int = select.POLLIN | select.POLLPRI | select.POLLOUT) -> None:
        """See select.poll."""
        self._masks[descriptor_number(fd)] = eventmask

    def modify(self, fd: object, eventmask: int) -> None:
        """See select.poll."""
        number = descriptor_number(fd)
        if number not in self._masks:
            raise FileNotFoundError(2, "No such file or directory")
        self._masks[number] = eventmask

    def unregister(self, fd: object) -> None:
        """See select.poll."""
        del self._masks[descriptor_number(fd)]

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """See select.poll; the timeout is in milliseconds."""
        seconds = None if timeout is None or timeout < 0 else timeout / 1000
        return wait_for_any(self._masks, seconds)


def wait_for_any(masks: dict[int, int], timeout_s: float | None) -> list[tuple[int, int]]:
    """Wait until a descriptor of the calling process has a state that is asked for; return all that have one.

    poll(2) and epoll(7) use the same bits for what is known here.
    """
    scheduler, process = active(), current_process()
    scheduler.point()
    deadline_ns = scheduler.deadline_ns(timeout_s)
    reason = Reason("events of descriptors")
    while True:
        watched: list[Pollable] = []
        found: list[tuple[int, int]] = []
        for number, mask in masks.items():
            try:
                pollable = pollable_of(process, number)
            except OSError:
                found.append((number, select.POLLNVAL))
                continue
            state = pollable.readiness() & (mask | _ALWAYS)
            watched.append(pollable)
            if state:
                found.append((number, state))
        if found or timeout_s == 0 or (deadline_ns is not None and scheduler.now_ns >= deadline_ns):
            return found
        task = scheduler.current
        assert task is not None
        for pollable in watched:
            pollable.wake_at_change(task)
        scheduler.park(reason, deadline_ns)
        for pollable in watched:
            pollable.forget_task(task)


def select_ready(
    reading: Iterable[Any], writing: Iterable[Any], special: Iterable[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """See select.select."""
    readers, writers = list(reading), list(writing)
    masks: dict[int, int] = {}
    for bits, objects in ((select.POLLIN, readers), (select.POLLOUT, writers), (select.POLLPRI, list(special))):
        for each in objects:
            number = descriptor_number(each)
            masks[number] = masks.get(number, 0) | bits
    found = dict(wait_for_any(masks, timeout))
    if any(state & select.POLLNVAL for state in found.values()):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    can_read = select.POLLIN | select.POLLHUP | select.POLLERR
    can_write = select.POLLOUT | select.POLLERR
    return (
        [each for each in readers if found.get(descriptor_number(each), 0) & can_read],
        [each for each in writers if found.get(descriptor_number(each), 0) & can_write],
        [],
    )


class EventFd(Pollable):
    """See eventfd(2)."""

    def __init__(self, initial: int = 0) -> None:
        super().__init__()
        self.value = initial

    def readiness(self) -> int:
        """See Pollable."""
        return select.EPOLLOUT | (select.EPOLLIN if self.value else 0)

    def write(self, value: int) -> None:
        """Add to the value: a new edge."""
        self.value += value
        self.notify(select.EPOLLIN)

    def take(self) -> int:
        """Return the value, and set it to zero."""
        value, self.value = self.value, 0
        return value

    def release(self) -> None:
        """See Descriptor."""
        self.unwatch()


def current_process() -> Process:
    """Return the process of the calling task."""
    task = active().current
    if task is None:
        raise SimulationError("a descriptor is opened outside of the simulation")
    return task.process


def descriptor_number(fd: Any) -> int:
    """Return the number of a descriptor, or of an object that has one."""
    number: int = fd if isinstance(fd, int) else fd.fileno()
    return number


def pollable_of(process: Process, number: int) -> Pollable:
    """Return what a process can poll under a number; raises OSError."""
    found = process.find(number)
    if isinstance(found, Pollable):
        return found
    inner = getattr(found, "pollable", None)
    if not isinstance(inner, Pollable):
        raise PermissionError(1, "Operation not permitted")
    return inner
