"""A clock whose time of day faults can shift. Durations stay right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.common.clocks.server_clock import ServerClock

if TYPE_CHECKING:
    from barnabas.broker.faults.armed import Armed


class SkewedClock(ServerClock):
    """The system's clock plus the skews of faults. Threads: any reads; the engine's lock orders changes."""

    __slots__ = ("_skews",)

    def __init__(self) -> None:
        self._skews: tuple[Armed, ...] = ()  # replaced whole

    def wall_ms(self) -> int:
        """See Clock."""
        skews = self._skews
        now_ms = super().wall_ms()
        return now_ms + sum(armed.fault.clock_skew_ms or 0 for armed in skews if armed.is_time()) if skews else now_ms

    def skew(self, armed: Armed) -> None:
        """Apply a skew, until `set_right`."""
        self._skews += (armed,)

    def set_right(self, armed: Armed) -> None:
        """Stop applying a skew."""
        self._skews = tuple(other for other in self._skews if other is not armed)
