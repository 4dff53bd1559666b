"""Three brokers and a controller of either system, behind one face, with the same server properties."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from barnabas.cluster import LocalCluster, Node
from benchmarks.figures import OURS, THEIRS
from tests.support.apache_cluster import ApacheCluster
from tests.support.kafka_jars import KafkaRuntime


class Cluster(Protocol):
    """What a measurement does to either system."""

    @property
    def brokers(self) -> list[Node]: ...
    @property
    def bootstrap(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def start_node(self, node: Node) -> None: ...
    def signal_node(self, node: Node, number: signal.Signals) -> None: ...


def choose(systems: str, runtime: KafkaRuntime, directory: Path, settings: Mapping[str, str]) -> dict[str, Cluster]:
    """The clusters that `systems` ("both", "barnabas", "apache") asks for, by name; not started."""
    chosen: dict[str, Cluster] = {}
    if systems in ("both", "apache"):
        chosen[THEIRS] = ApacheCluster(runtime, directory / "apache", settings)
    if systems in ("both", "barnabas"):
        chosen[OURS] = LocalCluster(directory / "barnabas", first_port=0, config=settings)
    return chosen
