"""THE table of metrics: all metrics of this project, under Kafka's names.

A row names the MBean (`group`, `type`, `name` as in Kafka), the kind of instrument, its labels and its unit (`row.py`).
`names.py` derives every Prometheus name from it. A component takes its instruments from the registry when it is built:
`registry.meter(catalogue.BYTES_IN_PER_SEC)` for the series of the whole broker, and again with `topic=...` for a
topic's. A label that is not given is left out of the series.

The unit is that of the values given to `update` or `mark`, or returned by a gauge. Kafka rounds times to whole
milliseconds; here they may have fractions.

The rows are in `rows_*.py`, by component. `absent.py` lists the metrics of Kafka that this project does not have, with
the reasons. A test compares both with the list of Apache Kafka's MBeans.
"""

# ruff: noqa: F403 - this module collects the others

from __future__ import annotations

from barnabas.metrics.table.row import METRICS as METRICS
from barnabas.metrics.table.row import Kind as Kind
from barnabas.metrics.table.row import Metric as Metric
from barnabas.metrics.table.rows_broker import *
from barnabas.metrics.table.rows_controller import *
from barnabas.metrics.table.rows_coordinators import *
from barnabas.metrics.table.rows_network import *
from barnabas.metrics.table.rows_own import *
from barnabas.metrics.table.rows_share import *
from barnabas.metrics.table.rows_storage import *


def find(group: str, type_: str, name: str) -> Metric:
    """Return the row of that MBean (or attribute); KeyError if there is none."""
    for row in METRICS:
        if (row.group, row.type) == (group, type_) and (row.name == name or name in row.attributes()):
            return row
    raise KeyError(f"{group}:type={type_},name={name}")
