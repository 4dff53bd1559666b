"""Recorded requests from Python: what clients asked, and what became of it.

with Faults(cluster).recorder as recorder:
    produce_something()
    (request,) = recorder.wait(1, api="Produce", topic="orders")
    assert request.errors == []
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

if TYPE_CHECKING:
    from barnabas.faults.pages import Target

TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class RecordedRequest:
    """One request, as a node saw it.

    `outcome`: pending (not answered yet), answered, no answer (acks=0), closed. `partitions` has an entry
    {"topic", "partition", "error"} for each that it named or was told of; `errors` every error of the answer, once.
    `sender` is the id of the node that sent it, None for a client. Times: `time_ms` since the epoch, when a handler
    took it, `elapsed_ms` from its last byte to the answer.
    """

    node: int
    sequence: int
    time_ms: int
    api: str
    version: int
    correlation_id: int
    client_id: str | None
    sender: int | None
    connection: str
    listener: str
    principal: str
    size_bytes: int
    partitions: list[dict[str, Any]]
    errors: list[str]
    throttle_time_ms: int
    outcome: str
    elapsed_ms: float | None

    @property
    def topics(self) -> list[str]:
        """The topics that it names, once each."""
        return list(dict.fromkeys(one["topic"] for one in self.partitions))


class Recorder:
    """The recorders of all nodes as one. A context manager that starts and stops them."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def start(self, capacity: int | None = None) -> None:
        """Record from now on; each node keeps its last `capacity` requests."""
        self.switch({"recording": True} if capacity is None else {"recording": True, "capacity": capacity})

    def stop(self) -> None:
        """Record no more; what there is can still be read."""
        self.switch({"recording": False})

    def switch(self, wanted: Any) -> None:
        """Tell every node's recorder what POST /recorder takes."""
        for page in self._target.pages().values():
            page.ask("POST", "/recorder", wanted)

    def clear(self) -> None:
        """Forget what was recorded."""
        for page in self._target.pages().values():
            page.ask("DELETE", "/recorder")

    def requests(
        self,
        *,
        api: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        connection: str | None = None,
        error: str | None = None,
        outcome: str | None = None,
        sender: str | None = "clients",
        node: int | None = None,
    ) -> list[RecordedRequest]:
        """What was recorded and fits, oldest first. Texts are shell patterns; `sender`: clients, brokers or any."""
        wanted = {
            "api": api,
            "topic": topic,
            "partition": partition,
            "client_id": client_id,
            "connection": connection,
            "error": error,
            "outcome": outcome,
            "sender": sender,
        }
        return self.select({key: str(value) for key, value in wanted.items() if value is not None}, node)

    def select(self, wanted: Mapping[str, str], node: int | None = None) -> list[RecordedRequest]:
        """What was recorded and fits the filters of GET /recorder, oldest first; raises FaultError for unknown ones."""
        found = []
        for page in self._target.pages().values():
            if node in (None, page.node_id):
                answer = page.ask("GET", f"/recorder?{urlencode(wanted)}")
                found += [RecordedRequest(**one) for one in answer["requests"]]
        return sorted(found, key=lambda request: (request.time_ms, request.node, request.sequence))

    def wait(
        self,
        count: int = 1,
        timeout_s: float = TIMEOUT_S,
        *,
        where: Callable[[RecordedRequest], bool] = lambda _: True,
        **wanted: Any,
    ) -> list[RecordedRequest]:
        """Wait until at least so many requests fit (and `where` says yes); returns them. Raises FaultTimeoutError."""
        from barnabas.faults.client import wait_for  # Why here: it imports this module

        def fitting() -> list[RecordedRequest]:
            return [request for request in self.requests(**wanted) if where(request)]

        return wait_for(
            lambda: found if len(found := fitting()) >= count else None,
            lambda: f"{len(fitting())} requests fit {wanted} after {timeout_s:g} s, not {count}",
            timeout_s,
        )

    def save(self, path: Path | str, **wanted: Any) -> int:
        """Write what was recorded and fits as JSON lines; returns how many."""
        found = self.requests(**{"sender": "any", **wanted})
        Path(path).write_text("".join(json.dumps(vars(request)) + "\n" for request in found))
        return len(found)

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
