"""Puts the simulated machine in the place of the real one, in an interpreter that does nothing else.

Modules look up `threading.Lock` and the like when they run, compiled ones too, and `from time import monotonic` when
they are imported. So `install` replaces attributes of the standard library's modules before the code under test is
imported. Conditions, events, semaphores, queues and selectors stay the standard library's: they are built of the parts
that are replaced here.

Threads: `install` is called once, before anything else, and `begin` before a history.
"""

from __future__ import annotations

import os
import queue
import random
import resource
import select
import selectors
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.testing.simulation.machine import programs, randomness, scheduler, threads, times
from barnabas.testing.simulation.machine.locks import Lock, RLock
from barnabas.testing.simulation.machine.network import sockets
from barnabas.testing.simulation.machine.network.links import Network
from barnabas.testing.simulation.machine.network.polling import Epoll, EventFd, Poll, current_process, select_ready
from barnabas.testing.simulation.machine.process import FIRST_DESCRIPTOR

if TYPE_CHECKING:
    from barnabas.testing.simulation.machine.digest import Digest
    from barnabas.testing.simulation.machine.scheduler import Scheduler

#: Of each process. Why fixed: the code under test sizes its caches by it.
DESCRIPTORS_MAX: Final = 65_536
#: The functions of `time` that have the same name in times.py.
TIMES: Final = (
    *("monotonic", "monotonic_ns", "time", "time_ns", "sleep", "clock_gettime", "clock_gettime_ns"),
    *("localtime", "gmtime", "ctime", "asctime", "strftime"),
)
#: What may be imported before the machine is replaced: the machine, and pytest's plugin.
EARLY: Final = "barnabas.testing"

#: They call the kernel past what is replaced here; their importers have a fallback in Python.
IN_C: Final = ("barnabas.broker.network.batches._sockets",)

_close, _dup, _pread, _read, _write = os.close, os.dup, os.pread, os.read, os.write


def install(used: Scheduler) -> None:
    """Replace the machine; `begin` comes next. Raises SimulationError if the code under test is imported already."""
    early = sorted(name for name in sys.modules if name.startswith("barnabas.") and not name.startswith(EARLY))
    early += ["asyncio"] if "asyncio" in sys.modules else []
    if early:
        raise scheduler.SimulationError(f"{early[0]} was imported before the machine was replaced")
    scheduler.activate(used)
    _replace_threads()
    _replace_times()
    _replace_sockets()
    _replace_descriptors()
    _replace(random, Random=randomness.SeededRandom, _urandom=randomness.urandom)
    _replace(os, urandom=randomness.urandom)
    without: dict[str, Any] = dict.fromkeys(IN_C)
    sys.modules.update(without)
    programs.prepare(used)


def begin(used: Scheduler, seed: int, digest: Digest, order: int = 0) -> Network:
    """Begin the history of a seed on the machine that is installed; return its network."""
    used.begin(seed, digest=digest, order=order)
    randomness.seed_with(seed)
    random.seed(f"{seed}/module")
    network = Network(used)
    sockets.use(network)
    return network


def _replace(place: Any, **parts: Any) -> None:
    for name, part in parts.items():
        setattr(place, name, part)


def _replace_threads() -> None:
    _replace(
        threading,
        Lock=Lock,
        _allocate_lock=Lock,
        RLock=RLock,
        Thread=threads.Thread,
        Timer=threads.Timer,
        local=threads.Local,
        get_ident=threads.get_ident,
        get_native_id=threads.get_native_id,
        current_thread=threads.current_thread,
        enumerate=threads.enumerate_threads,
        _time=times.monotonic,
    )
    running: dict[int, Any] = vars(threading)["_active"]
    running[threads.HUB_IDENT] = threading.main_thread()  # after a fork it must be found
    _replace(queue, time=times.monotonic, SimpleQueue=vars(queue)["_PySimpleQueue"])


