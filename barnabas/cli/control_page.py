"""The HTTP of a local cluster as a whole: its nodes, faults on all of them, their recorders.

    GET    /nodes, /nodes/1     {"nodes": [{"id", "role", "pid", "port", "metrics_port", "state"}]}; the state is
                                running, paused or dead
    POST   /nodes/1             {"action": "kill"}: kill, stop, start, pause or resume; {"done": "broker-1 killed"}
    GET    /faults              {"faults": [state, …]}, each with its `node`
    POST   /faults              a fault or a list, each put where it belongs: 201 {"faults": [{"fault", "places"}]}
    DELETE /faults              {"removed": 3}
    POST   /scenario            the steps of a scenario, taken before the answer comes: 201 {"steps": ["kill: 1", …]}
    GET    /recorder?api=…      {"requests": [record, …]} of all nodes
    POST   /recorder            {"recording": true}
    DELETE /recorder            forget what was recorded

Mistakes are 400 with {"error": one line}. It is there if the cluster runs with barnabas.faults.enable=true, on the
loopback interface; the ready line and cluster.json say where. What is asked of processes goes on to the supervisor by
its control socket, as `barnabas node` does it.

Threads: one accepts, one more answers each visitor; neither touches the supervisor.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from barnabas.cluster import ClusterError
from barnabas.common.cluster_file import ProcessEntry, process_state, read_cluster_file
from barnabas.common.ports import HOST

if TYPE_CHECKING:
    from barnabas.faults import Faults

OK, CREATED, BAD, MISSING = 200, 201, 400, 404
PATIENCE_S = 60

Answer = tuple[int, dict[str, Any]]


class ControlPage:
    """Serves a cluster's directory for as long as the block runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory  # fixed before start
        self._listener = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> ControlPage:
        threading.Thread(target=self._serve, name="control-http", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                visitor, address = self._listener.accept()
            except OSError:
                return
            attend = threading.Thread(target=self._attend, args=(visitor, address), name="control-visitor", daemon=True)
            attend.start()

    def _attend(self, visitor: socket.socket, address: Any) -> None:
        from barnabas.cli.control_visitor import attend  # Why here: the HTTP of the library is loaded when it is needed

        with visitor, contextlib.suppress(OSError):
            visitor.settimeout(PATIENCE_S)
            attend(visitor, address, self.answer)

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        """Answer one request: a status and JSON values."""
        from barnabas.faults import FaultError, FaultsUnavailableError

        parts = urlsplit(target)
        root, _, below = parts.path.strip("/").partition("/")
        resource = _RESOURCES.get((method, root))
        if resource is None or (below and root != "nodes"):
            return MISSING, {"error": f"there is no {method} {parts.path} here"}
        try:
            return resource(self, below, dict(parse_qsl(parts.query)), body)
        except (FaultError, ClusterError, FaultsUnavailableError) as error:
            return BAD, {"error": str(error)}

    def faults(self) -> Faults:
        """The faults of the cluster."""
        from barnabas.faults import Faults

        return Faults(self._directory)

    def entries(self) -> list[ProcessEntry]:
        """The processes of the cluster; raises ClusterError while there is none."""
        content = read_cluster_file(self._directory)
        if content is None:
            raise ClusterError("the cluster does not run yet")
        return content["processes"]

    def act(self, action: str, node_id: int) -> str:
        """Have the supervisor act on a node."""
        return self.faults().act(action, node_id)


Resource = Callable[[ControlPage, str, dict[str, str], bytes], Answer]


def _parsed(body: bytes) -> Any:
    from barnabas.faults import FaultError

    try:
        return json.loads(body)
    except ValueError as error:
        raise FaultError(f"the body is not JSON: {error}") from None


def _nodes(page: ControlPage, below: str, _query: dict[str, str], _body: bytes) -> Answer:
    nodes = [
        {**entry, "state": process_state(entry["pid"])} for entry in page.entries() if below in ("", str(entry["id"]))
    ]
    if not nodes:
        return MISSING, {"error": f"there is no node {below}"}
    return OK, {"nodes": nodes}


def _act(page: ControlPage, below: str, _query: dict[str, str], body: bytes) -> Answer:
    wanted = _parsed(body)
    if not below.isdecimal() or not isinstance(wanted, dict) or set(wanted) != {"action"}:
        raise ClusterError('POST /nodes/ID with {"action": "kill"} is expected')
    return OK, {"done": page.act(str(wanted["action"]), int(below))}


def _list_faults(page: ControlPage, _below: str, _query: dict[str, str], _body: bytes) -> Answer:
    return OK, {"faults": page.faults().list()}


def _add_faults(page: ControlPage, _below: str, _query: dict[str, str], body: bytes) -> Answer:
    from barnabas.faults import Fault

    wanted = _parsed(body)
    faults = [Fault.parse(one) for one in (wanted if isinstance(wanted, list) else [wanted])]
    handles = page.faults().add_all(faults)
    return CREATED, {
        "faults": [
            {"fault": handle.fault.to_json(), "places": [{"node": node, "id": id_} for node, id_ in handle.ids]}
            for handle in handles
        ]
    }


def _remove_faults(page: ControlPage, _below: str, _query: dict[str, str], _body: bytes) -> Answer:
    return OK, {"removed": page.faults().remove_all()}


def _run_scenario(page: ControlPage, _below: str, _query: dict[str, str], body: bytes) -> Answer:
    from barnabas.faults import Scenario

    done: list[str] = []
    Scenario.parse(_parsed(body)).run(page.faults(), done.append)
    return CREATED, {"steps": done}


def _recorded(page: ControlPage, _below: str, query: dict[str, str], _body: bytes) -> Answer:
    return OK, {"requests": [vars(request) for request in page.faults().recorder.select(query)]}


def _record(page: ControlPage, _below: str, _query: dict[str, str], body: bytes) -> Answer:
    page.faults().recorder.switch(_parsed(body))
    return OK, {}


def _forget(page: ControlPage, _below: str, _query: dict[str, str], _body: bytes) -> Answer:
    page.faults().recorder.clear()
    return OK, {}


_RESOURCES: dict[tuple[str, str], Resource] = {
    ("GET", "nodes"): _nodes,
    ("POST", "nodes"): _act,
    ("GET", "faults"): _list_faults,
    ("POST", "faults"): _add_faults,
    ("DELETE", "faults"): _remove_faults,
    ("POST", "scenario"): _run_scenario,
    ("GET", "recorder"): _recorded,
    ("POST", "recorder"): _record,
    ("DELETE", "recorder"): _forget,
}
