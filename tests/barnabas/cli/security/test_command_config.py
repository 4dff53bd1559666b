"""`--command-config`: what a command connects with, and where it finds that."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from barnabas.cli.address import VARIABLE as BOOTSTRAP_VARIABLE
from barnabas.cli.address import bootstrap_option
from barnabas.cli.errors import UserError
from barnabas.cli.local import running
from barnabas.cli.security.command_config import (
    VARIABLE,
    command_config_option,
    connector,
    librdkafka_settings,
    settings_for,
)
from barnabas.client.connection import NodeConnection
from barnabas.common.processes.cluster_file import write_cluster_file
from tests.barnabas.cli.conftest import Barnabas


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No local cluster, no variable."""
    monkeypatch.setattr(running, "running_directories", list)
    monkeypatch.delenv(VARIABLE, raising=False)


def chosen(*arguments: str) -> str | None:
    """The file whose settings a command with these arguments uses for h:1."""
    found: list[str | None] = []

    @click.command()
    @command_config_option
    def command() -> None:
        properties = settings_for("h:1")
        found.append(None if properties is None else properties.source)

    command.main(list(arguments), standalone_mode=False)
    return found[0]


def a_file(path: Path, text: str = "security.protocol=SSL\n") -> str:
    path.write_text(text)
    return str(path)


def test_the_option_counts_before_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen() is None
    by_variable, by_option = a_file(tmp_path / "variable"), a_file(tmp_path / "option")
    monkeypatch.setenv(VARIABLE, by_variable)
    assert chosen() == by_variable
    assert chosen("--command-config", by_option) == by_option


def test_a_local_cluster_has_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = a_file(tmp_path / "client.properties")
    content = {"bootstrap": "h:1,h:2", "supervisor_pid": os.getpid(), "processes": [], "command_config": own}
    write_cluster_file(tmp_path, content)  # type: ignore[arg-type]
    monkeypatch.setattr(running, "running_directories", lambda: [tmp_path])
    assert chosen() == own
    assert settings_for("elsewhere:1") is None


def test_without_settings_connections_are_plain() -> None:
    assert connector("h:1") is NodeConnection
    assert librdkafka_settings("h:1") == {}


@pytest.mark.parametrize("connect", [connector, librdkafka_settings])
def test_a_mistake_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect: object) -> None:
    file = a_file(tmp_path / "file", "security.protocol=SSL\nssl.truststore.type=odd\n")
    monkeypatch.setenv(VARIABLE, file)

    @click.command()
    @command_config_option
    def command() -> None:
        connect("h:1")  # type: ignore[operator]

    with pytest.raises(UserError, match=f"{file}: ssl.truststore.type=odd is not supported"):
        command.main([], standalone_mode=False)


def test_a_missing_file_is_one_line(barnabas: Barnabas) -> None:
    outcome = barnabas("topic", "list", "--command-config", "/nosuch")
    assert outcome.code == 2
    assert "'/nosuch' does not exist" in outcome.err


def test_variables_that_stay_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = a_file(tmp_path / "client.properties", "client.rack=${vault:rack}\n")
    chosen("--command-config", file)
    line = "client.rack: ${vault:...} is not replaced, config.providers has no 'vault'"
    assert capsys.readouterr().err == f"barnabas: warning: {file}: {line}\n"


def test_settings_without_effect_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = a_file(tmp_path / "file", "ssl.engine.factory.class=x\nlinger.ms=5\n")
    assert chosen("--command-config", file) == file
    assert capsys.readouterr().err == f"barnabas: warning: {file}: commands do not follow ssl.engine.factory.class\n"


def test_the_address_comes_from_the_file(barnabas: Barnabas, tmp_path: Path) -> None:
    file = a_file(tmp_path / "file", "bootstrap.servers=127.0.0.1:1\n")
    assert barnabas("topic", "list", "--command-config", file).err == (
        "barnabas: nothing listens at 127.0.0.1:1; start one: barnabas up\n"
    )


def test_the_address_of_the_variables_file_counts_after_the_variable_of_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has both, since its network has other addresses than the file."""
    file = a_file(tmp_path / "file", "bootstrap.servers=file:1\n")
    found: list[str] = []

    @click.command()
    @bootstrap_option
    def command(bootstrap: str) -> None:
        found.append(bootstrap)

    def address(*arguments: str) -> str:
        command.main(list(arguments), standalone_mode=False)
        return found[-1]

    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "variable:1")
    assert address() == "variable:1"
    assert address("--command-config", file) == "file:1"
    monkeypatch.setenv(VARIABLE, file)
    assert address() == "variable:1"
    assert address("--command-config", file) == "file:1"
    assert address("--bootstrap", "option:1", "--command-config", file) == "option:1"
    monkeypatch.delenv(BOOTSTRAP_VARIABLE)
    assert address() == "file:1"
