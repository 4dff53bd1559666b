"""The pages of a cluster's processes: where they are, and what `/live.json` tells there.

Where the pages are is asked in this order:
1. `--page` says it: one is enough if its process knows the others;
2. a local cluster of `barnabas up` has written it down (`cluster.json`);
3. each broker tells it in answer to DescribeConfigs: `barnabas.live.peers`, of all processes as seen from where people
   look, and its own `barnabas.metrics.host` and `.port`.

What 1 and 3 tell may be true in one network and not in another (the ports of containers are other ones outside), so an
address counts only if the process that it is said to be of answers there.

A process that does not answer is an `Unanswered`, not the end: what the others say is worth having.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import click

from barnabas.cli.address import bootstrap_option, host_port
from barnabas.cli.cluster_nodes import CLIENT_ID, ask_any
from barnabas.cli.errors import UserError
from barnabas.cli.running import running_directories
from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.common.cluster_file import ClusterFile, read_cluster_file
from barnabas.common.live_shape import SCHEMA
from barnabas.common.page_addresses import page_addresses
from barnabas.common.ports import HOST
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

T = TypeVar("T")
BROKER: Final = "broker"
PATH: Final = "/live.json"
TIMEOUT_S: Final = 2.0
BYTES_MAX: Final = 64 * 1024 * 1024
AT_ONCE: Final = 16
METADATA_VERSION: Final = 12
CONFIGS_VERSION: Final = 4
BROKER_RESOURCE: Final = 4
HOST_KEY: Final = "barnabas.metrics.host"
PORT_KEY: Final = "barnabas.metrics.port"
PEERS_KEY: Final = "barnabas.live.peers"
ANY_HOST: Final = frozenset({"", "0.0.0.0", "::"})


class Page(NamedTuple):
    """A process, and where its page is; `address` "" where there is none, `problem` then says why."""

    role: str
    id: int
    address: str
    problem: str = ""

    @property
    def name(self) -> str:
        return f"{self.role} {self.id}"


class Unanswered(NamedTuple):
    """A page that could not be read, and why."""

    page: Page
    problem: str


class Answers(NamedTuple):
    """What the pages told, by process, in order of the ids."""

    told: dict[Page, dict[str, Any]]
    unanswered: list[Unanswered]

    def brokers(self) -> dict[int, dict[str, Any]]:
        """What the brokers told, by id."""
        return {page.id: live for page, live in self.told.items() if page.role == BROKER}

    def silent_brokers(self) -> dict[int, str]:
        """The brokers that do not answer, and why."""
        return {each.page.id: each.problem for each in self.unanswered if each.page.role == BROKER}

    def controller(self) -> dict[str, Any] | None:
        """What the controller told."""
        return next((live for page, live in self.told.items() if page.role != BROKER), None)


def page_options(command: Callable[..., T]) -> Callable[..., T]:
    """`--bootstrap` and `--page`, for commands that look inside."""
    command = click.option(
        "--page",
        metavar="HOST:PORT,...",
        help="Where a process's /metrics and /live are, if the cluster at --bootstrap cannot tell.",
    )(command)
    return bootstrap_option(command)


# --- finding


def find_pages(bootstrap: str, page: str | None = None) -> list[Page]:
    """The pages of a cluster. Raises UserError if there are none."""
    if page is not None:
        return _with_peers([_page_at(text) for text in page.split(",")])
    local = _local_cluster(bootstrap)
    if local is not None:
        return sorted(_of_process(process) for process in local["processes"])
    return _from_configs(bootstrap)


def _page_at(text: str) -> Page:
    address = _address(*host_port(text))
    node = read_page(Page(BROKER, -1, address), {"section": "node"})["node"]
    return Page(str(node["role"]), int(node["id"]), address)


def _local_cluster(bootstrap: str) -> ClusterFile | None:
    """The local cluster that has one of these addresses."""
    wanted = {text.strip() for text in bootstrap.split(",")}
    for directory in running_directories():
        cluster = read_cluster_file(directory)
        if cluster is not None and wanted & set(cluster["bootstrap"].split(",")):
            return cluster
    return None


def _of_process(process: Mapping[str, Any]) -> Page:
    port = int(process["metrics_port"])
    if port <= 0:
        return Page(process["role"], process["id"], "", f"it has no page ({PORT_KEY})")
    return Page(process["role"], process["id"], _address(HOST, port))


def _from_configs(bootstrap: str) -> list[Page]:
    """Ask each broker where the pages are; one that does not answer has none that is known."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    brokers = sorted(
        (int(broker.node_id), str(broker.host), int(broker.port))
        for broker in ask_any(bootstrap, request, METADATA_VERSION).brokers
    )
    told = [page for pages in _at_once(lambda broker: _ask_where(*broker), brokers) for page in pages]
    if not any(page.address for page in told):
        raise UserError(f"{told[0].name}: {told[0].problem}" if told else f"{bootstrap} knows no broker yet")
    return _those_that_answer(told)


