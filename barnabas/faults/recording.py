"""Recorded requests from Python: the requests of clients and their outcomes.

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
from typing import Any
from urllib.parse import urlencode

from barnabas.faults.pages import Target
from barnabas.faults.waiting import TIMEOUT_S, wait_for


@dataclass(frozen=True)
class RecordedRequest:
    """One request, as a node recorded it.

    `outcome` is pending (not answered yet), answered, no answer (acks=0) or closed. `partitions` has an entry {"topic",
    "partition", "error"} for each partition of the request or its response. `errors` are the different errors of the
    response. `sender` is the id of the sending node, None for a client. `time_ms` is when a handler took it, since the
    epoch. `elapsed_ms` is the time from its last byte to the response.
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
        """The different topics of its partitions."""
        return list(dict.fromkeys(one["topic"] for one in self.partitions))


class Recorder:
    """The recorders of all nodes as one. A context manager that starts and stops them."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def start(self, capacity: int | None = None) -> None:
        """Start recording; each node keeps its last `capacity` requests."""
        self.switch({"recording": True} if capacity is None else {"recording": True, "capacity": capacity})

    def stop(self) -> None:
        """Stop recording; the records can still be read."""
        self.switch({"recording": False})

    def switch(self, wanted: object) -> None:
        """Send POST /recorder with this body to every node."""
        for page in self._target.pages().values():
            page.ask("POST", "/recorder", wanted)

    def clear(self) -> None:
        """Delete all records."""
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
        """Return the matching records, oldest first. Texts are shell patterns; `sender` is clients, brokers or any."""
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
        """Return the records that match filters of GET /recorder, oldest first. Raises FaultError for unknown ones."""
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
        """Wait for at least `count` matching records for which `where` is true, and return them.

        Raises FaultTimeoutError.
        """

        def fitting() -> list[RecordedRequest]:
            return [request for request in self.requests(**wanted) if where(request)]

        return wait_for(
            lambda: found if len(found := fitting()) >= count else None,
            lambda: f"{len(fitting())} requests match {wanted} after {timeout_s:g} s, not {count}",
            timeout_s,
        )

    def save(self, path: Path | str, **wanted: Any) -> int:
        """Write the matching records to a file as JSON lines; return their number."""
        found = self.requests(**{"sender": "any", **wanted})
        Path(path).write_text("".join(json.dumps(vars(request)) + "\n" for request in found))
        return len(found)

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
