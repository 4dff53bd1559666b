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
    GET    /clock               {"now_ms": …, "offset_ms": …}: the cluster's time, and how far it is ahead
    POST   /clock               {"advance": "7d"}, also with "step": "1h": move the time forward, then respond as GET

A mistake is 400 with {"error": one line}. The page exists if the cluster runs with barnabas.faults.enable=true or
barnabas.clock.enable=true. It listens on the loopback interface; the ready line and cluster.json contain its URL. POST
and DELETE need a credential: DIR/pages.json has one, for its user alone. GET needs it if the nodes' pages ask for one
(barnabas.pages.auth.*). A cluster that `up --security` secures with TLS has it here, too.
Actions on processes go to the supervisor through its control socket, as in `barnabas node`.

*Threads*: one accepts; one more per connection handles its request. Neither calls the supervisor.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from barnabas.cluster.errors import ClusterError
from barnabas.common.clock import SystemClock
from barnabas.common.pages.page import Page
from barnabas.common.pages.page_access import Credentials
from barnabas.common.pages.page_auth import Auths
from barnabas.common.processes.cluster_file import ProcessEntry, process_state, read_cluster_file
from barnabas.common.processes.ports import HOST

if TYPE_CHECKING:
    import ssl

    from barnabas.clock import ClusterClock
    from barnabas.faults import Faults

OK, CREATED, BAD, MISSING = 200, 201, 400, 404
TIMEOUT_S = 60  # for each read and write

Response = tuple[int, dict[str, Any]]


class ControlPage:
    """Serves the cluster in a directory while the block runs."""

    def __init__(self, directory: Path, accepted: Credentials, certificate: Path | None = None) -> None:
        """`certificate` is a PEM file with a key and its certificate; None: no TLS."""
        self._directory = directory  # fixed before start
        self._auths = Auths.of(accepted, SystemClock())  # fixed before start
        self._tls = None if certificate is None else _ServerTls(certificate)  # fixed before start
        self._listener = socket.create_server((HOST, 0))
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://{HOST}:{self._listener.getsockname()[1]}"

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
            if self._tls is None:
                handle(connection, address, self.respond, self._refusal)
                return
            with self._tls.context().wrap_socket(connection, server_side=True) as stream:
                handle(stream, address, self.respond, self._refusal)

    def _refusal(self, method: str, authorizations: Sequence[str], address: str) -> Page | None:
        """Return the answer to a request that lacks its credential."""
        return self._auths.refusal(authorizations, address, is_change=method != "GET")

    def respond(self, method: str, target: str, body: bytes) -> Response:
        """The response to one request: an HTTP status and JSON values."""
        from barnabas.clock import ClockError
        from barnabas.faults import FaultError, FaultsUnavailableError

        parts = urlsplit(target)
        root, _, below = parts.path.strip("/").partition("/")
        resource = _RESOURCES.get((method, root))
        if resource is None or (below and root != "nodes"):
            return MISSING, {"error": f"there is no {method} {parts.path} here"}
        try:
            return resource(self, below, dict(parse_qsl(parts.query)), body)
        except (FaultError, ClusterError, FaultsUnavailableError, ClockError) as error:
            return BAD, {"error": str(error)}

    def faults(self) -> Faults:
        """The faults of the cluster."""
        from barnabas.faults import Faults

        return Faults(self._directory)

    def clock(self) -> ClusterClock:
        """The clock of the cluster."""
        from barnabas.clock import ClusterClock

        return ClusterClock(self._directory)

    def entries(self) -> list[ProcessEntry]:
        """The processes of the cluster; raises ClusterError while it does not run."""
        content = read_cluster_file(self._directory)
        if content is None:
            raise ClusterError("the cluster does not run yet")
        return content["processes"]

    def act(self, action: str, node_id: int) -> str:
        """Have the supervisor act on a node; return its answer. Raises ClusterError."""
        return self.faults().act(action, node_id)


class _ServerTls:
    """The context for connections, which is made again when its file has changed: a certificate is renewed in time.

    *Threads*: any.
    """

    def __init__(self, certificate: Path) -> None:
        self._file = certificate  # fixed before start
        self._loaded = self._load()  # replaced whole; two threads may both do it

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection; the former one if a changed file cannot be used."""
        with contextlib.suppress(OSError):  # ssl.SSLError is one
            if self._stamp() != self._loaded[0]:
                self._loaded = self._load()
        return self._loaded[1]

    def _load(self) -> tuple[tuple[int, int], ssl.SSLContext]:
        return self._stamp(), _server_context(self._file)

    def _stamp(self) -> tuple[int, int]:
        status = self._file.stat()
        return status.st_ino, status.st_ctime_ns


def _server_context(certificate: Path) -> ssl.SSLContext:
    import ssl  # Why here: few clusters have TLS

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate)
    return context


Resource = Callable[[ControlPage, str, dict[str, str], bytes], Response]


def _parsed(body: bytes) -> Any:
    from barnabas.faults import FaultError

    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
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


def _time(page: ControlPage, _below: str, _query: dict[str, str], _body: bytes) -> Response:
    states = page.clock().look()
    return OK, {key: max(state[key] for state in states) for key in ("now_ms", "offset_ms")}


def _advance(page: ControlPage, below: str, query: dict[str, str], body: bytes) -> Response:
    from barnabas.clock import ClockError

    content = _parsed(body)
    if not isinstance(content, dict) or not {"advance"} <= content.keys() <= {"advance", "step"}:
        raise ClockError('expected POST /clock with {"advance": "7d"}, or with "step", too')
    page.clock().advance(content["advance"], step=content.get("step"))
    return _time(page, below, query, body)


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
    ("GET", "clock"): _time,
    ("POST", "clock"): _advance,
}
