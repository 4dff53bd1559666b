"""The cluster of a drill: what it is like now, what can be done to it, and the facts that the drill noted.

Facts lie in DIR/drill.json, so that `barnabas drill check` in another process knows what `barnabas drill NAME` did.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.cli.inside.pages import BROKER, find_pages, read_pages
from barnabas.cli.supervisor import ask
from barnabas.cluster import ClusterError
from barnabas.common.clock import SystemClock
from barnabas.common.cluster_file import read_cluster_file
from barnabas.common.deadline import Deadline
from barnabas.drills.applications import Application, Work

if TYPE_CHECKING:
    from barnabas.faults import Faults
    from barnabas.testing.reading import Reader

T = TypeVar("T")
FACTS: Final = "drill.json"
APPLICATIONS: Final = "applications"
STAGE_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.1
SAMPLES: Final = 6
SAMPLE_S: Final = 0.08
SECTIONS: Final = "node,processors,request_queue,handlers,partitions,groups"


class Scene:
    """A running cluster with a drill on it. Any thread may use it; `stage` and what it calls are one thread's."""

    def __init__(self, directory: Path) -> None:
        content = read_cluster_file(directory)
        if content is None:
            raise ClusterError(f"no cluster runs in {directory}")
        self.directory = directory
        self.bootstrap = content["bootstrap"]
        self.applications: list[Application] = []

    # Facts

    @property
    def facts(self) -> dict[str, Any]:
        """What the drill noted, with `directory`."""
        try:
            noted: dict[str, Any] = json.loads((self.directory / FACTS).read_text())
        except OSError:
            noted = {}
        return {**noted, "directory": self.directory}

    def note(self, **facts: object) -> None:
        """Keep facts, for texts, commands and the check."""
        noted = {**self.facts, **facts}
        del noted["directory"]
        temporary = self.directory / f".{FACTS}"
        temporary.write_text(json.dumps(noted))
        temporary.replace(self.directory / FACTS)

    # What it is like

    def brokers(self, **query: object) -> dict[int, dict[str, Any]]:
        """What each broker that answers tells at /live.json (barnabas.common.live_shape)."""
        return read_pages(find_pages(self.bootstrap), {"section": SECTIONS, "limit": 1000, **query}).brokers()

    def broker(self, broker_id: int = 0) -> dict[str, Any]:
        """The same of one broker; raises ClusterError if it does not answer."""
        try:
            return self.brokers()[broker_id]
        except KeyError:
            raise ClusterError(f"broker {broker_id} does not answer") from None

    def page(self) -> str:
        """The address of the pages of a broker that answers."""
        answers = read_pages(find_pages(self.bootstrap), {"section": "node"})
        found = next((page for page in answers.told if page.role == BROKER), None)
        if found is None:
            raise ClusterError("no broker answers")
        return found.address

    def samples(self, look: Callable[[], T], count: int = SAMPLES) -> list[T]:
        """What one sees, several times in short order: what comes and goes is not taken for what is gone."""
        pause = threading.Event()
        found = []
        for _ in range(count):
            found.append(look())
            pause.wait(SAMPLE_S)
        return found

    def leaders(self, topic: str) -> dict[int, dict[str, Any]]:
        """Each partition of a topic as its leader tells of it; those without one are missing."""
        return {
            partition["partition"]: partition
            for live in self.brokers(topic=topic).values()
            for partition in live["partitions"]["items"]
            if partition["topic"] == topic and partition["role"] == "leader"
        }

    def has_records(self, topic: str) -> bool:
        """Whether the first partition of a topic has records that are committed, as far as its leader tells."""
        return any(found["high_watermark"] > 0 for number, found in self.leaders(topic).items() if number == 0)

    def group(self, name: str) -> dict[str, Any] | None:
        """A group as its coordinator tells of it."""
        groups = [group for live in self.brokers(group=name).values() for group in live["groups"]["items"]]
        return next((group for group in groups if group["group_id"] == name), None)

    def answers(self, node_id: int) -> bool:
        """Whether a process of the cluster, the controller (100) too, answers."""
        return any(page.id == node_id for page in read_pages(find_pages(self.bootstrap), {"section": "node"}).told)

    # What can be done

    def act(self, action: str, node_id: int) -> None:
        """Kill, stop, start, pause or resume a process."""
        ask(self.directory, action, node_id)

    def create_topic(self, name: str, partitions: int, replicas: int, config: dict[str, str] | None = None) -> None:
        """Create a topic, and wait until every partition of it is led."""
        self.reader.create_topic(name, partitions, replicas, config or {})
        self.await_that(f"{name} is led", lambda: len(self.leaders(name)) == partitions)

    def runs(self, name: str, work: Work) -> None:
        """Start an application."""
        application = Application(self.directory / APPLICATIONS, name, work)
        self.applications.append(application)
        application.start()

    def await_that(self, what: str, probe: Callable[[], object], timeout_s: float = STAGE_TIMEOUT_S) -> None:
        """Wait until something is so; raises ClusterError if it does not come."""
        deadline = Deadline(SystemClock(), timeout_s * 1000)
        pause = threading.Event()
        while not probe():
            if deadline.is_expired():
                raise ClusterError(f"the drill could not be staged: not within {timeout_s:g} s: {what}")
            pause.wait(POLL_S)

    def end(self) -> None:
        """End the applications."""
        for application in self.applications:
            application.end()
        for application in self.applications:
            application.join()

    @cached_property
    def reader(self) -> Reader:
        """Topics, records and groups."""
        from barnabas.testing.reading import Reader

        return Reader(self.bootstrap)

    @cached_property
    def faults(self) -> Faults:
        """What can be broken inside the processes."""
        from barnabas.faults import Faults

        return Faults(self.directory)


def out_of_sync(scene: Scene, topic: str, partitions: int) -> Sequence[str]:
    """What is wrong with the replicas of a topic."""
    leaders = scene.leaders(topic)
    found = [f"{topic}-{number} has no leader." for number in range(partitions) if number not in leaders]
    for number, partition in sorted(leaders.items()):
        missing = sorted(set(partition["replica_ids"]) - set(partition["isr"]))
        if missing:
            found.append(f"{topic}-{number} is under-replicated: {', '.join(map(str, missing))} is not in its ISR.")
    return found