def _ask_where(broker_id: int, host: str, port: int) -> list[Page]:
    """Where a broker says that the pages are: its own last."""
    keys = [HOST_KEY, PORT_KEY, PEERS_KEY]
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=keys
    )
    timeout_ms = int(TIMEOUT_S * 1000)
    try:
        with NodeConnection(host, port, timeout_ms=timeout_ms, client_id=CLIENT_ID) as connection:
            (found,) = connection.send(DescribeConfigsRequest(resources=[resource]), CONFIGS_VERSION).results
    except NodeConnectionError as error:
        return [Page(BROKER, broker_id, "", str(error))]
    configs = {entry.name: entry.value for entry in found.configs}
    return [*_peers_of(configs), _page_of(broker_id, host, configs)]


def _peers_of(configs: Mapping[str, str | None]) -> list[Page]:
    texts = [text.strip() for text in (configs.get(PEERS_KEY) or "").split(",") if text.strip()]
    return [Page(*told) for told in page_addresses(texts)]


def _page_of(broker_id: int, advertised_host: str, configs: Mapping[str, str | None]) -> Page:
    """Where the page of a broker with these settings is."""
    if PORT_KEY not in configs:
        return Page(BROKER, broker_id, "", "it is no Barnabas broker: nothing tells what is inside")
    port = int(configs[PORT_KEY] or -1)
    if port < 0:
        return Page(BROKER, broker_id, "", f"it has no page: set {PORT_KEY}")
    if port == 0:
        return Page(BROKER, broker_id, "", f"its page is on a port of its own choice ({PORT_KEY}=0): say --page")
    host = configs.get(HOST_KEY) or ""
    return Page(BROKER, broker_id, _address(advertised_host if host in ANY_HOST else host, port))


def _with_peers(pages: list[Page]) -> list[Page]:
    """These pages, and those of the processes that they know of."""
    answers = read_pages(pages, {"section": "node"})
    if not answers.told:
        raise UserError(f"{answers.unanswered[0].page.name}: {answers.unanswered[0].problem}")
    peers = [peer for live in answers.told.values() for peer in live["node"]["peers"]]
    return _those_that_answer([*pages, *(Page(peer["role"], peer["id"], peer["address"]) for peer in peers)])


def _those_that_answer(told: Iterable[Page]) -> list[Page]:
    """One page a process: the first where it answers, else the first that has an address."""
    found: dict[tuple[str, int], Page] = {}
    several = list(dict.fromkeys(told))
    answers = read_pages(several, {"section": "node"})
    silent = [each.page for each in answers.unanswered]
    for page in [*answers.told, *sorted(silent, key=lambda page: not page.address)]:
        found.setdefault((page.role, page.id), page)
    return sorted(found.values())


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# --- reading


def read_pages(pages: Sequence[Page], query: Mapping[str, object], timeout_s: float = TIMEOUT_S) -> Answers:
    """Read all the pages at once."""

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
    """What a page tells. Raises UserError, in words that go on after the process's name and a colon."""
    if not page.address:
        raise UserError(page.problem)
    host, port = host_port(page.address)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", f"{PATH}?{urlencode(query)}")
        response = connection.getresponse()
        body = response.read(BYTES_MAX)
        if response.status != http.client.OK:
            raise UserError(f"its page at {page.address} answers {response.status} {response.reason}")
        live: dict[str, Any] = json.loads(body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UserError(f"its page at {page.address} does not answer ({_reason(error)})") from error
    finally:
        connection.close()
    if live.get("schema") != SCHEMA:
        raise UserError(f"its page at {page.address} is of another version of Barnabas")
    node = live["node"]
    if page.id >= 0 and (node["role"], node["id"]) != (page.role, page.id):
        raise UserError(f"at {page.address} is the page of {node['role']} {node['id']}")
    return live


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _at_once(work: Callable[[T], Any], items: Iterable[T]) -> list[Any]:
    """The results, in order; the work is waiting, so threads do it side by side."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))
