"""/faults and /recorder: faults and the recorder by HTTP, beside /metrics.

    GET    /faults                 {"node", "role", "faults": [state, …]}
    POST   /faults                 a fault or a list of them: 201 {"node", "faults": [state, …]}; all are added, or none
    DELETE /faults                 remove all: {"faults": [last state, …]}
    GET    /faults/f1              the state of one: {"id", "fault", "state", "calls", "fired", "held", "events"}
    DELETE /faults/f1              remove it: its last state
    GET    /recorder?api=&topic=…  {"node", "recording", "capacity", "requests": [record, …]}
    POST   /recorder               {"recording": true, "capacity": 10000}: start (into an empty ring) or stop
    DELETE /recorder               forget what was recorded

What a person must mend is 400 with {"error": one line}; what is not there is 404 likewise.
"""

from __future__ import annotations

import json
from typing import Any

from barnabas.broker.faults.engine import FaultEngine
from barnabas.broker.faults.recorder import CAPACITY_DEFAULT, CAPACITY_MAX, FILTERS, Recorder
from barnabas.faults.definition import Fault, FaultError
from barnabas.metrics.http import Asked, MetricsServer, Page

JSON_TYPE = "application/json"
OK, CREATED = "200 OK", "201 Created"
BAD, MISSING, NOT_ALLOWED = "400 Bad Request", "404 Not Found", "405 Method Not Allowed"


def add_pages(server: MetricsServer, engine: FaultEngine, role: str) -> None:
    """Serve both on a process's page."""
    server.add_resource("/faults", lambda asked: _guarded(lambda: _faults(engine, role, asked)))
    server.add_resource("/recorder", lambda asked: _guarded(lambda: _recorder(engine.recorder, engine.node_id, asked)))


def _guarded(answer: Any) -> Page:
    try:
        page: Page = answer()
        return page
    except FaultError as error:
        return _page({"error": str(error)}, BAD)


def _page(value: Any, status: str = OK) -> Page:
    return Page(json.dumps(value, ensure_ascii=False).encode() + b"\n", JSON_TYPE, status)


def _body(asked: Asked) -> Any:
    try:
        return json.loads(asked.body)
    except ValueError as error:
        raise FaultError(f"the body is not JSON: {error}") from None


def _faults(engine: FaultEngine, role: str, asked: Asked) -> Page:
    if asked.path:
        return _one_fault(engine, asked)
    if asked.method == "POST":
        body = _body(asked)
        faults = [Fault.parse(one) for one in (body if isinstance(body, list) else [body])]
        added = engine.add_all(faults)
        return _page({"node": engine.node_id, "faults": [armed.describe() for armed in added]}, CREATED)
    found = engine.remove_all() if asked.method == "DELETE" else engine.faults()
    return _page({"node": engine.node_id, "role": role, "faults": [armed.describe() for armed in found]})


def _one_fault(engine: FaultEngine, asked: Asked) -> Page:
    if asked.method == "POST":
        return _page({"error": "a fault is not changed: remove it and add another"}, NOT_ALLOWED)
    armed = engine.remove(asked.path) if asked.method == "DELETE" else engine.find(asked.path)
    if armed is None:
        return _page({"error": f"there is no fault {asked.path!r}"}, MISSING)
    return _page(armed.describe())


def _recorder(recorder: Recorder, node_id: int, asked: Asked) -> Page:
    if asked.path:
        return _page({"error": "there is nothing below /recorder"}, MISSING)
    requests: list[Any] = []
    if asked.method == "POST":
        _switch(recorder, _body(asked))
    elif asked.method == "DELETE":
        recorder.clear()
    else:
        requests = recorder.select(_filters(asked))
    state = {"node": node_id, "recording": recorder.is_on, "capacity": recorder.capacity}
    return _page({**state, "requests": requests})


def _filters(asked: Asked) -> dict[str, str]:
    for key, value in asked.query.items():
        if key not in FILTERS:
            raise FaultError(f"unknown filter {key!r}; there are {', '.join(FILTERS)}")
        if key == "after" and not value.isdecimal():
            raise FaultError(f"after must be a sequence number, not {value!r}")
    return dict(asked.query)


def _switch(recorder: Recorder, wanted: Any) -> None:
    if not isinstance(wanted, dict) or not isinstance(wanted.get("recording"), bool):
        raise FaultError('{"recording": true} or {"recording": false} is expected')
    for key in wanted:
        if key not in ("recording", "capacity"):
            raise FaultError(f"unknown key {key!r}; there are recording and capacity")
    capacity = wanted.get("capacity", CAPACITY_DEFAULT)
    if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity <= CAPACITY_MAX:
        raise FaultError(f"capacity must be between 1 and {CAPACITY_MAX}, not {capacity!r}")
    if wanted["recording"]:
        recorder.start(capacity)
    else:
        recorder.stop()
