"""The figures of many partitions: those that are measured, and those that follow from them.

A measured figure has a row for each number of partitions. *Kept* is the rate with that many partitions, divided by the
rate with the fewest, of the same round. A *slope* is the difference between the most and the fewest partitions, for
each additional 1,000 of them: what a partition costs without what a process costs anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
MEMORY_ONE = "1 broker: idle memory"
RATE = "1 broker: produce"
KEPT = "1 broker: rate kept"
#: What is measured, with the units and directions of its figures.
MEASURED: Final = (
    less(CREATED, "s"),
    less(KNOWN, "s"),
    less(IDLE_CPU, "% of a core"),
    less(MEMORY_THREE, "MB"),
    less(FAILOVER, "s"),
    less(STOPPED, "s"),
    less(RESTARTED, "s"),
    less(MEMORY_ONE, "MB"),
    more(RATE, "1/s"),
)
#: The figures that have a slope.
COSTS: Final = (IDLE_CPU, MEMORY_THREE, MEMORY_ONE)
PER: Final = 1_000


def named(what: str, partitions: int) -> str:
    """Return the name of a figure with a number of partitions."""
    return f"{what}, {partitions:,} partitions"


def slope_named(what: str) -> str:
    """Return the name of a slope."""
    return f"{what}, each {PER:,} more"


def figures(counts: Sequence[int]) -> dict[str, Figure]:
    """Return all figures of these numbers of partitions, by name and in the order of the table."""
    return {figure.name: figure for figure in _figures(sorted(counts))}


def derived(samples: Samples, counts: Sequence[int]) -> dict[str, dict[str, list[float]]]:
    """Return the samples of the figures that follow from measured ones, by figure and system."""
    fewest, most = min(counts), max(counts)
    found: dict[str, dict[str, list[float]]] = {}
    if fewest == most:
        return found
    for count in sorted(counts)[1:]:
        pairs = _of_same_rounds(samples, RATE, fewest, count)
        found[named(KEPT, count)] = {
            system: [rate / base for base, rate in rounds if base] for system, rounds in pairs.items()
        }
    thousands = (most - fewest) / PER
    for what in COSTS:
        pairs = _of_same_rounds(samples, what, fewest, most)
        found[slope_named(what)] = {
            system: [(upper - base) / thousands for base, upper in rounds] for system, rounds in pairs.items()
        }
    return {name: by_system for name, by_system in found.items() if any(by_system.values())}


def _figures(counts: Sequence[int]) -> Iterator[Figure]:
    for figure in MEASURED:
        for count in counts:
            yield Figure(named(figure.name, count), figure.unit, figure.more_is_better)
        if figure.name in COSTS:
            yield less(slope_named(figure.name), figure.unit)
    for count in counts[1:]:
        yield more(named(KEPT, count), "")


def _of_same_rounds(samples: Samples, what: str, fewest: int, other: int) -> dict[str, list[tuple[float, float]]]:
    """Return each system's pairs of samples with the fewest partitions and with another number."""
    nothing: Mapping[str, Sequence[float]] = {}
    bases, others = (samples.get(named(what, count), nothing) for count in (fewest, other))
    return {
        system: list(zip(values, others.get(system, ()), strict=False))
        for system, values in bases.items()
        if system in others
    }
