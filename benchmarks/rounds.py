"""Rounds: the systems take turns, and no round counts before they are warm.

A JVM compiles while it runs, and two short rounds do not warm a broker up (Apache Kafka went from 41,000 to 74,000
small requests a second). So uncounted rounds are repeated until the measurement's own figure improves by no more than
WARM_GAIN over the best so far, in every system. WARM_UPS_MAX limits their number, and a message reports when it did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from benchmarks.bench import Bench, Measurement, Round, Samples
from benchmarks.report.figures import FIGURES
from benchmarks.systems import System

WARM_GAIN = 0.05
WARM_UPS_MAX = 5
Results = dict[str, dict[str, list[float]]]  # figure -> system -> one sample a round
Progress = Callable[[str], None]  # prints a line


def measure(
    name: str, measurement: Measurement, bench: Bench, systems: Sequence[System], rounds: int, progress: Progress
) -> Results:
    """Warm up, then measure this number of rounds. Returns the samples by figure and system."""
    with ExitStack() as stack:
        ready = {system.name: stack.enter_context(measurement.measure(bench, system)) for system in systems}
        warm_up(name, measurement.warm_by, ready, progress)
        results: Results = defaultdict(lambda: defaultdict(list))
        for number in range(1, rounds + 1):
            for system, samples in _round(f"{name} {number}/{rounds}", number, ready, progress).items():
                for figure, value in samples.items():
                    results[figure][system].append(value)
    return results


def warm_up(name: str, figure: str, ready: Mapping[str, Round], progress: Progress) -> int:
    """Run rounds that do not count and return their number. Without a figure, one round is enough."""
    seen: dict[str, list[float]] = defaultdict(list)
    for number in range(1, WARM_UPS_MAX + 1):
        for system, samples in _round(f"{name} warm-up {number}", number, ready, progress).items():
            seen[system].append(samples.get(figure, 0))
        if not figure or all(is_warm(values, FIGURES[figure].more_is_better) for values in seen.values()):
            return number
    progress(f"{name}: still getting faster after {WARM_UPS_MAX} rounds of warming up")
    return WARM_UPS_MAX


def is_warm(values: Sequence[float], more_is_better: bool) -> bool:
    """Check whether the last value is at most WARM_GAIN better than the best one before it."""
    if len(values) < 2:
        return False
    *before, last = values
    return last <= max(before) * (1 + WARM_GAIN) if more_is_better else last >= min(before) * (1 - WARM_GAIN)


def _round(label: str, number: int, ready: Mapping[str, Round], progress: Progress) -> dict[str, Samples]:
    """Measure each system once. The first one changes from round to round."""
    names = list(ready)
    first = number % len(names)
    results = {}
    for system in names[first:] + names[:first]:
        results[system] = ready[system]()
        figures = ", ".join(f"{figure} {value:,.4g}" for figure, value in results[system].items())
        progress(f"{label} [bold]{system}[/bold]: {figures}")
    return results
