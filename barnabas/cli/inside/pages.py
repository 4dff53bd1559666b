"""Finds the pages of a cluster's processes and reads their `/live.json`.

The addresses come from the first of these sources:
1. `--page`: one is enough if its process knows the others;
2. `cluster.json` of a local cluster of `barnabas up`;
3. the brokers' DescribeConfigs responses: `barnabas.live.peers`, which lists all processes as seen from the users'
   network, and each broker's own `barnabas.metrics.host` and `.port`.

Addresses from 1 and 3 may be valid in one network only (containers have other ports outside). An address is therefore
used only if the expected process answers there.

A process that does not answer becomes an `Unanswered` instead of an error, since the other pages are still useful.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import click

from barnabas.cli.address import bootstrap_option, host_port
from barnabas.cli.cluster_nodes import CLIENT_ID, ask_any
from barnabas.cli.errors import UserError
from barnabas.cli.local.running import cluster_at
from barnabas.cli.security.command_config import connector
from barnabas.client.connection import Connect, NodeConnectionError
from barnabas.common.pages.live_constants import SCHEMA
from barnabas.common.pages.page_access import OPEN, TOKEN_VARIABLE, Access, of_directory, of_environment, of_text
from barnabas.common.pages.page_addresses import page_addresses
from barnabas.common.pages.page_client import UNAUTHORIZED, ask
from barnabas.common.processes.cluster_file import ProcessEntry
from barnabas.common.processes.ports import HOST
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

T = TypeVar("T")
R = TypeVar("R")
BROKER: Final = "broker"
PATH: Final = "/live.json"
TIMEOUT_S: Final = 2.0
BYTES_MAX: Final = 64 * 1024 * 1024
AT_ONCE: Final = 16
METADATA_VERSION: Final = 4  # of every release that a cluster can answer as
CONFIGS_VERSION: Final = 4
BROKER_RESOURCE: Final = 4
HOST_KEY: Final = "barnabas.metrics.host"
PORT_KEY: Final = "barnabas.metrics.port"
PEERS_KEY: Final = "barnabas.live.peers"
TLS_KEYS: Final = ("barnabas.pages.ssl.keystore.location", "barnabas.pages.ssl.keystore.key")
DEFAULT_SOURCE: Final = 5  # of DescribeConfigs
ANY_HOST: Final = frozenset({"", "0.0.0.0", "::"})


class Page(NamedTuple):
    """A process and the address of its page; `address` "": there is none, for the reason in `problem`."""

    role: str
    id: int
    address: str
    problem: str = ""
    access: Access = OPEN

    @property
    def name(self) -> str:
        """`broker 0`: the name in messages."""
        return f"{self.role} {self.id}"


class Unanswered(NamedTuple):
    """A page that could not be read, and why."""

    page: Page
    problem: str


class Answers(NamedTuple):
    """The content of the pages, by process, in order of the ids."""

    found: dict[Page, dict[str, Any]]
    unanswered: list[Unanswered]

    def brokers(self) -> dict[int, dict[str, Any]]:
        """The brokers' pages, by id."""
        return {page.id: live for page, live in self.found.items() if page.role == BROKER}

    def unreachable_brokers(self) -> dict[int, str]:
        """The reasons of the brokers that do not answer, by id."""
        return {each.page.id: each.problem for each in self.unanswered if each.page.role == BROKER}

    def controllers(self) -> list[dict[str, Any]]:
        """The pages of the controllers that answer, the active one first."""
        found = [live for page, live in self.found.items() if page.role != BROKER]
        return sorted(found, key=lambda live: live.get("quorum", {}).get("role") != "leader")


