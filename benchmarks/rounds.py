"""Rounds: the systems take turns, and nothing counts before they are warm.

A JVM compiles as it goes; two short rounds do not get a broker there (Apache Kafka went from 41,000 to 74,000 small
requests a second). So uncounted rounds go on until the measurement's own figure has stopped getting better, by more
than WARM_GAIN over the best so far, in every system; WARM_UPS_MAX bounds that, and the log says where it did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from benchmarks.bench import Bench, Measurement, Round, Samples
from benchmarks.figures import FIGURES
from benchmarks.systems import System

WARM_GAIN = 0.05
WARM_UPS_MAX = 5
Results = dict[str, dict[str, list[float]]]  # figure -> system -> one sample a round
Tell = Callable[[str], None]


def measure(
    name: str, measurement: Measurement, bench: Bench, systems: Sequence[System], rounds: int, tell: Tell
) -> Results:
    """Warm up, then measure so many rounds."""
    with ExitStack() as stack:
        ready = {system.name: stack.enter_context(measurement.measure(bench, system)) for system in systems}
        warm_up(name, measurement.warm_by, ready, tell)
        results: Results = defaultdict(lambda: defaultdict(list))
        for number in range(1, rounds + 1):
            for system, samples in _round(f"{name} {number}/{rounds}", number, ready, tell).items():
                for figure, value in samples.items():
                    results[figure][system].append(value)
    return results


def warm_up(name: str, figure: str, ready: Mapping[str, Round], tell: Tell) -> int:
    """Run rounds that do not count; returns how many there were. Without a figure, one is enough."""
    seen: dict[str, list[float]] = defaultdict(list)
    for number in range(1, WARM_UPS_MAX + 1):
        for system, samples in _round(f"{name} warm-up {number}", number, ready, tell).items():
            seen[system].append(samples.get(figure, 0))
        if not figure or all(is_warm(values, FIGURES[figure].more_is_better) for values in seen.values()):
            return number
    tell(f"{name}: still getting faster after {WARM_UPS_MAX} rounds of warming up")
    return WARM_UPS_MAX


def is_warm(values: Sequence[float], more_is_better: bool) -> bool:
    """Whether the last value is hardly better than the best one before it."""
    if len(values) < 2:
        return False
    *before, last = values
    return last <= max(before) * (1 + WARM_GAIN) if more_is_better else last >= min(before) * (1 - WARM_GAIN)


def _round(label: str, number: int, ready: Mapping[str, Round], tell: Tell) -> dict[str, Samples]:
    """Each system once; who goes first changes from round to round."""
    names = list(ready)
    first = number % len(names)
    told = {}
    for system in names[first:] + names[:first]:
        told[system] = ready[system]()
        figures = ", ".join(f"{figure} {value:,.4g}" for figure, value in told[system].items())
        tell(f"{label} [bold]{system}[/bold]: {figures}")
    return told
