"""What clients of other people's libraries have in common with our own, for the driver and the checks.

Threads: a client is a process; the library has threads of its own in it. They have no point while they note something.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from tests.simulation.load.clients.client import Address
from tests.simulation.load.clients.fetching import Got
from tests.simulation.load.clients.producers import Sent

#: How long a client waits after its library has given up, until it begins anew.
AGAIN_S = 1.0
POLL_MS = 500
#: Of members of a group: of the classic protocol, so that a paused member is missed within a life.
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_MS = 2_000


class OutsideJournal(Protocol):
    """What the clients of a library learn."""

    def begin(self) -> int:
        """Return the number of a producer that begins."""

    def next(self, partition: int, producer: int) -> Sent:
        """Return the next record of a producer for a partition."""

    def acknowledged(self, partition: int, sent: Sent, offset: int | None) -> None:
        """The record was acknowledged at this offset."""

    def refused(self, partition: int, sent: Sent) -> None:
        """The library gave the record up, which may be there."""

    def read(self, reader: str, partition: int, got: Got) -> None:
        """A reader without a group got a record."""

    def delivered(self, partition: int, got: Got) -> None:
        """A member of a group got a record."""

    def committed(self, partition: int, offset: int) -> None:
        """A commit of this offset was acknowledged."""


class Outsider:
    """A client of another library, as the driver sees it."""

    def __init__(
        self, name: str, bootstrap: list[Address], topic: str, partitions: int, journal: OutsideJournal,
        draw: Callable[[int], int], pause_s: float,
    ) -> None:  # fmt: skip
        self.name = name
        self.bootstrap = [f"{host}:{port}" for host, port in bootstrap]
        self.topic = topic
        self.partitions = partitions
        self.journal = journal
        self.draw = draw  # a random number below its argument
        self.pause_s = pause_s
        self.between = threading.Event()
        self.trouble = ""  # the last error, for the story
        self.producer_ids: set[int] = set()  # not known
        self.is_calm = False  # set by the driver
        self.is_stopping = False  # set by the driver
