"""A part of a load: some clients, the topics that they need, and the check of what they learned.

`Setting` is what all parts share. A part is made once per life; its checks run when the faults have ended, every client
has stopped and every replica is in sync.

Threads: the driver's task; clients run as tasks of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.checks.groups import Seat
from tests.simulation.load.story import Story

if TYPE_CHECKING:
    from barnabas.common.topic_partition import TopicPartition
    from tests.simulation.cluster.coordinators import Coordinators
    from tests.simulation.load.clients.client import Address, Client
    from tests.simulation.load.clients.readers import Reader

#: No record is deleted because of its age.
KEPT: Final = {"retention.ms": "-1"}


class Topic(NamedTuple):
    """A topic that a part needs."""

    name: str
    partitions: int
    config: Mapping[str, str] = KEPT
    is_whole: bool = True  # every offset stays; otherwise it is compacted, or trimmed at its start


@dataclass(frozen=True, slots=True)
class Setting:
    """What the parts of a load share."""

    story: Story
    bootstrap: list[Address]
    draw: Callable[[int], int]  # a random number below its argument
    acknowledged: Callable[[TopicPartition, int], None]  # called when a record is acknowledged with acks=all
    stored: Callable[[TopicPartition], Mapping[str, bytes]]  # the logs of those in its ISR
    era: Callable[[TopicPartition], tuple[int, int]]  # changes when a broker starts, and when a leader is elected
    seat: Callable[[TopicPartition], Seat]  # the committed leader
    coordinators: Coordinators

    @property
    def pause_s(self) -> float:
        """The pause of a client between two requests or so."""
        return self.story.pause_ms / 1000


@dataclass(slots=True)
class Part:
    """See the module; those without clients of a kind leave it empty."""

    topics: list[Topic] = field(default_factory=list)
    clients: list[Any] = field(default_factory=list)  # each with `run` and `is_stopping`

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """Return the clients that read everything in the end, each with what it does."""
        return ()

    def check(self) -> Iterable[str]:
        """Yield what is wrong, after `last` has ended."""
        return ()

    def is_settled(self) -> bool:
        """Return whether the part's clients have reached what they must reach once nothing breaks, before they stop."""
        return True

    def summary(self) -> str:
        """Return in words how much was done."""
        return ""


def problems_of(clients: Iterable[Any]) -> list[str]:
    """Return what clients found wrong in single answers."""
    return [problem for client in clients for problem in getattr(client, "problems", ())]


def readers_of(part: Part) -> list[Reader]:
    """Return the readers of a part."""
    return [client for client in part.clients if hasattr(client, "told")]
