"""Kafka for tests: a pytest plugin, a context manager, and checks of a cluster's topics and groups.

    def test_orders_are_announced(barnabas_cluster, barnabas_topic):        # pytest: fixtures, no import
        announce(order, barnabas_cluster.bootstrap, barnabas_topic)
        barnabas_cluster.assert_produced(barnabas_topic, {"order": 7})

    with barnabas.testing.cluster(brokers=3) as kafka:                      # unittest, scripts
        announce(order, kafka.bootstrap, "orders")

docs/testing.md is the guide. Names are imported when they are first used, so a test run that does not use this package
loads one small module.
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
