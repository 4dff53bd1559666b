"""`barnabas controller format`: what it writes, and what a controller makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.connection import NodeConnection
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.ids import uuid_from_string
from barnabas.config.config import CONTROLLER, Config
from barnabas.controller.metadata.bootstrap import bootstrap_records, default_records
from barnabas.controller.metadata.format import format_directory, main
from barnabas.controller.metadata.metadata_directory import (
    FORMATTING_FILE,
    META_PROPERTIES_FILE,
    DirectoryError,
    MetadataDirectory,
)
from barnabas.controller.metadata.opened_log import open_log, own_listeners
from barnabas.controller.raft.client.status import RaftStatus
from barnabas.controller.raft.raft_config import KRAFT_VERSIONS
from barnabas.controller.raft.voter_set import ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.metadata_records import ConfigRecord
from tests.controller.rig import CLUSTER_ID, DIRECTORY, make_config

FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


class Formatting:
    """The directory and the configuration of controller 1."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "data"
        self.file = root / "controller.properties"
        self.write("controller.quorum.bootstrap.servers=h:9093")

    def write(self, *lines: str) -> None:
        """Write the configuration."""
        common = ("process.roles=controller", "node.id=1", "listeners=CONTROLLER://127.0.0.1:9093")
        self.file.write_text("\n".join([*common, f"log.dirs={self.directory}", *lines, ""]))

    def run(self, *options: str) -> int:
        """Run the command."""
        return main([str(self.file), "--cluster-id", CLUSTER_ID, *options], {})

    def status(self) -> RaftStatus | None:
        """Return what a controller finds in the directory; None if it commits alone."""
        config = Config.load(self.file, role=CONTROLLER)
        fs = OsFileSystem()
        directory = MetadataDirectory.open(fs, str(self.directory), 1, CLUSTER_ID)
        try:
            opened = open_log(config, directory, NodeConnection, FakeClock(), fs)
            opened.log.shutdown(0)
            return None if opened.raft is None else opened.raft.status()
        finally:
            directory.close()


@pytest.fixture
def formatting(tmp_path: Path) -> Formatting:
    return Formatting(tmp_path)


def test_the_first_controller_is_the_only_voter(formatting: Formatting, capsys: pytest.CaptureFixture[str]) -> None:
    assert formatting.run("--standalone") == 0
    said = capsys.readouterr().out
    assert "for controller 1 of cluster " in said
    assert "one of 1 voters" in said
    status = formatting.status()
    assert status is not None
    assert status.kraft_version == 1
    (voter,) = status.voters
    assert voter.key == status.key
    assert said.split()[-1] == next(
        line.partition("=")[2]
        for line in (formatting.directory / "meta.properties").read_text().splitlines()
        if line.startswith("directory.id")
    ).replace("\\", "")
    *levels, min_isr = bootstrap_records(OsFileSystem(), str(formatting.directory), make_config())
    assert levels == default_records()
    assert isinstance(min_isr, ConfigRecord)
    assert (min_isr.name, min_isr.value) == ("min.insync.replicas", "1")
    assert formatting.run("--standalone") == 1
    assert capsys.readouterr().err == f"controller: {formatting.directory} is already formatted\n"


def test_several_first_controllers_have_the_directories_that_the_command_names(formatting: Formatting) -> None:
    voters = f"1@127.0.0.1:9093:{FIRST},2@[::1]:9094:{SECOND}"
    assert formatting.run("--initial-controllers", voters) == 0
    status = formatting.status()
    assert status is not None
    assert [tuple(member.key) for member in status.voters] == [
        (1, uuid_from_string(FIRST)),
        (2, uuid_from_string(SECOND)),
    ]
    assert status.key == status.voters[0].key


def test_a_controller_without_voters_follows(formatting: Formatting) -> None:
    assert formatting.run("--no-initial-controllers") == 0
    status = formatting.status()
    assert status is not None
    assert (status.kraft_version, list(status.voters)) == (0, [])


