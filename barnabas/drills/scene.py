"""The cluster of a drill: its state, actions on it, and the facts that the drill noted.

The facts are in DIR/drill.json, where `barnabas drill check`, another process, reads what `barnabas drill NAME` did.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.cli.inside.pages import BROKER, find_pages, read_pages
from barnabas.cluster.errors import ClusterError
from barnabas.common.clock import SystemClock
from barnabas.common.deadline import Deadline
from barnabas.common.processes.cluster_file import read_cluster_file
from barnabas.control import ask
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
    """A running cluster with a drill. Any thread may use it; `stage` and the functions it calls run on one thread."""

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
        """The facts that the drill noted, and `directory`."""
        try:
            noted: dict[str, Any] = json.loads((self.directory / FACTS).read_text())
        except OSError:
            noted = {}
        return {**noted, "directory": self.directory}

    def note(self, **facts: object) -> None:
        """Store facts for texts, commands and the check."""
        noted = {**self.facts, **facts}
        del noted["directory"]
        temporary = self.directory / f".{FACTS}"
        temporary.write_text(json.dumps(noted))
        temporary.replace(self.directory / FACTS)

    # State

    def brokers(self, **query: object) -> dict[int, dict[str, Any]]:
        """The /live.json of each broker that answers, by id (barnabas.common.pages.live_shape)."""
        return read_pages(find_pages(self.bootstrap), {"section": SECTIONS, "limit": 1000, **query}).brokers()

    def broker(self, broker_id: int = 0) -> dict[str, Any]:
        """The /live.json of one broker; raises ClusterError if it does not answer."""
        try:
            return self.brokers()[broker_id]
        except KeyError:
            raise ClusterError(f"broker {broker_id} does not answer") from None

    def page(self) -> str:
        """The address of the pages of a broker that answers; raises ClusterError if none does."""
        answers = read_pages(find_pages(self.bootstrap), {"section": "node"})
        found = next((page for page in answers.found if page.role == BROKER), None)
        if found is None:
            raise ClusterError("no broker answers")
        return found.address

    def samples(self, look: Callable[[], T], count: int = SAMPLES) -> list[T]:
        """Several results of `look` in short succession: a problem that comes and goes is in some of them."""
        pause = threading.Event()
        found = []
        for _ in range(count):
            found.append(look())
            pause.wait(SAMPLE_S)
        return found

    def leaders(self, topic: str) -> dict[int, dict[str, Any]]:
        """Each partition of a topic, from its leader's page; partitions without a leader are missing."""
        return {
            partition["partition"]: partition
            for live in self.brokers(topic=topic).values()
            for partition in live["partitions"]["items"]
            if partition["topic"] == topic and partition["role"] == "leader"
        }

    def has_records(self, topic: str) -> bool:
        """Whether partition 0 of a topic has records below its high watermark."""
        return any(found["high_watermark"] > 0 for number, found in self.leaders(topic).items() if number == 0)

    def group(self, name: str) -> dict[str, Any] | None:
        """A group, from its coordinator's page; None if there is none."""
        groups = [group for live in self.brokers(group=name).values() for group in live["groups"]["items"]]
        return next((group for group in groups if group["group_id"] == name), None)

    def count_topics(self, prefix: str) -> int:
        """How many topics with this prefix the brokers have."""
        return len(
            {
                partition["topic"]
                for live in self.brokers().values()
                for partition in live["partitions"]["items"]
                if partition["topic"].startswith(prefix)
            }
        )

    def waits_for_controller(self) -> bool:
        """Whether a request waits in a purgatory for the controller."""
        return any(
            purgatory["name"] == "topic" and purgatory["delayed"]
            for live in self.brokers(section="purgatories").values()
            for purgatory in live["purgatories"]
        )

    def answers(self, node_id: int) -> bool:
        """Whether the page of a broker, or of a controller (100 and up), answers."""
        return any(page.id == node_id for page in read_pages(find_pages(self.bootstrap), {"section": "node"}).found)

    # Actions

    def act(self, action: str, node_id: int) -> None:
        """Kill, stop, start, pause or resume a process. Raises ClusterError."""
        ask(self.directory, action, node_id)

    def create_topic(self, name: str, partitions: int, replicas: int, config: dict[str, str] | None = None) -> None:
        """Create a topic and wait until each partition has a leader."""
        self.reader.create_topic(name, partitions, replicas, config or {})
        self.await_that(f"{name} has leaders", lambda: len(self.leaders(name)) == partitions)

    def runs(self, name: str, work: Work) -> None:
        """Start an application."""
        application = Application(self.directory / APPLICATIONS, name, work)
        self.applications.append(application)
        application.start()

    def await_that(self, what: str, probe: Callable[[], object], timeout_s: float = STAGE_TIMEOUT_S) -> None:
        """Wait until `probe` is true; raises ClusterError, which names `what`, after the timeout."""
        deadline = Deadline(SystemClock(), timeout_s * 1000)
        pause = threading.Event()
        while not probe():
            if deadline.is_expired():
                raise ClusterError(f"the drill could not be staged: timeout after {timeout_s:g} s: {what}")
            pause.wait(POLL_S)

    def end(self) -> None:
        """End the applications."""
        for application in self.applications:
            application.end()
        for application in self.applications:
            application.join()

    @cached_property
    def reader(self) -> Reader:
        """A client for topics, records and groups."""
        from barnabas.testing.reading import Reader

        return Reader(self.bootstrap)

    @cached_property
    def faults(self) -> Faults:
        """The faults of the cluster's processes."""
        from barnabas.faults import Faults

        return Faults(self.directory)


def out_of_sync(scene: Scene, topic: str, partitions: int) -> Sequence[str]:
    """The problems of a topic's replicas: partitions without leader, replicas outside the ISR."""
    leaders = scene.leaders(topic)
    found = [f"{topic}-{number} has no leader." for number in range(partitions) if number not in leaders]
    for number, partition in sorted(leaders.items()):
        missing = sorted(set(partition["replica_ids"]) - set(partition["isr"]))
        if missing:
            found.append(
                f"{topic}-{number} is under-replicated: broker {', '.join(map(str, missing))} is not in its ISR."
            )
    return found
