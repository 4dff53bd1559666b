"""Starting, signalling and stopping real processes.

Tests directory.py, errors.py, local_cluster.py, node.py, processes.py and readiness.py of barnabas/cluster.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cluster import (
    CONTROLLER_ID,
    CancelledError,
    ClusterError,
    LocalCluster,
    Node,
    ProcessDiedError,
    known_brokers,
    read_cluster_file,
)
from barnabas.common.pages.page_access import CHANGE_KEY, CHANGE_VARIABLE, OPEN, TOKEN_KEY, TOKEN_VARIABLE, Access
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually


class Scripted(LocalCluster):
    """A cluster whose processes each run one line of Python, `script`."""

    script = ""

    def command(self, node: Node) -> list[str]:
        return [sys.executable, "-c", self.script, str(node.directory)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    # With a session this short, a killed broker can register again soon.
    config = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config) as running:
        yield running


# The directory


def test_brokers_with_data_that_are_left_out_are_named(tmp_path: Path) -> None:
    for name in ("broker-0", "broker-2", "broker-10", "broker-x", "controller-100"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.properties").touch()
    assert LocalCluster(tmp_path, 1, 0).left_out() == ["broker-2", "broker-10"]
    assert LocalCluster(tmp_path, 11, 0).left_out() == []


def test_a_directory_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match=r"cannot use .*/file/x: Not a directory"):
        LocalCluster(tmp_path / "file" / "x", 1, 0).plan()


# Processes that fail


def test_a_process_that_refuses_to_start_is_quoted(tmp_path: Path) -> None:
    cluster = Scripted(tmp_path, 1, 0)
    cluster.script = (
        "import signal, sys; 'controller' in sys.argv[1] and sys.exit('controller: a bad key'); signal.pause()"
    )
    with pytest.raises(ProcessDiedError, match=r"^controller-100 ended at start: a bad key$"):
        cluster.start()
    assert read_cluster_file(tmp_path) is None


def test_the_last_line_of_any_other_failure_is_quoted_with_its_log(tmp_path: Path) -> None:
    cluster = Scripted(tmp_path, 1, 0)
    cluster.script = "import signal, sys; 'controller' in sys.argv[1] and 1 / 0; signal.pause()"
    with pytest.raises(ProcessDiedError, match=r"ZeroDivisionError.*; its log is .*/controller-100/process.log$"):
        cluster.start()


def test_a_process_that_never_becomes_ready_is_named(tmp_path: Path) -> None:
    cluster = Scripted(tmp_path, 1, 0)
    cluster.script = "import signal; signal.pause()"
    cluster.plan()
    try:
        for node in cluster.nodes.values():
            cluster.start_node(node)
        with pytest.raises(ProcessDiedError, match=r"controller-100 was not ready after 20 ms; its log is "):
            cluster.await_ready(timeout_ms=20)
        cluster.is_cancelled = lambda: True
        with pytest.raises(CancelledError):
            cluster.await_ready()
    finally:
        cluster.stop()
    assert not any(node.is_running for node in cluster.nodes.values())


# A real cluster


def test_the_cluster_file_lists_the_running_processes(cluster: BarnabasCluster) -> None:
    content = read_cluster_file(cluster.directory)
    assert content is not None
    assert content["bootstrap"] == cluster.bootstrap
    assert content["supervisor_pid"] == os.getpid()
    assert {(process["role"], process["id"]) for process in content["processes"]} == {
        ("broker", 0),
        ("controller", 100),
    }
    for process in content["processes"]:
        node = cluster.nodes[process["id"]]
        assert node.child is not None
        assert (process["pid"], process["port"]) == (node.child.pid, node.port)
        assert process["metrics_port"] == node.metrics_port
    with pytest.raises(ClusterError, match=rf"is in use by a running cluster \(pid {os.getpid()}\)"):
        LocalCluster(cluster.directory, 1, 0).start()
    assert read_cluster_file(cluster.directory) == content


def test_nodes_are_killed_started_paused_and_stopped(cluster: BarnabasCluster) -> None:
    broker, controller = cluster.nodes[0], cluster.nodes[CONTROLLER_ID]
    with pytest.raises(ClusterError, match="broker-0 is running already"):
        cluster.start_node(broker)
    cluster.stop_node(controller, signal.SIGKILL)
    cluster.stop_node(broker, signal.SIGKILL)
    assert known_brokers(broker.port) == set()
    with pytest.raises(ClusterError, match="broker-0 is not running"):
        cluster.signal_node(broker, signal.SIGSTOP)
    cluster.start_node(controller)
    cluster.await_ready(nodes=[controller])  # although the broker is dead
    cluster.start_node(broker)
    cluster.await_ready()
    # Why eventually: a session is so short that a busy machine may end it.
    eventually("the broker is known", lambda: known_brokers(broker.port) == {0})
    cluster.signal_node(broker, signal.SIGSTOP)
    assert broker.child is not None
    states = [path.read_text().rpartition(") ")[2][0] for path in Path(f"/proc/{broker.child.pid}/task").glob("*/stat")]
    assert len(states) > 10
    assert set(states) == {"T"}, "every thread has stopped"
    cluster.signal_node(broker, signal.SIGSTOP)  # again: it does no harm
    cluster.stop_node(broker)
    eventually("the broker ended in order", lambda: broker.child is not None and broker.child.poll() == 0)


@pytest.mark.parametrize("key", ["barnabas.faults.enable", "barnabas.clock.enable"])
@pytest.mark.parametrize("value", ["true", " TRUE ", "${env:FAULTS}"])
def test_a_cluster_that_can_be_changed_has_a_token_for_it(tmp_path: Path, key: str, value: str) -> None:
    cluster, other = (LocalCluster(tmp_path / name, 1, 0, {key: value}) for name in ("a", "b"))
    token = cluster.change_token
    assert token not in ("", other.change_token)
    assert cluster.page_credentials.readers == ()
    assert cluster.page_access == Access(f"Bearer {token}")
    cluster.plan()
    try:
        for node in cluster.nodes.values():
            assert cluster.properties(node)[CHANGE_KEY] == token
            cluster.use_credentials(None, None, cluster.properties(node)[CHANGE_KEY])  # as `barnabas up` does
            assert cluster.properties(node)[CHANGE_KEY] == token
            assert cluster.page_access == Access(f"Bearer {token}")
    finally:
        cluster.stop()


FAULTS = {"barnabas.faults.enable": "true"}


@pytest.mark.parametrize(
    ("config", "credential", "is_open"),
    [
        ({}, "", True),
        ({"barnabas.faults.enable": "false"}, "", True),
        ({**FAULTS, TOKEN_KEY: "r3ad"}, "Bearer r3ad", False),
        ({**FAULTS, CHANGE_KEY: "ch4nge"}, "Bearer ch4nge", True),
        ({**FAULTS, TOKEN_KEY: "r3ad", CHANGE_KEY: "ch4nge"}, "Bearer ch4nge", False),  # it reads, too
        ({**FAULTS, TOKEN_KEY: "${file:/secrets:token}"}, "", True),  # until `use_credentials` has the value
    ],
)
def test_other_clusters_get_no_token(tmp_path: Path, config: dict[str, str], credential: str, *, is_open: bool) -> None:
    cluster = LocalCluster(tmp_path, 1, 0, config)
    assert (cluster.page_access.credential, cluster.change_token) == (credential, config.get(CHANGE_KEY, ""))
    assert (cluster.page_credentials.readers == ()) == is_open
    cluster.use_credentials("found", None, config.get(CHANGE_KEY))
    assert cluster.page_access.credential == f"Bearer {config.get(CHANGE_KEY, 'found')}"


@pytest.mark.parametrize("prefix", ["", "KAFKA_"])
def test_the_environment_which_nodes_inherit_counts_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    change, token = prefix + CHANGE_VARIABLE, prefix + TOKEN_VARIABLE
    monkeypatch.setenv(change, "outer")
    for config in (FAULTS, {**FAULTS, CHANGE_KEY: "mine"}):
        cluster = LocalCluster(tmp_path, 1, 0, config)
        assert (cluster.change_token, cluster.page_access) == ("outer", Access("Bearer outer"))
        assert cluster.page_credentials.readers == ()
    monkeypatch.setenv(token, "r3ad")
    both = LocalCluster(tmp_path, 1, 0, FAULTS)
    assert both.page_access == Access("Bearer outer")
    assert "Bearer r3ad" in both.page_credentials.readers
    monkeypatch.delenv(change)
    cluster = LocalCluster(tmp_path, 1, 0, FAULTS)
    assert (cluster.change_token, cluster.page_access) == ("", Access("Bearer r3ad"))
    monkeypatch.setenv(token, "${file:/secrets:token}")
    cluster = LocalCluster(tmp_path, 1, 0, FAULTS)
    assert (cluster.change_token, cluster.page_access) == ("", OPEN), "until `use_credentials` has the value"
    monkeypatch.delenv(token)
    monkeypatch.setenv(f"{prefix}BARNABAS_FAULTS_ENABLE", "true")
    assert LocalCluster(tmp_path, 1, 0, {}).change_token != ""
