from __future__ import annotations

import errno
import os
import signal
import socket
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
    ports_up,
    read_cluster_file,
)
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually


class Scripted(LocalCluster):
    """A cluster whose processes are one line of Python each, `script`."""

    script = ""

    def _command(self, node: Node) -> list[str]:
        return [sys.executable, "-c", self.script, str(node.directory)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    # A session this short lets a broker that was killed come back soon.
    config = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config) as running:
        yield running


def planned(directory: Path, brokers: int = 2, **config: str) -> LocalCluster:
    """A cluster that is not started."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    cluster = LocalCluster(directory, brokers, 0, keys)
    cluster.plan()
    cluster.stop()
    return cluster


# Planning


def test_internal_topics_are_no_more_replicated_than_there_are_brokers(tmp_path: Path) -> None:
    for brokers, replicas, in_sync in ((1, "1", "1"), (2, "2", "2"), (5, "3", "2")):
        cluster = planned(tmp_path, brokers)
        properties = cluster.properties(cluster.brokers[0])
        assert properties["offsets.topic.replication.factor"] == replicas
        assert properties["transaction.state.log.min.isr"] == in_sync
        assert properties["group.initial.rebalance.delay.ms"] == "0"


def test_each_process_gets_the_configuration_and_a_port_of_its_own(tmp_path: Path) -> None:
    cluster = planned(tmp_path, num_io_threads="3")
    everything = [cluster.properties(node) for node in cluster.nodes.values()]
    assert {properties["num.io.threads"] for properties in everything} == {"3"}
    assert len({properties["listeners"] for properties in everything}) == 3
    assert len({node.metrics_port for node in cluster.nodes.values()} | {node.port for node in cluster.brokers}) == 5
    assert cluster.bootstrap == ",".join(f"127.0.0.1:{node.port}" for node in cluster.brokers)


def test_the_persons_listeners_are_the_brokers_and_their_ports_count_up(tmp_path: Path) -> None:
    listeners = "PLAINTEXT://0.0.0.0:19092,OUTSIDE://127.0.0.1:29092"
    protocols = "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"
    cluster = planned(tmp_path, listeners=listeners, listener_security_protocol_map=protocols)
    first, second = cluster.brokers
    assert cluster.properties(first)["listeners"] == listeners
    assert cluster.properties(second)["listeners"] == "PLAINTEXT://0.0.0.0:19093,OUTSIDE://127.0.0.1:29093"
    assert cluster.properties(cluster.controller)["listeners"].startswith("CONTROLLER://127.0.0.1:")
    assert cluster.properties(first)["listener.security.protocol.map"] == f"CONTROLLER:PLAINTEXT,{protocols}"
    assert cluster.bootstrap == "127.0.0.1:19092,127.0.0.1:19093"


def test_a_metrics_port_counts_up_and_can_be_switched_off(tmp_path: Path) -> None:
    assert planned(tmp_path, barnabas_metrics_port="9900").metrics == "127.0.0.1:9900,127.0.0.1:9901,127.0.0.1:9902"
    cluster = planned(tmp_path, barnabas_metrics_port="-1")
    assert cluster.metrics == ""
    assert cluster.properties(cluster.controller)["barnabas.metrics.port"] == "-1"


def test_a_log_directory_has_room_for_each_process(tmp_path: Path) -> None:
    cluster = planned(tmp_path, log_dirs="/a,b")
    assert cluster.properties(cluster.brokers[1])["log.dirs"] == f"/a/broker-1,{tmp_path}/b/broker-1"
    assert cluster.properties(cluster.controller)["log.dirs"] == f"/a/controller-100,{tmp_path}/b/controller-100"


def test_ports_up_leaves_what_is_no_port_alone() -> None:
    assert (
        ports_up("A://h:1, B://[::1]:2,C://h:0,D://h:x,nonsense", 2) == "A://h:3,B://[::1]:4,C://h:0,D://h:x,nonsense"
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"node_id": "7"}, "node.id is what makes the processes one cluster"),
        ({"barnabas_metrics_port": "x"}, "Invalid value x for configuration barnabas.metrics.port"),
        ({"listeners": "PLAINTEXT://h:0"}, "with a fixed port is expected here"),
        ({"listeners": "nonsense"}, "NAME://HOST:PORT"),
    ],
)
def test_what_cannot_be_planned_is_refused(tmp_path: Path, config: dict[str, str], words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        planned(tmp_path, **config)
    planned(tmp_path)  # and the directory is free again


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} is taken"):
            LocalCluster(tmp_path, 1, port).start()


def test_a_port_for_root_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr("barnabas.cluster.refusal", lambda port, host: error)
    with pytest.raises(ClusterError, match=r"^port 81 may not be opened by this user \(Permission denied; .* --port$"):
        LocalCluster(tmp_path, 1, 81).plan()


def test_ids_begin_where_they_are_told_to_and_ports_with_the_first(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 2, 0, {"listeners": "PLAINTEXT://127.0.0.1:19092"}, first_id=1)
    cluster.plan()
    cluster.stop()
    assert [(node.name, node.port) for node in cluster.brokers] == [("broker-1", 19092), ("broker-2", 19093)]
    assert cluster.properties(cluster.brokers[1])["listeners"] == "PLAINTEXT://127.0.0.1:19093"
    assert cluster.properties(cluster.brokers[1])["node.id"] == "2"
    with pytest.raises(ClusterError, match="100 is the controller's id"):
        LocalCluster(tmp_path, 3, 0, first_id=98).plan()


def test_data_of_brokers_that_are_left_out_is_named(tmp_path: Path) -> None:
    for name in ("broker-0", "broker-2", "broker-10", "broker-x", "controller-100"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.properties").touch()
    assert LocalCluster(tmp_path, 1, 0).left_out() == ["broker-2", "broker-10"]
    assert LocalCluster(tmp_path, 11, 0).left_out() == []


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match=r"cannot use .*/file/x: Not a directory"):
        planned(tmp_path / "file" / "x")


# Processes that fail


def test_a_process_that_refuses_to_start_is_quoted(tmp_path: Path) -> None:
    cluster = Scripted(tmp_path, 1, 0)
    cluster.script = (
        "import signal, sys; 'controller' in sys.argv[1] and sys.exit('controller: a bad key'); signal.pause()"
    )
    with pytest.raises(ProcessDiedError, match=r"^controller-100 ended at start: a bad key$"):
        cluster.start()
    assert read_cluster_file(tmp_path) is None


def test_a_process_that_fails_otherwise_is_quoted_with_its_log(tmp_path: Path) -> None:
    cluster = Scripted(tmp_path, 1, 0)
    cluster.script = "import signal, sys; 'controller' in sys.argv[1] and 1 / 0; signal.pause()"
    with pytest.raises(ProcessDiedError, match=r"ZeroDivisionError.*; its log is .*/controller-100/process.log$"):
        cluster.start()


def test_processes_that_never_get_ready_are_named_and_ended(tmp_path: Path) -> None:
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


def test_the_cluster_file_tells_what_runs(cluster: BarnabasCluster) -> None:
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
    assert known_brokers(broker.port) == {0}
    cluster.signal_node(broker, signal.SIGSTOP)
    assert broker.child is not None
    states = [path.read_text().rpartition(") ")[2][0] for path in Path(f"/proc/{broker.child.pid}/task").glob("*/stat")]
    assert len(states) > 10
    assert set(states) == {"T"}, "every thread stands still"
    cluster.signal_node(broker, signal.SIGSTOP)  # which it does already
    cluster.stop_node(broker)
    eventually("the broker ended in order", lambda: broker.child is not None and broker.child.poll() == 0)
