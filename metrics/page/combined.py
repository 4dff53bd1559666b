"""CombinedRegistry: the registries of a broker and a controller in one process, as one page shows them.

Rules
1. A family that only one of the two has is shown as it is.
2. In a family of both (requests, processors, handlers), the controller's series have the label `role="controller"`.
   Those of the broker have the labels that they have in a process of its own, and so have those of the process itself
   (the certificate of the pages).
3. What is true of the process (its start, its version, its logged lines) is shown once.

Threads: built by main; then the scraper's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from barnabas.common.clock import Clock
from barnabas.metrics.registry import ForeignFamily, Instrument, Labels, Registry, Table
from barnabas.metrics.table import catalogue as c
from barnabas.metrics.table.row import Metric

ROLE: Final = "role"
CONTROLLER: Final = ("controller",)
BROKER: Final = ("",)  # a label without a value is not shown
OF_THE_PROCESS: Final = frozenset(
    {c.APP_INFO, c.START_TIME_MS, c.LOG_LINES, c.FINALIZED_LEVEL, c.SUPPORTED_LEVEL_MIN, c.SUPPORTED_LEVEL_MAX}
)

Series = list[tuple[Labels, Instrument]]


class CombinedRegistry(Registry):
    """See the module. Instruments of the process itself are made here."""

    def __init__(self, clock: Clock, broker: Registry, controller: Registry) -> None:
        super().__init__(clock)
        self._broker = broker  # fixed before start
        self._controller = controller  # fixed before start
        self._labelled: dict[Metric, Metric] = {}  # owner: the scraper
        # Why: parts hold the lock of their own registry while they read what a scrape changes.
        broker.scraping = controller.scraping = self.scraping

    def collect(self) -> list[tuple[Metric, Series]]:
        """Return the rows of the process, of the broker and of the controller."""
        unmarked = dict(super().collect())
        for row, series in self._broker.collect():
            unmarked[row] = [*unmarked.get(row, ()), *series]
        of_controller = dict(self._controller.collect())
        found: list[tuple[Metric, Series]] = []
        for row, series in unmarked.items():
            others = of_controller.pop(row, [])
            if not others or row in OF_THE_PROCESS:
                found.append((row, series))
            else:
                found.append((self._with_role(row), [*_marked(series, BROKER), *_marked(others, CONTROLLER)]))
        found += of_controller.items()
        self.last_count = sum(len(series) for _, series in found)
        return found

    def tables(self) -> list[Table]:
        """Return the tables of all three; one of both roles shows the lines of both."""
        of_controller = {table.rows: table for table in self._controller.tables()}
        found = super().tables()
        for table in self._broker.tables():
            twin = of_controller.pop(table.rows, None)
            is_shown_once = twin is None or not OF_THE_PROCESS.isdisjoint(table.rows)
            found.append(table if is_shown_once or twin is None else self._both(table, twin))
        return found + list(of_controller.values())

    def foreign_families(self) -> list[ForeignFamily]:
        """Return the families that clients of the broker named."""
        return [*super().foreign_families(), *self._broker.foreign_families()]

    def _both(self, of_broker: Table, of_controller: Table) -> Table:
        def read() -> list[tuple[Labels, Sequence[float]]]:
            return [
                ((*labels, *role), numbers)
                for table, role in ((of_broker, BROKER), (of_controller, CONTROLLER))
                for labels, numbers in table.read()
            ]

        return Table(tuple(map(self._with_role, of_broker.rows)), read)

    def _with_role(self, row: Metric) -> Metric:
        """Return the row with one more label; always the same, since names are kept by row."""
        found = self._labelled.get(row)
        if found is None:
            found = self._labelled[row] = dataclasses.replace(row, labels=(*row.labels, ROLE))
        return found


def _marked(series: Series, role: Labels) -> Series:
    return [((*labels, *role), instrument) for labels, instrument in series]
