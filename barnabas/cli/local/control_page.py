"""The HTTP interface that controls a local cluster as a whole: its nodes, faults and recorders.

    GET    /nodes, /nodes/1     {"nodes": [{"id", "role", "pid", "port", "metrics_port", "state"}]}; the state is
                                running, paused or dead
    POST   /nodes/1             {"action": "kill"}: kill, stop, start, pause or resume; {"done": "broker-1 killed"}
    GET    /faults              {"faults": [state, …]}, each with its `node`
    POST   /faults              add a fault or a list to the nodes they name: 201 {"faults": [{"fault", "places"}]}
    DELETE /faults              {"removed": 3}
    POST   /scenario            run the steps of a scenario, then respond: 201 {"steps": ["kill: 1", …]}
    GET    /recorder?api=…      {"requests": [record, …]} of all nodes
    POST   /recorder            {"recording": true}
    DELETE /recorder            delete the recorded requests

A mistake is 400 with {"error": one line}. The page exists if the cluster runs with barnabas.faults.enable=true. It
listens on the loopback interface; the ready line and cluster.json contain its URL. If the nodes' pages ask for
credentials (barnabas.pages.auth.*), so does this one: DIR/pages.json has one that it accepts, for its user alone.
Actions on processes go to the supervisor through its control socket, as in `barnabas node`.

*Threads*: one accepts; one more per connection handles its request. Neither calls the supervisor.
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

from barnabas.cluster.errors import ClusterError
from barnabas.common.clock import SystemClock
from barnabas.common.pages.page_auth import PageAuth
from barnabas.common.processes.cluster_file import ProcessEntry, process_state, read_cluster_file
from barnabas.common.processes.ports import HOST

if TYPE_CHECKING:
    from barnabas.faults import Faults

OK, CREATED, BAD, MISSING = 200, 201, 400, 404
TIMEOUT_S = 60  # for each read and write

Response = tuple[int, dict[str, Any]]


class ControlPage:
    """Serves the cluster in a directory while the block runs."""

    def __init__(self, directory: Path, credential: str = "") -> None:
        self._directory = directory  # fixed before start
        self._auth = PageAuth([credential], SystemClock()) if credential else None  # fixed before start
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
                connection, address = self._listener.accept()
            except OSError:
                return
            arguments = (connection, address)
            threading.Thread(target=self._handle, args=arguments, name="control-request", daemon=True).start()

    def _handle(self, connection: socket.socket, address: tuple[str, int]) -> None:
        from barnabas.cli.local.control_request import handle  # Why here: most clusters never load an HTTP server

        with connection, contextlib.suppress(OSError):
            connection.settimeout(TIMEOUT_S)
            handle(connection, address, self.respond, self._auth)

    def respond(self, method: str, target: str, body: bytes) -> Response:
        """The response to one request: an HTTP status and JSON values."""
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
        """The processes of the cluster; raises ClusterError while it does not run."""
        content = read_cluster_file(self._directory)
        if content is None:
            raise ClusterError("the cluster does not run yet")
        return content["processes"]

    def act(self, action: str, node_id: int) -> str:
        """Have the supervisor act on a node; return its answer. Raises ClusterError."""
        return self.faults().act(action, node_id)


Resource = Callable[[ControlPage, str, dict[str, str], bytes], Response]


def _parsed(body: bytes) -> Any:
    from barnabas.faults import FaultError

    try:
        return json.loads(body)
    except ValueError as error:
        raise FaultError(f"the body is not JSON: {error}") from None


def _nodes(page: ControlPage, below: str, _query: dict[str, str], _body: bytes) -> Response:
    nodes = [
        {**entry, "state": process_state(entry["pid"])} for entry in page.entries() if below in ("", str(entry["id"]))
    ]
    if not nodes:
        return MISSING, {"error": f"there is no node {below}"}
    return OK, {"nodes": nodes}


def _act(page: ControlPage, below: str, _query: dict[str, str], body: bytes) -> Response:
    content = _parsed(body)
    if not below.isdecimal() or not isinstance(content, dict) or set(content) != {"action"}:
        raise ClusterError('expected POST /nodes/ID with {"action": "kill"}')
    return OK, {"done": page.act(str(content["action"]), int(below))}


def _list_faults(page: ControlPage, _below: str, _query: dict[str, str], _body: bytes) -> Response:
    return OK, {"faults": page.faults().list()}


def _add_faults(page: ControlPage, _below: str, _query: dict[str, str], body: bytes) -> Response:
    from barnabas.faults import Fault

    content = _parsed(body)
    faults = [Fault.parse(one) for one in (content if isinstance(content, list) else [content])]
    handles = page.faults().add_all(faults)
    return CREATED, {
        "faults": [
            {"fault": handle.fault.to_json(), "places": [{"node": node, "id": id_} for node, id_ in handle.ids]}
            for handle in handles
        ]
    }


def _remove_faults(page: ControlPage, _below: str, _query: dict[str, str], _body: bytes) -> Response:
    return OK, {"removed": page.faults().remove_all()}


def _run_scenario(page: ControlPage, _below: str, _query: dict[str, str], body: bytes) -> Response:
    from barnabas.faults import Scenario

    done: list[str] = []
    Scenario.parse(_parsed(body)).run(page.faults(), done.append)
    return CREATED, {"steps": done}


def _recorded(page: ControlPage, _below: str, query: dict[str, str], _body: bytes) -> Response:
    return OK, {"requests": [vars(request) for request in page.faults().recorder.select(query)]}


def _record(page: ControlPage, _below: str, _query: dict[str, str], body: bytes) -> Response:
    page.faults().recorder.switch(_parsed(body))
    return OK, {}


def _clear_recorder(page: ControlPage, _below: str, _query: dict[str, str], _body: bytes) -> Response:
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
    ("DELETE", "recorder"): _clear_recorder,
}
