"""Errors of all commands: one line on stderr and an exit code. The module is main.py; errors.py with it."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from barnabas.cli import main
from barnabas.cli.errors import ArgumentError, EndedBySignal, UserError
from tests.barnabas.cli.conftest import Barnabas

UNREACHABLE = "127.0.0.1:1"
BIG = "99999999999999999999"
NOTHING_LISTENS = f"nothing listens at {UNREACHABLE}; start one: barnabas up"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["nosuch"], 2, "there is no command nosuch (see barnabas --help)"),
        (["tpoic", "list"], 2, "there is no command tpoic; did you mean topic? (see barnabas --help)"),
        (["topic", "lsit"], 2, "No such command 'lsit'. Did you mean 'list'? (see barnabas topic --help)"),
        (["topic", "list", "--bootstap", "x"], 2, "No such option '--bootstap'."),
        (["topic", "list", "-b", "x"], 2, "'x' is not HOST:PORT"),
        (["topic", "list", "--bootstrap-server", "x"], 2, "'x' is not HOST:PORT"),
        (["topic", "list", "-b", "no.such.host.invalid:1"], 1, "the name no.such.host.invalid does not resolve here"),
        (["explain", "partition", "a-0", "-b", UNREACHABLE], 1, f"nothing listens at {UNREACHABLE}"),
        (["config", "show", "--broker", "", "-b", UNREACHABLE], 1, f"nothing listens at {UNREACHABLE}"),
        (["up", "--brokers", "0"], 2, "Invalid value for '--brokers': 0 is not in the range 1<=x<=99."),
        (["up", "--controllers", "10"], 2, "Invalid value for '--controllers': 10 is not in the range 1<=x<=9."),
        (["up", "--security", "sasl"], 2, "Invalid value for '--security': 'sasl' is not one of 'plaintext', 'ssl'"),
        (["up", "--ephemeral", "-d"], 2, "--ephemeral excludes --data-dir and --detach"),
        (["up", "--first-id", "98"], 1, "100 is a controller's id: no broker can have it"),
        (["down", "--data-dir", "/no/dir"], 1, "no cluster runs in /no/dir"),
        (["status", "--data-dir", "/no/dir"], 1, "no cluster runs in /no/dir"),
        (["up", "--config", "x"], 2, "'x' is not of the form KEY=VALUE"),
        (["up", "--port", "65534"], 2, "--port 65534: 3 brokers need the ports up to 65536"),
        (["up", "--port", "0", "--config", "num.io.threads=0"], 1, "Invalid value 0 for configuration num.io.threads"),
        (["up", "--port", "0", "--config", "listeners=SSL://h:9093"], 1, "Controller listener with name CONTROLLER"),
        (
            ["up", "--port", "0", "--config", "listeners=SASL_SSL://h:9093"],
            1,
            "Controller listener with name CONTROLLER",
        ),
        (["up", "--port", "0", "--config", "super.users=User:a"], 1, "super.users has no effect without"),
        (["up", "--data-dir", "/dev/null/x"], 1, "cannot use /dev/null/x: Not a directory"),
        (["topic"], 2, None),
        (["topic", "list", "--bootstrap", "x"], 2, "'x' is not HOST:PORT"),
        (["topic", "list", "--bootstrap", UNREACHABLE], 1, NOTHING_LISTENS),
        (
            ["topic", "delete", "a", "--bootstrap", UNREACHABLE],
            1,
            NOTHING_LISTENS,
        ),
        (["consume", "a", "--bootstrap", UNREACHABLE], 1, NOTHING_LISTENS),
        (["produce", "a", "--bootstrap", UNREACHABLE], 1, NOTHING_LISTENS),
        (["produce", "a", "--file", "/no/file"], 2, "Invalid value for '--file'"),
        (["doctor", "/no/file"], 2, "Invalid value for '[FILE]'"),
        (["doctor", "--bootstrap", "h:99999"], 2, "'h:99999' is not HOST:PORT"),
        (["consume", "a", "--offset", "1"], 2, "--offset needs --partition"),
        (["consume", "a", "--group", "g", "--until-end"], 2, "--group excludes --partition"),
        (["consume", "a", "--from", BIG], 2, f"'{BIG}' is not a time"),
        (["consume", "a", "--until", BIG], 2, f"'{BIG}' is not a time"),
        (["consume", "a", "-p", "0", "--offset", BIG], 2, "Invalid value for '--offset'"),
        (["produce", "a", "-p", BIG], 2, "Invalid value for '-p' / '--partition'"),
        (["topic", "create", "a", "--partitions", BIG], 2, "Invalid value for '--partitions'"),
        (["topic", "create", "a", "--replication-factor", "99999"], 2, "Invalid value for '--replication-factor'"),
        (["topic", "alter", "a", "--partitions", BIG], 2, "Invalid value for '--partitions'"),
        (
            ["group", "reset-offsets", "g", "--topic", "t", "--to-timestamp", BIG],
            2,
            "Invalid value for '--to-timestamp'",
        ),
        (["config", "show"], 2, "give one of --topic, --broker and --group"),
        (["group", "reset-offsets", "g", "--topic", "t"], 2, "give one of --to-earliest"),
        (["node", "kill", "0", "--data-dir", "/no/dir"], 1, "no cluster runs in /no/dir"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(
    barnabas: Barnabas,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    line: str | None,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # other clusters may run on this machine
    outcome = barnabas(*arguments)
    assert outcome.code == code
    assert outcome.out == ""
    if line is not None:
        assert outcome.err.startswith(f"barnabas: {line}")
        assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "code", "err"),
    [
        (UserError("so it is"), 1, "barnabas: so it is\n"),
        (ArgumentError("so it is"), 2, "barnabas: so it is\n"),
        (EndedBySignal(), 143, ""),
        (KeyboardInterrupt(), 130, "\n"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x"),
            1,
            "barnabas: /x: Permission denied\n",
        ),
    ],
)
def test_an_exception_of_a_command_becomes_one_line(
    monkeypatch: pytest.MonkeyPatch, barnabas: Barnabas, raised: BaseException, code: int, err: str
) -> None:
    @click.command()
    def raises() -> None:
        raise raised

    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: raises)
    assert barnabas("anything") == (code, "", err)


def test_an_internal_error_is_raised(monkeypatch: pytest.MonkeyPatch, barnabas: Barnabas) -> None:
    @click.command()
    def raises() -> None:
        raise OSError(errno.EIO, "no file named")

    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: raises)
    with pytest.raises(OSError, match="no file named"):
        barnabas("anything")


def test_a_closed_pipe_ends_a_command_quietly(tmp_path: Path) -> None:
    checkpoint = tmp_path / "replication-offset-checkpoint"
    checkpoint.write_text("0\n20000\n" + "".join(f"topic {partition} 0\n" for partition in range(20_000)))
    command = [sys.executable, "-P", "-m", "barnabas.cli", "dump-log", str(checkpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "topic\tpartition\toffset\n"
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait() == 1


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_runs_without_standard_streams(closed: str) -> None:
    command = f'"{sys.executable}" -P -m barnabas.cli config keys num.io {closed}'
    child = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


def test_a_full_disk_below_the_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-P", "-m", "barnabas.cli", "config", "keys"]
        child = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (child.returncode, child.stderr) == (1, "barnabas: cannot write: No space left on device\n")


def test_help_lists_every_command(barnabas: Barnabas) -> None:
    outcome = barnabas("--help")
    assert outcome.code == 0
    for name in main.COMMANDS:
        assert f"  {name} " in outcome.out
        assert barnabas(name, "--help").code == 0


def test_docs_commands_names_every_command() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "commands.md").read_text()
    assert [name for name in main.COMMANDS if f"barnabas {name}" not in page] == []


def test_the_commands_that_start_processes_load_no_client_and_no_tables() -> None:
    modules = ", ".join(
        ("sys", *(f"barnabas.cli.{name}" for name in ("main", "local.up", "local.process", "breaking.node")))
    )
    code = f"import {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"confluent_kafka", "rich", "ctypes", "barnabas.protocol", "barnabas.config"}.isdisjoint(loaded)


def test_the_version_says_whether_it_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert re.fullmatch(r"barnabas, version [\d.]+, (not )?compiled\n", capsys.readouterr().out)


def test_the_version_loads_nothing_that_it_does_not_need() -> None:
    code = "import sys; sys.argv = ['barnabas', '--version']; import barnabas.cli.main as m; m.run(sys.argv[1:]); "
    code += "print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"barnabas.cluster.local_cluster", "barnabas.client", "subprocess", "socket"}.isdisjoint(loaded)
