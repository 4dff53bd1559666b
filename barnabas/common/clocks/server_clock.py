"""The clock of a server, whose time of day is compiled: it is read for every append.

Why not in `barnabas.common.clock`: all compiled modules are in one library, which takes 2 MB of a process.
`barnabas up` needs none of them.
"""

from __future__ import annotations

from barnabas.common.clock import SystemClock
from barnabas.common.clocks.wall import wall_ms


class ServerClock(SystemClock):
    """The machine's clock, read fast."""

    __slots__ = ()

    wall_ms = staticmethod(wall_ms)
