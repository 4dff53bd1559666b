"""Finding running clusters: running.py, and cli/address.py, which uses it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.cli.address import DEFAULT_BOOTSTRAP, VARIABLE, default_bootstrap
from barnabas.cli.errors import UserError
from barnabas.cli.local.running import DIRECTORY_VARIABLE, announced, cluster_at, running_directories
from barnabas.common.processes.cluster_file import ClusterFile, write_cluster_file


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    return tmp_path / f"barnabas-clusters-{os.getuid()}"


def cluster(directory: Path, supervisor_pid: int) -> Path:
    """A directory with the cluster.json of a running cluster."""
    directory.mkdir()
    content: ClusterFile = {"bootstrap": f"{directory.name}:1", "supervisor_pid": supervisor_pid, "processes": []}
    write_cluster_file(directory, content)
    return directory


def test_an_announced_cluster_is_found_while_it_runs(tmp_path: Path) -> None:
    directory = cluster(tmp_path / "one", os.getpid())
    assert running_directories() == []
    assert default_bootstrap() == DEFAULT_BOOTSTRAP
    with announced(directory):
        assert running_directories() == [directory]
        assert default_bootstrap() == "one:1"
    assert running_directories() == []


def test_the_pointer_of_a_dead_supervisor_is_removed(tmp_path: Path, runtime: Path) -> None:
    runtime.mkdir()
    (runtime / str(2**30)).symlink_to(cluster(tmp_path / "dead", 2**30))
    assert running_directories() == []
    assert list(runtime.iterdir()) == []


def test_one_of_several_clusters_must_be_chosen(tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with announced(cluster(tmp_path / "one", os.getpid())):
        (runtime / str(os.getppid())).symlink_to(cluster(tmp_path / "two", os.getppid()))
        monkeypatch.setattr("barnabas.cli.local.running.is_supervisor", lambda _: True)
        with pytest.raises(UserError, match=r"several clusters run here: choose with --bootstrap .*:1 or .*:1"):
            default_bootstrap()
        monkeypatch.setenv(VARIABLE, "elsewhere:9")
        assert default_bootstrap() == "elsewhere:9"


def test_without_a_runtime_directory_clusters_go_unannounced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nowhere"))
    with announced(tmp_path):
        assert running_directories() == []


def test_clusters_are_announced_where_temporary_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a runtime directory; a variable that names no directory is passed over."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("TEMP", str(tmp_path))
    one = cluster(tmp_path / "one", os.getpid())
    monkeypatch.setattr("barnabas.cli.local.running.is_supervisor", lambda _: True)
    with announced(one):
        assert (tmp_path / f"barnabas-clusters-{os.getuid()}" / str(os.getpid())).is_symlink()
        assert running_directories() == [one]


def test_a_cluster_is_found_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, dead = cluster(tmp_path / "one", os.getpid()), cluster(tmp_path / "dead", 2**30)
    assert cluster_at("one:1") is None
    with announced(one):
        found = cluster_at("elsewhere:1, one:1")
        assert found is not None
        assert (found[0], found[1]["bootstrap"]) == (one, "one:1")
        assert cluster_at("two:1") is None
    for directory, is_found in ((one, True), (dead, False)):  # an ephemeral cluster is not announced
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
        assert (cluster_at(f"{directory.name}:1") is not None) == is_found
