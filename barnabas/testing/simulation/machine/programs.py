"""asyncio, dates and imports, for other people's programs on the simulated machine.

Rules
1. Nothing here names a library. A program that uses sockets, threads, asyncio and clocks of the standard library runs
   unchanged if it is imported after `prepare`.
2. asyncio is the one in Python. The one in C keeps its running loop by the thread of the operating system, which all
   tasks share.
3. Objects of classes without a hash of their own are hashed by the order in which they were first hashed, not by their
   address. So a set of them has the same order in every run. Objects without a `__dict__` keep their address.
4. A task that imports is not interrupted. Import locks belong to threads of the operating system, so another task would
   see half of a module.

Threads: `prepare` is called once, by `patches.install`.
"""

from __future__ import annotations

import builtins
import contextlib
import datetime
import itertools
import sys
from typing import TYPE_CHECKING, Any, Final

from barnabas.testing.simulation.machine import threads, times

if TYPE_CHECKING:
    from barnabas.testing.simulation.machine.scheduler import Scheduler

_import: Final = builtins.__import__
_build_class: Final = builtins.__build_class__
_HASH: Final = "_simulated_hash"
_hashes: Final = itertools.count()


def prepare(used: Scheduler) -> None:
    """Replace what is left."""
    _replace_hashes()
    _replace_asyncio()
    _replace_dates()
    _replace_import(used)


def _replace_asyncio() -> None:
    modules: dict[str, Any] = dict.fromkeys(("_asyncio",))
    sys.modules.update(modules)
    import asyncio  # noqa: F401


def _replace_hashes() -> None:
    thread: Any = threads.Thread
    thread.__hash__ = _hash_by_order

    def building(function: Any, name: str, *bases: Any, **keywords: Any) -> Any:
        made = _build_class(function, name, *bases, **keywords)
        # Why not our own: the code under test has the same history with its compiled classes, which are not built here.
        if isinstance(made, type) and not made.__module__.startswith("barnabas."):
            is_by_address = vars(object)["__hash__"] is getattr(made, "__hash__", None)
            if is_by_address and made.__dictoffset__ and not issubclass(made, type):
                with contextlib.suppress(TypeError, AttributeError):  # a metaclass may refuse it
                    type.__setattr__(made, "__hash__", _hash_by_order)
        return made

    module: Any = builtins
    module.__build_class__ = building


def _hash_by_order(self: Any) -> int:
    values = object.__getattribute__(self, "__dict__")
    found = values.get(_HASH)
    if found is None:
        found = values[_HASH] = next(_hashes)
    number: int = found
    return number


def _replace_dates() -> None:
    module: Any = datetime
    module.datetime, module.date = Datetime, Date


class _IsReal(type):
    """Takes every object of the class that is replaced for one of the class that replaces it."""

    real: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)


class Datetime(datetime.datetime, metaclass=_IsReal):
    """See datetime.datetime."""

    real = datetime.datetime

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        """See datetime.datetime."""
        return cls.fromtimestamp(times.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        """See datetime.datetime."""
        return cls.fromtimestamp(times.time(), datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        """See datetime.datetime."""
        return cls.now()


class Date(datetime.date, metaclass=_IsReal):
    """See datetime.date."""

    real = datetime.date

    @classmethod
    def today(cls) -> Any:
        """See datetime.date."""
        return cls.fromtimestamp(times.time())


def _replace_import(used: Scheduler) -> None:
    modules = sys.modules

    # The parameters have the names of the built-in function.
    def importing(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        found = modules.get(name) if level == 0 else None
        if found is not None and not (fromlist and hasattr(found, "__path__")):
            return _import(name, globals, locals, fromlist, level)
        task = used.hold_turn()
        try:
            return _import(name, globals, locals, fromlist, level)
        finally:
            used.release_turn(task)

    module: Any = builtins
    module.__import__ = importing