def page_options(command: Callable[..., T]) -> Callable[..., T]:
    """`--bootstrap` and `--page`, for commands that read the pages."""
    command = click.option(
        "--page",
        metavar="HOST:PORT,...",
        help="The address of a process's /metrics and /live, if --bootstrap does not lead to it.",
    )(command)
    command = click.option(
        "--page-auth",
        "access",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_access,
        metavar="FILE",
        help=f"A file with the token of the pages, or NAME:PASSWORD. Default: ${TOKEN_VARIABLE}.",
    )(command)
    return bootstrap_option(command)


def _access(_context: click.Context, _parameter: click.Parameter, file: Path | None) -> Access:
    """Return the access that a file or the environment gives; a secret in an option would be seen by everybody."""
    try:
        return of_environment() if file is None else Access(of_text(file.read_text()))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{file}: {error}" if file is not None else str(error)) from error


# --- finding


def find_pages(bootstrap: str, page: str | None = None, access: Access = OPEN) -> list[Page]:
    """The pages of a cluster. Raises UserError if there are none."""
    if page is not None:
        return _with_peers([_page_at(text, access) for text in page.split(",")])
    local = cluster_at(bootstrap)
    if local is not None:
        directory, content = local
        own = of_directory(directory)
        access = access if own == OPEN else own
        return sorted(page for process in content["processes"] for page in _of_process(process, access))
    return _from_configs(bootstrap, access)


def _page_at(text: str, access: Access) -> Page:
    if text.startswith("https://"):
        access = access._replace(scheme="https")
    address = _address(*host_port(text.rpartition("://")[2].partition("/")[0]))
    node = read_page(Page(BROKER, -1, address, access=access), {"section": "node"})["node"]
    return Page(str(node["role"]), int(node["id"]), address, access=access)


def _of_process(process: ProcessEntry, access: Access) -> list[Page]:
    """The page of each role of a process."""
    roles = [process["role"], *(["controller"] if "controller_port" in process else [])]
    port = int(process["metrics_port"])
    if port <= 0:
        return [Page(role, process["id"], "", f"it has no page ({PORT_KEY})") for role in roles]
    return [Page(role, process["id"], _address(HOST, port), access=access) for role in roles]


def _from_configs(bootstrap: str, access: Access) -> list[Page]:
    """Request the pages' addresses from each broker. A broker that does not answer gets a page without address."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    brokers = sorted(
        (int(broker.node_id), str(broker.host), int(broker.port))
        for broker in ask_any(bootstrap, request, METADATA_VERSION).brokers
    )
    connect = connector(bootstrap)
    found = _at_once(lambda broker: _configured_pages(connect, *broker), brokers)
    candidates = [page for pages in found for page in pages]
    if not candidates:
        raise UserError(f"{bootstrap} knows no broker yet")
    if not any(page.address for page in candidates):
        raise UserError(f"{candidates[0].name}: {candidates[0].problem}")
    return _choose_reachable(page._replace(access=access._replace(scheme=page.access.scheme)) for page in candidates)


def _configured_pages(connect: Connect, broker_id: int, host: str, port: int) -> list[Page]:
    """The pages in a broker's configuration, its own last."""
    keys = [HOST_KEY, PORT_KEY, PEERS_KEY, *TLS_KEYS]
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=keys
    )
    timeout_ms = int(TIMEOUT_S * 1000)
    try:
        with connect(host, port, timeout_ms=timeout_ms, client_id=CLIENT_ID) as connection:
            (found,) = connection.send(DescribeConfigsRequest(resources=[resource]), CONFIGS_VERSION).results
    except NodeConnectionError as error:
        return [Page(BROKER, broker_id, "", str(error))]
    configs = {entry.name: entry.value for entry in found.configs}
    # Why by the source: a key is a secret, and has no value here.
    has_tls = any(entry.name in TLS_KEYS and entry.config_source != DEFAULT_SOURCE for entry in found.configs)
    access = Access(scheme="https") if has_tls else OPEN
    return [page._replace(access=access) for page in (*_peers_of(configs), _page_of(broker_id, host, configs))]