def test_static_voters_are_those_of_the_configuration(formatting: Formatting) -> None:
    formatting.write("controller.quorum.voters=1@127.0.0.1:9093")
    assert formatting.run() == 0
    assert formatting.status() is None


@pytest.mark.parametrize(
    ("line", "options", "said"),
    [
        ("controller.quorum.voters=1@h:1", ("--standalone",), "controller.quorum.voters names static voters"),
        ("controller.quorum.bootstrap.servers=h:1", (), "you must specify one of the following"),
        ("", ("--initial-controllers", "1@h:1"), "1@h:1 is not ID@HOST:PORT:DIRECTORY"),
        ("", ("--initial-controllers", f"2@h:1:{SECOND}"), "does not name controller 1"),
        ("", ("--initial-controllers", f"1@h:1:{FIRST},2@h:2:{FIRST}"), "names an id or a directory twice"),
        ("", ("--initial-controllers", f"1@h:1:{'A' * 22}"), "is not a directory id"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    formatting: Formatting, capsys: pytest.CaptureFixture[str], line: str, options: tuple[str, ...], said: str
) -> None:
    formatting.write(line)
    assert formatting.run(*options) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not formatting.directory.exists()


def test_only_the_first_controller_of_a_cluster_invents_its_id(
    formatting: Formatting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(formatting.file), "--no-initial-controllers"], {}) == 1
    assert "--cluster-id: name the id" in capsys.readouterr().err
    assert main([str(formatting.file), "--no-initial-controllers"], {"CLUSTER_ID": CLUSTER_ID}) == 0


@pytest.mark.parametrize("is_voter", [True, False])
def test_no_controller_starts_with_what_a_crash_of_the_command_left(is_voter: bool) -> None:
    """It would invent another directory id than the first voter's, and perhaps another cluster."""
    config = make_config()
    key = ReplicaKey(100, uuid_from_string(FIRST))
    initial = VoterSet([VoterNode(key, own_listeners(config), KRAFT_VERSIONS)] if is_voter else [])
    counted = FaultyFileSystem(MemoryFileSystem())
    format_directory(config, CLUSTER_ID, initial, FakeClock(), counted)
    outcomes = []
    for fail_at in range(1, counted.operations + 1):
        for survives in (True, False):
            disk = MemoryFileSystem()
            try:
                format_directory(config, CLUSTER_ID, initial, FakeClock(), FaultyFileSystem(disk, fail_at=fail_at))
            except OSError:
                disk = disk if survives else disk.crash()
            is_formatted = disk.exists(f"{DIRECTORY}/{META_PROPERTIES_FILE}")
            is_empty = not disk.exists(f"{DIRECTORY}/{FORMATTING_FILE}") and not is_formatted
            try:
                directory = MetadataDirectory.open(disk, DIRECTORY, 100, CLUSTER_ID)
                directory.close()
                assert is_formatted or is_empty
                assert not is_voter or is_empty or directory.directory_id == key.directory_id
                outcomes.append("started")
            except DirectoryError:
                format_directory(config, CLUSTER_ID, initial, FakeClock(), disk)
                outcomes.append("formatted again")
    assert set(outcomes) == {"started", "formatted again"}


def test_a_node_id_that_no_record_can_hold_is_refused(
    formatting: Formatting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert formatting.run("--initial-controllers", f"1@h:1:{FIRST},99999999999@h:2:{SECOND}") == 1
    assert capsys.readouterr().err == "controller: --initial-controllers: 99999999999 is not a node id\n"


def test_a_directory_that_was_not_formatted_to_the_end_is_formatted_again(formatting: Formatting) -> None:
    assert formatting.run("--standalone") == 0
    (formatting.directory / "meta.properties").unlink()
    assert formatting.run("--no-initial-controllers") == 0
    status = formatting.status()
    assert status is not None
    assert not status.voters
