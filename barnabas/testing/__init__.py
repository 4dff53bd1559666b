"""Kafka for tests: a pytest plugin, the same as a context manager, and what a test wants to know of a cluster.

    def test_orders_are_announced(barnabas_cluster, barnabas_topic):        # pytest: fixtures, no import
        announce(order, barnabas_cluster.bootstrap, barnabas_topic)
        barnabas_cluster.assert_produced(barnabas_topic, {"order": 7})

    with barnabas.testing.cluster(brokers=3) as kafka:                      # unittest, scripts
        announce(order, kafka.bootstrap, "orders")

docs/testing.md tells the whole story. Nothing is imported before it is used: a test run that has this package installed
and does not use it pays for one small module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.records import Expected, Record
    from barnabas.testing.running import Cluster, StartError, cluster

__all__ = ["Cluster", "Expected", "Record", "StartError", "cluster"]

_HOMES = {
    "Cluster": "barnabas.testing.running",
    "StartError": "barnabas.testing.running",
    "cluster": "barnabas.testing.running",
    "Expected": "barnabas.testing.records",
    "Record": "barnabas.testing.records",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
