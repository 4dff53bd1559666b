"""The parts of a dashboard: boards with rows of panels, as plain tables. `build.py` makes Grafana's JSON of them.

A panel has a title, a description, a unit, and pairs of a PromQL expression and a legend. Tests evaluate every
expression on a real Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLUSTER: Final = 'cluster=~"$cluster"'
BROKER: Final = f'job="kafka-broker", {CLUSTER}, instance=~"$broker"'
CONTROLLER: Final = f'job="kafka-controller", {CLUSTER}'
PROCESS: Final = f'job=~"kafka-.*", {CLUSTER}'
RATE: Final = "[$__rate_interval]"

Query = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph, or a single number (`is_number`). `good_below`: green below that value, and red from it on."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    stacked: bool = False
    span: int = 12
    good_below: float | None = None
    is_number: bool = False
    is_share: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels with a title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A selection above the panels: the values of a label. `all_values`: the regular expression for "All".

    Without it "All" is a list of the values.
    """

    name: str
    label: str
    values: str
    all_values: str | None = None


#: The selections above every board: the source (made by `build.py`), then the cluster.
SOURCE: Final = "source"
CLUSTERS: Final = Variable(
    "cluster",
    "Cluster",
    'label_values(kafka_server_kafkaserver_brokerstate{job="kafka-broker"}, cluster)',
    all_values=".*",  # also matches series without this label
)
BROKERS: Final = Variable(
    "broker",
    "Broker",
    f'label_values(kafka_server_kafkaserver_brokerstate{{job="kafka-broker", {CLUSTER}}}, instance)',
)


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `name` is the name of its file and the end of its uid."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = (BROKERS,)


def number(
    title: str,
    description: str,
    expression: str,
    good_below: float | None = None,
    unit: str = "short",
    span: int = 4,
) -> Panel:
    """Return a panel with a single number."""
    return Panel(title, description, ((expression, ""),), unit, span=span, good_below=good_below, is_number=True)


def by_broker(metric: str, extra: str = "") -> Query:
    """Return the query of a rate, with a line for each broker."""
    return f"sum by (instance) (rate({metric}{{{BROKER}{extra}}}{RATE}))", "{{instance}}"
