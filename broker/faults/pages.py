"""/faults and /recorder: faults and the recorder over HTTP, beside /metrics.

    GET    /faults                 {"node", "role", "faults": [state, …]}
    POST   /faults                 add a fault, or a list of them (all or none): 201 {"node", "faults": [state, …]}
    DELETE /faults                 remove all: {"faults": [last state, …]}
    GET    /faults/f1              the state of one: {"id", "fault", "state", "calls", "fired", "held", "events"}
    DELETE /faults/f1              remove it: its last state
    GET    /recorder?api=&topic=…  {"node", "recording", "capacity", "requests": [record, …]}
    POST   /recorder               {"recording": true, "capacity": 10000}: start (with an empty ring) or stop
    DELETE /recorder               delete all records

An invalid request gets 400 with {"error": one line}; a missing resource 404, likewise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from barnabas.broker.faults.engine import FaultEngine
from barnabas.broker.faults.recorder import CAPACITY_DEFAULT, CAPACITY_MAX, FILTERS, Recorder
from barnabas.common.pages.page import Page, ResourceRequest
from barnabas.faults.definition import Fault, FaultError
from barnabas.metrics.http import MetricsServer

JSON_TYPE = "application/json"
OK, CREATED = "200 OK", "201 Created"
BAD, MISSING, NOT_ALLOWED = "400 Bad Request", "404 Not Found", "405 Method Not Allowed"


def add_pages(server: MetricsServer, engine: FaultEngine, role: str) -> None:
    """Serve /faults and /recorder on the server of a process."""
    server.add_resource("/faults", lambda request: _guarded(lambda: _faults(engine, role, request)))
    server.add_resource("/recorder", lambda request: _guarded(lambda: _recorder(engine, request)))


def _guarded(answer: Callable[[], Page]) -> Page:
    try:
        return answer()
    except FaultError as error:
        return _page({"error": str(error)}, BAD)


def _page(value: object, status: str = OK) -> Page:
    return Page(json.dumps(value, ensure_ascii=False).encode() + b"\n", JSON_TYPE, status)


def _body(request: ResourceRequest) -> object:
    try:
        return json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise FaultError(f"the body is not JSON: {error}") from None


def _faults(engine: FaultEngine, role: str, request: ResourceRequest) -> Page:
    if request.path:
        return _one_fault(engine, request)
    if request.method == "POST":
        body = _body(request)
        faults = [Fault.parse(one) for one in (body if isinstance(body, list) else [body])]
        added = engine.add_all(faults)
        return _page({"node": engine.node_id, "faults": [armed.describe() for armed in added]}, CREATED)
    found = engine.remove_all() if request.method == "DELETE" else engine.faults()
    return _page({"node": engine.node_id, "role": role, "faults": [armed.describe() for armed in found]})


def _one_fault(engine: FaultEngine, request: ResourceRequest) -> Page:
    if request.method == "POST":
        return _page({"error": "a fault cannot be changed: remove it and add another"}, NOT_ALLOWED)
    armed = engine.remove(request.path) if request.method == "DELETE" else engine.find(request.path)
    if armed is None:
        return _page({"error": f"there is no fault {request.path!r}"}, MISSING)
    return _page(armed.describe())


def _recorder(engine: FaultEngine, request: ResourceRequest) -> Page:
    recorder = engine.recorder
    if request.path:
        return _page({"error": "there is nothing below /recorder"}, MISSING)
    requests: list[Any] = []
    if request.method == "POST":
        _switch(recorder, _body(request))
    elif request.method == "DELETE":
        recorder.clear()
    else:
        requests = recorder.select(_filters(request))
    state = {"node": engine.node_id, "recording": recorder.is_on, "capacity": recorder.capacity}
    return _page({**state, "requests": requests})


def _filters(request: ResourceRequest) -> dict[str, str]:
    for key, value in request.query.items():
        if key not in FILTERS:
            raise FaultError(f"unknown filter {key!r}; the filters are {', '.join(FILTERS)}")
        if key == "after" and not value.isdecimal():
            raise FaultError(f"after must be a sequence number, not {value!r}")
    return dict(request.query)


def _switch(recorder: Recorder, wanted: object) -> None:
    if not isinstance(wanted, dict) or not isinstance(wanted.get("recording"), bool):
        raise FaultError('the body must be {"recording": true} or {"recording": false}')
    for key in wanted:
        if key not in ("recording", "capacity"):
            raise FaultError(f"unknown key {key!r}; the keys are recording and capacity")
    capacity = wanted.get("capacity", CAPACITY_DEFAULT)
    if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity <= CAPACITY_MAX:
        raise FaultError(f"capacity must be between 1 and {CAPACITY_MAX}, not {capacity!r}")
    if wanted["recording"]:
        recorder.start(capacity)
    else:
        recorder.stop()