def _replace_times() -> None:
    for name in TIMES:
        _replace(time, **{name: getattr(times, name)})
    _replace(time, perf_counter=times.monotonic, perf_counter_ns=times.monotonic_ns)
    _replace(time, thread_time=times.cpu_time, thread_time_ns=times.cpu_time_ns)
    _replace(time, process_time=times.cpu_time, process_time_ns=times.cpu_time_ns)


def _replace_sockets() -> None:
    _replace(
        socket,
        socket=sockets.Socket,
        SocketType=sockets.Socket,
        socketpair=sockets.socketpair,
        getaddrinfo=sockets.getaddrinfo,
        gethostname=sockets.gethostname,
        gethostbyname=sockets.gethostbyname,
        gethostbyname_ex=sockets.gethostbyname_ex,
        gethostbyaddr=sockets.gethostbyaddr,
        getnameinfo=sockets.getnameinfo,
    )
    _replace(select, epoll=Epoll, poll=Poll, select=select_ready)
    _replace(selectors.EpollSelector, _selector_cls=Epoll)
    _replace(selectors.PollSelector, _selector_cls=Poll)
    _replace(selectors.SelectSelector, _select=staticmethod(select_ready))
    _replace(selectors, DefaultSelector=selectors.EpollSelector)


def _replace_descriptors() -> None:
    _replace(os, close=close, dup=dup, pread=pread, read=read, write=write, sendfile=sendfile)
    _replace(os, eventfd=eventfd, eventfd_write=eventfd_write, eventfd_read=eventfd_read)
    _replace(os, sched_getaffinity=lambda _pid: {0})
    _replace(resource, getrlimit=lambda _which: (DESCRIPTORS_MAX, DESCRIPTORS_MAX))
    _replace(resource, setrlimit=lambda _which, _limits: None)


def _is_simulated(fd: int) -> bool:
    return fd >= FIRST_DESCRIPTOR


def close(fd: int) -> None:
    """See os.close."""
    if _is_simulated(fd):
        current_process().close(fd)
    else:
        _close(fd)


def dup(fd: int) -> int:
    """See os.dup."""
    if not _is_simulated(fd):
        return _dup(fd)
    process = current_process()
    return process.open(process.find(fd))


def pread(fd: int, size: int, position: int) -> bytes:
    """See os.pread."""
    if not _is_simulated(fd):
        return _pread(fd, size, position)
    data: bytes = _sliced(fd).pread(size, position)
    return data


def read(fd: int, length: int) -> bytes:
    """See os.read; of sockets."""
    if not _is_simulated(fd):
        return _read(fd, length)
    target: Any = current_process().find(fd)
    data: bytes = target.recv(length)
    return data


def write(fd: int, data: Any) -> int:
    """See os.write; to sockets."""
    if not _is_simulated(fd):
        return _write(fd, data)
    target: Any = current_process().find(fd)
    count: int = target.send(data)
    return count


def sendfile(out_fd: int, in_fd: int, offset: int, count: int) -> int:
    """See os.sendfile."""
    target: Any = current_process().find(out_fd)
    data = _sliced(in_fd).pread(count, offset)
    return target.send(data) if data else 0


def eventfd(initial: int, flags: int = 0) -> int:
    """See os.eventfd; non-blocking."""
    return current_process().open(EventFd(initial))


def eventfd_write(fd: int, value: int) -> None:
    """See os.eventfd_write."""
    _eventfd(fd).write(value)
    scheduler.active().point()


def eventfd_read(fd: int) -> int:
    """See os.eventfd_read."""
    value = _eventfd(fd).take()
    if not value:
        raise BlockingIOError
    return value


def _eventfd(fd: int) -> EventFd:
    found = current_process().find(fd)
    assert isinstance(found, EventFd), f"descriptor {fd} is no eventfd"
    return found


def _sliced(fd: int) -> Any:
    found = current_process().find(fd)
    assert hasattr(found, "pread"), f"descriptor {fd} is no file"
    return found
