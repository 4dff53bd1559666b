"""The figures of many partitions, connections and groups: those that are measured, and those that follow from them.

A curve has a row for each of its numbers. *Kept* is the rate with that number, divided by the rate with the fewest, of
the same round. A *slope* is the difference between the most and the fewest, for each additional 1,000 (100 groups) of
them: what one of them costs without what a process costs anyway. The targets are those of the project's issue 21.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.report.figures import Figure, less, more
from benchmarks.report.table import Samples

CREATED = "3 brokers: created"
KNOWN = "3 brokers: known to all"
IDLE_CPU = "3 brokers: idle CPU"
MEMORY_THREE = "3 brokers: idle memory"
FAILOVER = "3 brokers: kill -9, led again"
STOPPED = "1 broker: stop"
RESTARTED = "1 broker: restart"
ASSIGNED = "1 broker: assigned"
IDLE_CPU_ONE = "1 broker: idle CPU"
MEMORY_ONE = "1 broker: idle memory"
RATE = "1 broker: produce"
KEPT = "1 broker: rate kept"


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """What there is more and more of, and what is measured with each number of it."""

    noun: str
    measured: tuple[Figure, ...]  # with their units and directions
    costs: tuple[str, ...]  # the figures that have a slope
    per: int  # of a slope
    ratios: Mapping[tuple[str, int], float] = field(default_factory=dict)  # targets

    def named(self, what: str, count: int) -> str:
        """Return the name of a figure with this number."""
        return f"{what}, {count:,} {self.noun}"

    def slope_named(self, what: str) -> str:
        """Return the name of a slope."""
        return f"{what}, each {self.per:,} {self.noun}"

    def figures(self, counts: Sequence[int]) -> Iterator[Figure]:
        """Yield all figures of these numbers, the fewest first, in the order of the table."""
        for figure in self.measured:
            for count in counts:
                yield self._figure(figure, count)
            if figure.name in self.costs:
                yield less(self.slope_named(figure.name), figure.unit)
        if self._has_rate:
            for count in counts[1:]:
                yield self._figure(more(KEPT, ""), count)

    def derived(self, samples: Samples, counts: Sequence[int]) -> dict[str, dict[str, list[float]]]:
        """Return the samples of the figures that follow from measured ones, by figure and system."""
        fewest, most = min(counts), max(counts)
        found: dict[str, dict[str, list[float]]] = {}
        if fewest == most:
            return found
        for count in sorted(counts)[1:] if self._has_rate else ():
            pairs = self._of_same_rounds(samples, RATE, fewest, count)
            found[self.named(KEPT, count)] = {
                system: [rate / base for base, rate in rounds if base] for system, rounds in pairs.items()
            }
        steps = (most - fewest) / self.per
        for what in self.costs:
            pairs = self._of_same_rounds(samples, what, fewest, most)
            found[self.slope_named(what)] = {
                system: [(upper - base) / steps for base, upper in rounds] for system, rounds in pairs.items()
            }
        return {name: by_system for name, by_system in found.items() if any(by_system.values())}

    @property
    def _has_rate(self) -> bool:
        return any(figure.name == RATE for figure in self.measured)

    def _figure(self, figure: Figure, count: int) -> Figure:
        ratio = self.ratios.get((figure.name, count))
        return Figure(self.named(figure.name, count), figure.unit, figure.more_is_better, ratio)

    def _of_same_rounds(
        self, samples: Samples, what: str, fewest: int, other: int
    ) -> dict[str, list[tuple[float, float]]]:
        """Return each system's pairs of samples with the fewest and with another number."""
        nothing: Mapping[str, Sequence[float]] = {}
        bases, others = (samples.get(self.named(what, count), nothing) for count in (fewest, other))
        return {
            system: list(zip(values, others.get(system, ()), strict=False))
            for system, values in bases.items()
            if system in others
        }


PARTITIONS: Final = Curve(
    "partitions",
    (
        less(CREATED, "s"),
        less(KNOWN, "s"),
        less(IDLE_CPU, "% of a core"),
        less(MEMORY_THREE, "MB"),
        less(FAILOVER, "s"),
        less(STOPPED, "s"),
        less(RESTARTED, "s"),
        less(MEMORY_ONE, "MB"),
        more(RATE, "1/s"),
    ),
    (IDLE_CPU, MEMORY_THREE, MEMORY_ONE),
    1_000,
    {(RESTARTED, 10_000): 0.3, (MEMORY_ONE, 10_000): 0.2, (KEPT, 10_000): 1.0},
)
CONNECTIONS: Final = Curve(
    "connections",
    (less(IDLE_CPU_ONE, "% of a core"), less(MEMORY_ONE, "MB"), more(RATE, "1/s")),
    (IDLE_CPU_ONE, MEMORY_ONE),
    1_000,
)
GROUPS: Final = Curve(
    "groups",
    (less(ASSIGNED, "s"), less(IDLE_CPU_ONE, "% of a core"), less(MEMORY_ONE, "MB")),
    (IDLE_CPU_ONE, MEMORY_ONE),
    100,
)


def figures(counts: Mapping[Curve, Sequence[int]]) -> dict[str, Figure]:
    """Return all figures of these curves and numbers, by name and in the order of the table."""
    return {figure.name: figure for curve, numbers in counts.items() for figure in curve.figures(sorted(numbers))}
