"""THE table of metrics: what this project measures, under Kafka's names.

A row says the MBean (`group`, `type`, `name` as Kafka spells them), what kind of instrument it is, its labels and its
unit (`row.py`); `names.py` derives every Prometheus name from it. A component takes its handles from the registry when
it is built: `registry.meter(catalogue.BYTES_IN_PER_SEC)` for the broker-wide line, and once more with `topic=...` for
the topic's. A label that is not given is left out of the series.

Units are those of the values given to `update`, `mark` or returned by a gauge. Kafka rounds times to whole
milliseconds; here they may have fractions.

The rows stand in `rows_*.py`, by room. What Kafka measures and this project does not, with the reasons: `absent.py`. A
test holds both to the list of Apache Kafka's MBeans.
"""

# ruff: noqa: F403 - this module is the sum of the others

from __future__ import annotations

from barnabas.metrics.row import METRICS as METRICS
from barnabas.metrics.row import Kind as Kind
from barnabas.metrics.row import Metric as Metric
from barnabas.metrics.rows_broker import *
from barnabas.metrics.rows_controller import *
from barnabas.metrics.rows_coordinators import *
from barnabas.metrics.rows_network import *
from barnabas.metrics.rows_own import *
from barnabas.metrics.rows_storage import *


def find(group: str, type_: str, name: str) -> Metric:
    """Return the row of that MBean (or attribute); KeyError if there is none."""
    for row in METRICS:
        if (row.group, row.type) == (group, type_) and (row.name == name or name in row.attributes()):
            return row
    raise KeyError(f"{group}:type={type_},name={name}")
