"""What each node gets: barnabas/cluster/plan.py, through LocalCluster.plan."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from barnabas.cluster import ClusterError, LocalCluster, ports_up
from barnabas.config.config import Config


def planned(directory: Path, brokers: int = 2, **config: str) -> LocalCluster:
    """A cluster that is not started."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    cluster = LocalCluster(directory, brokers, 0, keys)
    cluster.plan()
    cluster.stop()
    return cluster


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


def test_configured_listeners_are_used_and_their_ports_count_up(tmp_path: Path) -> None:
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


def test_each_process_gets_a_subdirectory_of_a_log_directory(tmp_path: Path) -> None:
    cluster = planned(tmp_path, log_dirs="/a,b")
    assert cluster.properties(cluster.brokers[1])["log.dirs"] == f"/a/broker-1,{tmp_path}/b/broker-1"
    assert cluster.properties(cluster.controller)["log.dirs"] == f"/a/controller-100,{tmp_path}/b/controller-100"


def test_a_combined_cluster_has_brokers_that_are_controllers(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 3, 0, is_combined=True)
    cluster.plan()
    cluster.stop()
    assert [node.name for node in cluster.nodes.values()] == ["broker-0", "broker-1", "broker-2"]
    assert cluster.controllers == cluster.brokers
    assert cluster.controller.node_id == 0
    properties = cluster.properties(cluster.brokers[1])
    assert properties["process.roles"] == "broker,controller"
    assert properties["controller.quorum.voters"] == ",".join(
        f"{node.node_id}@127.0.0.1:{node.controller_port}" for node in cluster.brokers
    )
    assert properties["listeners"].endswith(f",CONTROLLER://127.0.0.1:{cluster.brokers[1].controller_port}")
    peers = properties["barnabas.live.peers"].split(",")
    assert [peer.partition("=")[0] for peer in peers[2:4]] == ["broker-2", "controller-0"]
    assert cluster.command(cluster.brokers[0])[-2].endswith("barnabas.server.main")
    assert len(cluster.metrics.split(",")) == 3
    for role in ("broker", "controller"):
        assert Config.from_properties(properties, role).is_combined


def test_one_combined_node_is_its_own_bootstrap_server(tmp_path: Path) -> None:
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:19092"}
    cluster = LocalCluster(tmp_path, 1, 0, listeners, is_combined=True, first_id=7)
    cluster.plan()
    cluster.stop()
    (node,) = cluster.nodes.values()
    properties = cluster.properties(node)
    assert properties["controller.quorum.bootstrap.servers"] == f"127.0.0.1:{node.controller_port}"
    assert properties["listeners"] == f"PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:{node.controller_port}"
    Config.from_properties(properties, "controller")


def test_a_directory_keeps_the_place_of_its_metadata(tmp_path: Path) -> None:
    for name, text, is_combined, words in (
        (
            "controller-100",
            "process.roles=controller\n",
            True,
            "metadata in controller-100: start it without --combined",
        ),
        ("broker-0", "process.roles=broker,controller\n", False, "metadata in broker-0: start it with --combined"),
    ):
        directory = tmp_path / name
        (directory / name).mkdir(parents=True)
        (directory / name / "server.properties").write_text(text)
        with pytest.raises(ClusterError, match=words):
            LocalCluster(directory, 1, 0, is_combined=is_combined).plan()
        cluster = LocalCluster(directory, 1, 0, is_combined=not is_combined)
        cluster.plan()
        cluster.stop()


def test_ports_up_keeps_text_that_is_not_a_port() -> None:
    assert (
        ports_up("A://h:1, B://[::1]:2,C://h:0,D://h:x,nonsense", 2) == "A://h:3,B://[::1]:4,C://h:0,D://h:x,nonsense"
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"node_id": "7"}, "node.id cannot be set here"),
        ({"barnabas_metrics_port": "x"}, "Invalid value x for configuration barnabas.metrics.port"),
        ({"listeners": "PLAINTEXT://h:0"}, "with a fixed port"),
        ({"listeners": "nonsense"}, "NAME://HOST:PORT"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(tmp_path: Path, config: dict[str, str], words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        planned(tmp_path, **config)
    planned(tmp_path)  # the directory is free again


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} is taken"):
            LocalCluster(tmp_path, 1, port).start()


def test_a_privileged_port_is_refused_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr("barnabas.cluster.plan.refusal", lambda port, host: error)
    with pytest.raises(ClusterError, match=r"^port 81 may not be opened by this user \(Permission denied; .* --port$"):
        LocalCluster(tmp_path, 1, 81).plan()


def test_broker_ids_start_at_first_id_and_its_port_comes_first(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 2, 0, {"listeners": "PLAINTEXT://127.0.0.1:19092"}, first_id=1)
    cluster.plan()
    cluster.stop()
    assert [(node.name, node.port) for node in cluster.brokers] == [("broker-1", 19092), ("broker-2", 19093)]
    assert cluster.properties(cluster.brokers[1])["listeners"] == "PLAINTEXT://127.0.0.1:19093"
    assert cluster.properties(cluster.brokers[1])["node.id"] == "2"
    with pytest.raises(ClusterError, match="100 is a controller's id"):
        LocalCluster(tmp_path, 3, 0, first_id=98).plan()


def test_settings_of_clients_listeners_are_not_for_the_controller(tmp_path: Path) -> None:
    def given(**config: str) -> set[str]:
        properties = planned(tmp_path, **config)
        return {key for key in properties.properties(properties.controller) if key.startswith("listener.name.")}

    keys = {f"listener.name.{name}.max.connections": "9" for name in ("plaintext", "internal", "controller")}
    wanted = {"listener.name.internal.max.connections", "listener.name.controller.max.connections"}
    assert given(**keys) == wanted
    listeners = {
        "listeners": "PLAINTEXT://h:19092,NODES://h:19192",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NODES:PLAINTEXT",
    }
    keys = {f"listener.name.{name}.max.connections": "9" for name in ("plaintext", "nodes")}
    assert given(**keys, **listeners) == set(keys), "the first listener may be the one between brokers"
    assert given(**keys, **listeners, **{"inter.broker.listener.name": "NODES"}) == {
        "listener.name.nodes.max.connections"
    }


def test_the_nodes_share_the_file_of_a_clock_that_may_be_moved(tmp_path: Path) -> None:
    for config, file in (({}, None), ({"barnabas.clock.enable": "True"}, str(tmp_path / "clock"))):
        cluster = LocalCluster(tmp_path, 1, 0, config)
        cluster.plan()
        files = {cluster.properties(node).get("barnabas.clock.file") for node in cluster.nodes.values()}
        cluster.stop()
        assert files == {file}


def test_a_clock_that_was_moved_is_not_forgotten_silently(tmp_path: Path) -> None:
    assert not LocalCluster(tmp_path, 1, 0).forgets_clock()
    (tmp_path / "clock").write_text("1000")
    assert LocalCluster(tmp_path, 1, 0).forgets_clock()
    assert not LocalCluster(tmp_path, 1, 0, {"barnabas.clock.enable": "true"}).forgets_clock()
