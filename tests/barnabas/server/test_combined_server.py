"""A broker and a controller in one process, in this one: built, started, asked, stopped, built again."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.faults.kit import FaultKit
from barnabas.broker.storage.directories.checkpoints import read_meta_properties
from barnabas.broker.storage.log_manager import LogDirectoryError
from barnabas.client.connection import NodeConnection
from barnabas.common.clock import SystemClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.ids import uuid_to_string
from barnabas.common.processes.ports import free_ports
from barnabas.config.config import BROKER, Config
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.protocol.messages import k19_create_topics as wire
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.server.combined_server import CombinedServer
from tests.support.certificates import Authority
from tests.support.waiting import eventually

READY_MS = 60_000
CLUSTER_ID = "h3zYrOmsQJqmHD2y0yjFEg"


def combined_config(directory: Path, **more: str) -> Config:
    """A config with both roles on free ports; keys with underscores for dots."""
    port, controllers = free_ports(2)
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"localhost:{controllers}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory),
        "num.io.threads": "2",
        "barnabas.metrics.port": "0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return Config.from_properties(properties, BROKER)


def build(config: Config, cluster_id: str | None = None) -> CombinedServer:
    return CombinedServer(config, SystemClock(), OsFileSystem(), cluster_id)


@contextmanager
def running(server: CombinedServer) -> Iterator[CombinedServer]:
    server.start()
    try:
        assert server.broker.wait_until_ready(READY_MS)
        yield server
    finally:
        server.stop()


def page(server: CombinedServer, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.page.port}{path}", timeout=30) as answer:
        return str(answer.read(), "utf-8")


def node_of(server: CombinedServer, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page(server, f"/live.json?section=node{query}"))
    return dict(found["node"])


def create(server: CombinedServer, topic: str) -> None:
    port = server.broker.network.sockets.port("PLAINTEXT")
    request = wire.CreateTopicsRequest(
        topics=[wire.CreatableTopic(name=topic, num_partitions=2, replication_factor=1)], timeout_ms=READY_MS
    )
    with NodeConnection("127.0.0.1", port, timeout_ms=READY_MS) as client:
        (result,) = client.send(request, 7).topics
    assert result.error_code == 0


def topics(server: CombinedServer) -> list[str]:
    port = server.broker.network.sockets.port("PLAINTEXT")
    with NodeConnection("127.0.0.1", port, timeout_ms=READY_MS) as client:
        return [topic.name for topic in client.send(MetadataRequest(topics=None), 9).topics]


def test_one_process_is_both_and_keeps_its_topics(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    config = combined_config(tmp_path)
    with running(build(config)) as server:
        create(server, "kept")
        cluster_id = server.controller.cluster_id
        assert server.broker.services.cluster_id == cluster_id
        assert (server.broker.broker_id, server.controller.controller.node_id) == (1, 1)
        assert list(server.broker.network.sockets.acceptors) == ["PLAINTEXT"]
        assert list(server.controller.sockets.acceptors) == ["CONTROLLER"]
        assert set(server.controller.controller.committed_image.brokers) == {1}
        directory_id = uuid_to_string(server.controller._directory.directory_id)
        assert read_meta_properties(OsFileSystem(), str(tmp_path / "meta.properties"))["directory.id"] == directory_id
    identity = (tmp_path / "meta.properties").read_text()
    assert "node.id=1" in identity
    assert (tmp_path / ".kafka_cleanshutdown").exists(), "it shut down in order, with the help of its own controller"
    eventually("its threads have ended", lambda: not {t for t in threading.enumerate() if t.is_alive()} - before)
    with running(build(combined_config(tmp_path))) as server:
        eventually("the topic", lambda: topics(server) == ["kept"])
        assert server.controller.cluster_id == cluster_id
    assert (tmp_path / "meta.properties").read_text() == identity, "one directory id for both roles"


def test_one_page_shows_both(tmp_path: Path) -> None:
    with running(build(combined_config(tmp_path))) as server:
        assert page(server, "/readyz").startswith("running")
        assert (node_of(server)["role"], node_of(server)["state"]) == ("broker", "running")
        assert (node_of(server, "&role=controller")["role"], node_of(server)["id"]) == ("controller", 1)
        lines = page(server, "/metrics").splitlines()
        names = [line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")]
        series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
        assert len(series) == len(set(series)), "no series twice"
        assert names.count("process_resident_memory_bytes") == 1
        assert "kafka_controller_kafkacontroller_activecontrollercount 1.0" in lines
        assert any(line.startswith("kafka_server_brokertopicmetrics_bytesin_total") for line in lines)
        queue = [line for line in lines if line.startswith("kafka_network_requestchannel_requestqueuesize")]
        assert [line.rpartition(" ")[0].partition("{")[2] for line in queue] == ["", 'role="controller"}']


def test_the_metadata_may_have_a_directory_of_its_own(tmp_path: Path) -> None:
    own = {"metadata_log_dir": str(tmp_path / "metadata")}
    with running(build(combined_config(tmp_path / "data", **own))) as server:
        create(server, "t")
    assert (tmp_path / "metadata" / "__cluster_metadata-0").is_dir()
    assert (tmp_path / "metadata" / "recovery-point-offset-checkpoint").exists()
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()


def test_a_second_process_on_the_same_directory_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    first = build(combined_config(tmp_path))
    with pytest.raises(LogDirectoryError, match="in use by another process"):
        build(combined_config(tmp_path))
    first.close()
    build(combined_config(tmp_path)).close()


def test_a_controller_that_cannot_be_built_frees_everything(tmp_path: Path) -> None:
    build(combined_config(tmp_path), CLUSTER_ID).close()
    with pytest.raises(DirectoryError, match=f"belong to cluster '{CLUSTER_ID}', not 'other'"):
        build(combined_config(tmp_path), "other")
    several = {"controller_quorum_voters": "1@localhost:1,2@localhost:2"}
    with pytest.raises(DirectoryError, match="is new and does not say which cluster"):
        build(combined_config(tmp_path / "new", **several))
    build(combined_config(tmp_path)).close()


def test_a_broker_that_cannot_be_built_stops_the_controller(tmp_path: Path) -> None:
    config = combined_config(tmp_path, advertised_listeners="PLAINTEXT://localhost:0")
    config.__dict__["advertised_listeners_parsed"] = tuple(
        each._replace(name="OTHER") for each in config.advertised_listeners_parsed
    )
    with pytest.raises(Exception, match="OTHER"):
        build(config)
    build(combined_config(tmp_path)).close()


def test_an_error_of_either_part_ends_the_process(tmp_path: Path) -> None:
    server = build(combined_config(tmp_path))
    server.controller.endings.put("the disk of the controller failed")
    assert server.endings.get(timeout=1) == "the disk of the controller failed"
    server.close()


def test_faults_in_an_api_of_both_are_those_of_the_broker(tmp_path: Path) -> None:
    config = combined_config(
        tmp_path, barnabas_faults_enable="true", controller_quorum_voters="1@localhost:1,2@localhost:2"
    )
    faults = FaultKit(config)
    server = CombinedServer(config, faults.clock, faults.fs, CLUSTER_ID, faults)
    assert faults.links.names_at("localhost", 2) == {2}, "one of several controllers"
    assert faults.links.names_at("localhost", 3) == set()
    assert json.loads(_faults_page(server))["role"] == "broker"
    server.close()


def _faults_page(server: CombinedServer) -> str:
    server.page.start()
    return page(server, "/faults")


def test_a_certificate_that_expires_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority()
    own = authority.issue("n", names=("localhost", "127.0.0.1"), to_days=9.5)
    config = combined_config(
        tmp_path / "data",
        listener_security_protocol_map="PLAINTEXT:SSL,CONTROLLER:SSL",
        inter_broker_listener_name="PLAINTEXT",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(own.write_pem(tmp_path / "key.pem")),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority.write_pem(tmp_path / "ca.pem")),
    )
    with running(build(config)):
        pass
    expected = [f"the certificate of listener {name} expires in 9 days" for name in ("CONTROLLER", "PLAINTEXT")]
    assert sorted(line for line in caplog.messages if "expires in" in line) == expected
