"""A local cluster whose pages ask for credentials, over TLS: its commands have them, and nothing shows them.

Tests cli/local/control_page.py and cli/local/control_request.py with credentials.
"""

from __future__ import annotations

import http.client
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from barnabas.cli.local.running import DIRECTORY_VARIABLE
from barnabas.common.pages.page_access import FILE, OPEN, Access, of_directory
from barnabas.common.pages.page_client import ask
from barnabas.common.processes.cluster_file import ClusterFile, read_cluster_file
from barnabas.config.secrets.providers import PACKAGE
from tests.barnabas.cli.conftest import Barnabas
from tests.support.certificates import Authority

TOKEN = "s3cret-t0ken"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cluster in the background; its token comes from a mounted secret."""
    base = tmp_path_factory.mktemp("closed")
    authority = Authority()
    (base / "token").write_text(f"{TOKEN}\n")
    (base / "more.properties").write_text(
        "config.providers=mounted\n"
        f"config.providers.mounted.class={PACKAGE}.DirectoryConfigProvider\n"
        f"barnabas.pages.auth.token=${{mounted:{base}:token}}\n"
        "barnabas.pages.auth.users=alice:s3cret-password\n"
        "barnabas.faults.enable=true\n"
        "barnabas.pages.ssl.keystore.type=PEM\n"
        f"barnabas.pages.ssl.keystore.location={authority.issue('pages').write_pem(base / 'pages.pem')}\n"
        "barnabas.pages.ssl.truststore.type=PEM\n"
        f"barnabas.pages.ssl.truststore.location={authority.write_pem(base / 'ca.pem')}\n"
    )
    command = [sys.executable, "-P", "-m", "barnabas.cli"]
    options = ["--brokers", "1", "--port", "0", "--data-dir", str(base / "data")]
    subprocess.run([*command, "up", "-d", *options, "--config-file", str(base / "more.properties")], check=True)
    try:
        yield base / "data"
    finally:
        subprocess.run([*command, "down", "--data-dir", str(base / "data")], check=True)


@pytest.fixture(autouse=True)
def chosen(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands act on that cluster."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))


@pytest.fixture
def content(directory: Path) -> ClusterFile:
    """The cluster's file."""
    found = read_cluster_file(directory)
    assert found is not None
    return found


def status(port: int, method: str, path: str, access: Access, body: Any = None) -> int:
    text = None if body is None else json.dumps(body)
    return ask("127.0.0.1", port, method, path, access, timeout_s=30, body=text).status


def test_pages_ask_for_credentials(directory: Path, content: ClusterFile) -> None:
    access = of_directory(directory)
    assert access.scheme == "https"
    for process in content["processes"]:
        port = process["metrics_port"]
        assert status(port, "GET", "/metrics", access._replace(credential="")) == http.client.UNAUTHORIZED
        assert status(port, "GET", "/metrics", access) == http.client.OK
        assert status(port, "GET", "/readyz", access._replace(credential="")) == http.client.OK


def test_the_control_page_asks_for_credentials(directory: Path, content: ClusterFile) -> None:
    port = int(content["control_url"].rpartition(":")[2])
    access = Access(of_directory(directory).credential)
    body = {"api": "Produce", "delay_ms": 1}
    for method, path, given in (("GET", "/nodes", None), ("POST", "/faults", body), ("DELETE", "/faults", None)):
        assert status(port, method, path, OPEN, given) == http.client.UNAUTHORIZED
    assert status(port, "GET", "/nodes", access) == http.client.OK
    assert status(port, "POST", "/faults", access, body) == http.client.CREATED
    assert status(port, "DELETE", "/faults", access) == http.client.OK


def test_commands_have_the_credential(barnabas: Barnabas, content: ClusterFile) -> None:
    assert barnabas("top", "--once", "--bootstrap", content["bootstrap"]).code == 0
    assert f"https://127.0.0.1:{content['processes'][1]['metrics_port']}/live" in barnabas("status").out
    added = barnabas("faults", "add", "api=Produce", "delay_ms=1")
    assert (added.code, added.err) == (0, "")
    assert barnabas("faults", "remove", "--all").code == 0
    assert barnabas("node", "pause", "0").code == 0
    assert barnabas("node", "resume", "0").code == 0


def test_secrets_are_in_no_argument_log_or_open_file(directory: Path, content: ClusterFile) -> None:
    for pid in [content["supervisor_pid"], *(entry["pid"] for entry in content["processes"])]:
        assert "s3cret" not in Path(f"/proc/{pid}/cmdline").read_text()
    for file in directory.rglob("*"):
        if file.is_file() and b"s3cret" in file.read_bytes():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
            assert file.name in (FILE, "server.properties", "up.properties")
    assert stat.S_IMODE((directory / FILE).stat().st_mode) == 0o600


def test_secrets_are_not_described(content: ClusterFile) -> None:
    client = AdminClient({"bootstrap.servers": content["bootstrap"]})
    (future,) = client.describe_configs([ConfigResource(ResourceType.BROKER, "0")]).values()
    entries = future.result(30)
    for key in ("barnabas.pages.auth.token", "barnabas.pages.auth.users"):
        assert (entries[key].value, entries[key].is_sensitive) == (None, True)
    assert not [entry for entry in entries.values() if "s3cret" in str(entry.value)]
