"""Finding the pages of a cluster, and pages that do not answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas.cli.errors import UserError
from barnabas.cli.inside import pages
from barnabas.cli.inside.pages import HOST_KEY, PEERS_KEY, PORT_KEY, Page, Unanswered, find_pages, read_page, read_pages
from barnabas.common.clock import SystemClock
from barnabas.common.pages.page import Page as HttpPage
from barnabas.common.pages.page_access import Access, credentials
from barnabas.common.pages.page_auth import Auths, PageAuth
from barnabas.common.processes.ports import free_ports
from barnabas.metrics.http import MetricsServer
from barnabas.metrics.registry import Registry
from tests.barnabas.cli.conftest import Barnabas
from tests.barnabas.cli.inside.lives import broker
from tests.support.cluster import BarnabasCluster


class Process:
    """A process that has a page and nothing else."""

    def __init__(self, body: bytes, status: str = "200 OK", token: str = "") -> None:
        self.queries: list[Mapping[str, str]] = []
        self._page = HttpPage(body, status=status)
        auth = PageAuth(credentials(token, None), SystemClock()) if token else None
        self._server = MetricsServer(Registry(), auths=Auths(auth, auth))
        self._server.add_view(pages.PATH, self._view)

    def _view(self, query: Mapping[str, str]) -> HttpPage:
        self.queries.append(query)
        return self._page

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def __enter__(self) -> Process:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()


@pytest.fixture
def process() -> Iterator[Process]:
    with Process(json.dumps(broker(1)).encode()) as running:
        yield running


@pytest.fixture
def dead() -> str:
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


def test_a_page_is_read_with_its_query(process: Process) -> None:
    assert read_page(Page("broker", 1, process.address), {"section": "node,groups", "group": "a b"})["node"]["id"] == 1
    assert process.queries == [{"section": "node,groups", "group": "a b"}]


def test_a_controllers_page_is_asked_for_its_role(process: Process) -> None:
    with pytest.raises(UserError, match="is the page of broker 1"):
        read_page(Page("controller", 1, process.address), {"section": "node"})
    assert process.queries == [{"section": "node", "role": "controller"}]


@pytest.mark.parametrize(
    ("answer", "status", "problem"),
    [
        (b"gone", "404 Not Found", "answers 404 Not Found"),
        (b"no JSON", "200 OK", "does not answer (Expecting value: line 1 column 1 (char 0))"),
        (b'{"schema": 99}', "200 OK", "is of another version of Barnabas"),
        (b"{}", "200 OK", "is of another version of Barnabas"),
    ],
)
def test_a_page_with_unexpected_content(answer: bytes, status: str, problem: str) -> None:
    with Process(answer, status) as process, pytest.raises(UserError) as failed:
        read_page(Page("broker", 1, process.address), {})
    assert str(failed.value) == f"its page at {process.address} {problem}"


def test_a_page_that_does_not_answer_is_named_and_the_others_are_read(process: Process, dead: str) -> None:
    one, two, none = Page("broker", 1, process.address), Page("broker", 2, dead), Page("broker", 3, "", "it has none")
    answers = read_pages([one, two, none], {})
    assert list(answers.brokers()) == [1]
    assert answers.unanswered == [
        Unanswered(two, f"its page at {dead} does not answer (Connection refused)"),
        Unanswered(none, "it has none"),
    ]
    assert answers.unreachable_brokers().keys() == {2, 3}
    assert answers.controllers() == []


def test_a_slow_page_times_out() -> None:
    with BusyProcess() as address, pytest.raises(UserError, match=r"does not answer \(no answer in time\)"):
        read_page(Page("broker", 1, address), {}, timeout_s=0.05)


class BusyProcess:
    """Accepts connections and never answers."""

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def test_the_page_of_another_process_is_refused(process: Process) -> None:
    """With published ports of containers, several processes may advertise one address that only one of them has."""
    with pytest.raises(UserError, match=f"^{process.address} is the page of broker 1$"):
        read_page(Page("broker", 2, process.address), {})
    with pytest.raises(UserError, match="is the page of broker 1"):
        read_page(Page("controller", 1, process.address), {})


def test_one_page_leads_to_the_others(dead: str) -> None:
    live = broker(1)
    live["node"]["peers"] = [
        {"id": 100, "role": "controller", "address": dead, "is_self": False},
        {"id": 0, "role": "broker", "address": dead, "is_self": False},
    ]
    with Process(json.dumps(live).encode()) as process:
        found = find_pages("unused:1", process.address)
        assert found == [
            Page("broker", 0, dead),
            Page("broker", 1, process.address),
            Page("controller", 100, dead),
        ]
    with pytest.raises(UserError, match=rf"its page at {dead} does not answer"):
        find_pages("unused:1", dead)


def test_of_several_addresses_the_first_that_answers_is_chosen(process: Process, dead: str) -> None:
    with Process(json.dumps(broker(0)).encode()) as zero:
        candidates = [
            Page("broker", 0, "", "it did not say"),
            Page("broker", 0, process.address),  # broker 1's
            Page("broker", 0, zero.address),
            Page("broker", 1, zero.address),
            Page("broker", 1, process.address),
            Page("broker", 2, "", "it did not say"),
            Page("broker", 2, dead),
            Page("broker", 3, "", "it did not say"),
        ]
        assert pages._choose_reachable(candidates) == [
            Page("broker", 0, zero.address),
            Page("broker", 1, process.address),
            Page("broker", 2, dead),
            Page("broker", 3, "", "it did not say"),
        ]


def test_a_brokers_settings_list_its_peers() -> None:
    configs = {PORT_KEY: "9404", HOST_KEY: "0.0.0.0", PEERS_KEY: "controller-100=h:9704,broker-0=h:9404"}
    assert pages._peers_of(configs) == [Page("broker", 0, "h:9404"), Page("controller", 100, "h:9704")]
    assert pages._peers_of({PORT_KEY: "9404", PEERS_KEY: ""}) == []
    assert pages._peers_of({PORT_KEY: "9404"}) == []


@pytest.mark.parametrize(
    ("configs", "page"),
    [
        ({PORT_KEY: "9404", HOST_KEY: "127.0.0.1"}, Page("broker", 7, "127.0.0.1:9404")),
        ({PORT_KEY: "9404", HOST_KEY: "0.0.0.0"}, Page("broker", 7, "advertised:9404")),
        ({PORT_KEY: "9404", HOST_KEY: None}, Page("broker", 7, "advertised:9404")),
        ({PORT_KEY: "9404", HOST_KEY: "fd00::1"}, Page("broker", 7, "[fd00::1]:9404")),
        ({PORT_KEY: "-1"}, Page("broker", 7, "", f"it has no page: set {PORT_KEY}")),
        (
            {PORT_KEY: "0"},
            Page("broker", 7, "", f"its page has a random port ({PORT_KEY}=0): give its address as --page"),
        ),
        ({}, Page("broker", 7, "", "it is not a Barnabas broker and has no such page")),
    ],
)
def test_the_page_of_a_broker_by_its_settings(configs: dict[str, str | None], page: Page) -> None:
    assert pages._page_of(7, "advertised", configs) == page


def test_brokers_report_the_addresses_of_their_pages(cluster: BarnabasCluster) -> None:
    found = find_pages(cluster.bootstrap)
    addresses = {(page.role, page.id): page.address for page in found}
    node = cluster.nodes[0]
    assert addresses["broker", 0] == f"127.0.0.1:{node.metrics_port}"
    assert read_pages(found, {"section": "node"}).brokers()[0]["node"]["state"] == "running"


def test_no_cluster(dead: str) -> None:
    with pytest.raises(UserError, match=rf"nothing listens at {dead}; start one: barnabas up"):
        find_pages(dead)


# --- credentials


def test_a_page_gets_the_credential(dead: str) -> None:
    live = broker(1)
    live["node"]["peers"] = [{"id": 0, "role": "broker", "address": dead, "is_self": False}]
    with Process(json.dumps(live).encode(), token="t0ken") as process:
        access = Access("Bearer t0ken")
        assert find_pages("unused:1", process.address, access) == [
            Page("broker", 0, dead, access=access),
            Page("broker", 1, process.address, access=access),
        ]
        with pytest.raises(UserError, match="asks for credentials: see --page-auth"):
            find_pages("unused:1", process.address)


def test_commands_take_the_credential_from_a_file_or_the_environment(
    barnabas: Barnabas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = broker(1)
    file = tmp_path / "token"
    with Process(json.dumps(live).encode(), token="t0ken") as process:
        command = ("explain", "request", "--slowest", "--page", process.address)
        assert "asks for credentials" in barnabas(*command).err
        file.write_text("t0ken\n")
        assert "asks for credentials" not in barnabas(*command, "--page-auth", str(file)).err
        monkeypatch.setenv("BARNABAS_PAGES_AUTH_TOKEN", "t0ken")
        assert "asks for credentials" not in barnabas(*command).err
    file.write_text("two s3crets")
    refused = barnabas(*command, "--page-auth", str(file)).err
    assert f"{file}: " in refused
    assert "s3cret" not in refused
    assert "cannot read" in barnabas(*command, "--page-auth", str(tmp_path / "absent")).err