def _peers_of(configs: Mapping[str, str | None]) -> list[Page]:
    texts = [text.strip() for text in (configs.get(PEERS_KEY) or "").split(",") if text.strip()]
    return [Page(*address) for address in page_addresses(texts)]


def _page_of(broker_id: int, advertised_host: str, configs: Mapping[str, str | None]) -> Page:
    """The page of a broker with these settings."""
    if PORT_KEY not in configs:
        return Page(BROKER, broker_id, "", "it is not a Barnabas broker and has no such page")
    port = int(configs[PORT_KEY] or -1)
    if port < 0:
        return Page(BROKER, broker_id, "", f"it has no page: set {PORT_KEY}")
    if port == 0:
        return Page(BROKER, broker_id, "", f"its page has a random port ({PORT_KEY}=0): give its address as --page")
    host = configs.get(HOST_KEY) or ""
    return Page(BROKER, broker_id, _address(advertised_host if host in ANY_HOST else host, port))


def _with_peers(pages: list[Page]) -> list[Page]:
    """These pages, and those of the peers that they list."""
    answers = read_pages(pages, {"section": "node"})
    if not answers.found:
        raise UserError(f"{answers.unanswered[0].page.name}: {answers.unanswered[0].problem}")
    peers = [(page.access, peer) for page, live in answers.found.items() for peer in live["node"]["peers"]]
    return _choose_reachable(
        [*pages, *(Page(peer["role"], peer["id"], peer["address"], access=access) for access, peer in peers)]
    )


def _choose_reachable(candidates: Iterable[Page]) -> list[Page]:
    """One page for each process: the first candidate that answers, else the first with an address."""
    chosen: dict[tuple[str, int], Page] = {}
    answers = read_pages(list(dict.fromkeys(candidates)), {"section": "node"})
    unanswered = [each.page for each in answers.unanswered]
    for page in [*answers.found, *sorted(unanswered, key=lambda page: not page.address)]:
        chosen.setdefault((page.role, page.id), page)
    return sorted(chosen.values())


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# --- reading


def read_pages(pages: Sequence[Page], query: Mapping[str, object], timeout_s: float = TIMEOUT_S) -> Answers:
    """Read all the pages in parallel; `query` are the parameters of /live.json."""

    def read(page: Page) -> dict[str, Any] | Unanswered:
        try:
            return read_page(page, query, timeout_s)
        except UserError as error:
            return Unanswered(page, str(error))

    found = list(zip(pages, _at_once(read, pages), strict=True))
    return Answers(
        {page: live for page, live in found if not isinstance(live, Unanswered)},
        [live for _, live in found if isinstance(live, Unanswered)],
    )


def read_page(page: Page, query: Mapping[str, object], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Read a page. Raises UserError with a text that fits after "broker 0: "."""
    if not page.address:
        raise UserError(page.problem)
    host, port = host_port(page.address)
    try:
        # Why the role: a process that has both shows the broker if not asked for the controller.
        role = {} if page.role == BROKER else {"role": page.role}
        target = f"{PATH}?{urlencode({**query, **role})}"
        answer = ask(host, port, "GET", target, page.access, timeout_s=timeout_s, bytes_max=BYTES_MAX)
        if answer.status == UNAUTHORIZED:
            raise UserError(f"its page at {page.address} asks for credentials: see --page-auth")
        if answer.status != http.client.OK:
            raise UserError(f"its page at {page.address} answers {answer.status} {answer.reason}")
        live: dict[str, Any] = json.loads(answer.body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UserError(f"its page at {page.address} does not answer ({_reason(error)})") from error
    if live.get("schema") != SCHEMA:
        raise UserError(f"its page at {page.address} is of another version of Barnabas")
    node = live["node"]
    if page.id >= 0 and (node["role"], node["id"]) != (page.role, page.id):
        raise UserError(f"{page.address} is the page of {node['role']} {node['id']}")
    return live


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _at_once(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results, in order. Threads run the work in parallel, since it mostly waits."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))
