"""A whole broker in this process, with a controller: it is built, started, reconfigured, stopped and built again.

Also covers `broker/wiring/context.py`, `broker/wiring/cluster_id.py`, `broker/wiring/network.py`,
`broker/wiring/controller_link.py`, `broker/wiring/replication.py`, `broker/wiring/coordinators.py`,
`broker/wiring/request_handling.py` and `broker/wiring/pages.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.broker.broker_server import BrokerServer
from barnabas.broker.clock.hand import ClockHand
from barnabas.broker.metadata.metadata_cache import Node
from barnabas.broker.storage.log_manager import LogDirectoryError
from barnabas.broker.wiring.context import StartError
from barnabas.client.connection import NodeConnection
from barnabas.client.errors import NodeConnectionError
from barnabas.common.clock import MovedClock, SystemClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.disk.files import OsFileSystem
from barnabas.config.config import BROKER, Config
from barnabas.controller.main import ControllerServer
from barnabas.protocol.messages import k44_incremental_alter_configs as wire
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from tests.controller.rig import CLUSTER_ID, make_config
from tests.support.certificates import Authority
from tests.support.waiting import eventually

READY_MS = 60_000


@pytest.fixture
def controller() -> Iterator[ControllerServer]:
    server = ControllerServer(make_config(barnabas_metrics_port="-1"), SystemClock(), MemoryFileSystem(), CLUSTER_ID)
    server.start()
    yield server
    server.stop()


def broker_config(directory: Path, controller_port: int, **overrides: str) -> Config:
    """A broker's config with one listener and one log directory; keys with underscores for dots."""
    properties = {
        "process.roles": "broker",
        "node.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": str(directory),
        "num.io.threads": "2",
        "barnabas.metrics.port": "0",
        **{name.replace("_", "."): value for name, value in overrides.items()},
    }
    return Config.from_properties(properties, BROKER)


def make_broker(config: Config) -> BrokerServer:
    """Build a broker whose fatal errors fail the test."""
    return BrokerServer(config, SystemClock(), OsFileSystem(), lambda reason: pytest.fail(reason))


@contextmanager
def running(broker: BrokerServer) -> Iterator[BrokerServer]:
    """Start a broker, wait until the controller unfenced it, and stop it, also if the test fails."""
    broker.start()
    try:
        assert broker.wait_until_ready(READY_MS)
        yield broker
    finally:
        broker.stop()


def broker_threads() -> set[str]:
    """The names of the threads of this process, except the controller's."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("Controller-")}


def test_a_broker_starts_serves_and_stops(tmp_path: Path, controller: ControllerServer) -> None:
    before = broker_threads()
    broker = make_broker(broker_config(tmp_path, controller.port))
    assert broker.services.cluster_id == CLUSTER_ID, "asked of the controller, since the directory is new"
    port = broker.network.sockets.port("PLAINTEXT")
    known = broker.services.metadata_cache.snapshot
    assert known.nodes_for_clients("PLAINTEXT") == [Node(0, "127.0.0.1", port, None)], "before it is unfenced, too"
    with running(broker):
        assert "broker-0-lifecycle-manager-event-handler" in broker_threads()
        with NodeConnection("127.0.0.1", port, timeout_ms=READY_MS) as client:
            keys = {api.api_key for api in client.send(ApiVersionsRequest(), 0).api_keys}
            assert {0, 1, 3} <= keys
            assert not {4, 5, 6} & keys, "the pushes are not for clients"
            # Why eventually: the heartbeat that unfences a broker may be answered before the push that says so comes.
            (node,) = eventually("the brokers", lambda: client.send(DescribeClusterRequest(), 0).brokers)
            assert (node.broker_id, node.host, node.port) == (0, "127.0.0.1", port), "the port that the system chose"
        node_section = broker.pages.view.look({})["node"]
        assert (node_section["id"], node_section["state"], node_section["cluster_id"]) == (0, "running", CLUSTER_ID)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    eventually("its threads have ended", lambda: not broker_threads() - before)


@pytest.mark.parametrize(("enabled", "highest"), [("false", 5), ("true", 6)])
def test_unstable_versions_are_listed_and_served_if_they_are_enabled(
    tmp_path: Path, controller: ControllerServer, enabled: str, highest: int
) -> None:
    broker = make_broker(broker_config(tmp_path, controller.port, unstable_api_versions_enable=enabled))
    with (
        running(broker),
        NodeConnection("127.0.0.1", broker.network.sockets.port("PLAINTEXT"), timeout_ms=READY_MS) as client,
    ):
        listed = {api.api_key: api.max_version for api in client.send(ApiVersionsRequest(), 0).api_keys}
        assert listed[22] == highest
        client.send(InitProducerIdRequest(), highest)
        if highest == 5:
            with pytest.raises(NodeConnectionError):
                client.send(InitProducerIdRequest(), highest + 1)


def test_a_broker_leaves_without_the_controller_if_it_is_told_to(
    tmp_path: Path, controller: ControllerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[object] = []
    monkeypatch.setattr(BrokerServer, "_leave", left.append)
    broker = make_broker(broker_config(tmp_path, controller.port, controlled_shutdown_enable="false"))
    with running(broker):
        pass
    assert left == []
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_second_broker_on_the_same_directory_is_refused_and_leaves_nothing_behind(
    tmp_path: Path, controller: ControllerServer
) -> None:
    config = broker_config(tmp_path, controller.port)
    first = make_broker(config)
    with pytest.raises(LogDirectoryError):
        make_broker(broker_config(tmp_path, controller.port))
    first.close()
    make_broker(broker_config(tmp_path, controller.port)).close()


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"initial_broker_registration_timeout_ms": "1"}, "no controller answers at 127.0.0.1:1"),
        ({"advertised_listeners": "OTHER://h:1"}, "OTHER"),
    ],
)
def test_a_start_that_fails_releases_the_directory(tmp_path: Path, overrides: dict[str, str], reason: str) -> None:
    for _ in range(2):
        with pytest.raises((StartError, ValueError), match=reason):
            make_broker(broker_config(tmp_path, 1, **overrides))


def handler_threads(pool: str) -> list[str]:
    """The handler threads of a pool: "data-plane" or "control-plane"."""
    return [name for name in broker_threads() if name.startswith(f"{pool}-kafka-request-handler")]


def test_the_handlers_follow_a_config_that_the_controller_pushes(tmp_path: Path, controller: ControllerServer) -> None:
    with running(make_broker(broker_config(tmp_path, controller.port))) as broker:
        assert (len(handler_threads("data-plane")), len(handler_threads("control-plane"))) == (2, 1)
        change = wire.IncrementalAlterConfigsRequest(
            resources=[
                wire.AlterConfigsResource(
                    resource_type=4,
                    resource_name="",
                    configs=[wire.AlterableConfig(name="num.io.threads", config_operation=0, value="4")],
                )
            ]
        )
        with NodeConnection("127.0.0.1", broker.network.sockets.port("PLAINTEXT"), timeout_ms=READY_MS) as client:
            assert client.send(change, 1).responses[0].error_code == 0
        eventually("there are four handlers", lambda: len(handler_threads("data-plane")) == 4)
        assert len(handler_threads("control-plane")) == 1


def test_an_authority_taken_out_at_run_time_is_not_trusted_after_a_restart(
    tmp_path: Path, controller: ControllerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Authority("old"), Authority("new")
    key = new.issue("broker").write_pem(tmp_path / "key.pem")
    config = broker_config(
        tmp_path / "data",
        controller.port,
        **{
            "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:SSL",
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(old.write_pem(tmp_path / "old.pem")),
        },
    )

    def trusted(broker: BrokerServer) -> object:
        return broker.network.tls.listener("OUTSIDE", "SSL").loaded.trusted

    with running(make_broker(config)) as broker:
        assert trusted(broker) == (old.certificate,)
        location = wire.AlterableConfig(
            name="listener.name.outside.ssl.truststore.location",
            config_operation=0,
            value=str(new.write_pem(tmp_path / "new.pem")),
        )
        change = wire.AlterConfigsResource(resource_type=4, resource_name="0", configs=[location])
        with NodeConnection("127.0.0.1", broker.network.sockets.port("PLAINTEXT"), timeout_ms=READY_MS) as client:
            request = wire.IncrementalAlterConfigsRequest(resources=[change])
            assert client.send(request, 1).responses[0].error_code == 0
        eventually("the new one is trusted", lambda: trusted(broker) == (new.certificate,))
    again = make_broker(config)
    assert again.network.needs_security_metadata, "clients wait for it"
    found: list[object] = []
    sockets = again.network.sockets
    monkeypatch.setattr(sockets, "admit_clients", lambda: found.append(trusted(again)))
    monkeypatch.setattr(sockets, "admit_nodes", lambda: found.append(trusted(again)))
    with running(again):
        assert set(found) == {(new.certificate,)}
        assert len(found) >= 2


def test_a_clock_moved_on_purpose_admits_no_node_before_its_time(
    tmp_path: Path, controller: ControllerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes wait for the users and ACLs, for some seconds of the machine's time."""
    file = tmp_path / "clock"
    config = broker_config(
        tmp_path / "data", controller.port, barnabas_clock_enable="true", barnabas_clock_file=str(file)
    )
    real = MovedClock(SystemClock())
    hand, admitted = ClockHand(config, real), []
    broker = BrokerServer(config, real, OsFileSystem(), lambda reason: pytest.fail(reason), hand=hand)
    monkeypatch.setattr(broker.link.lifecycle, "start", lambda: None)  # as if no controller answered
    monkeypatch.setattr(broker.network.sockets, "admit_nodes", lambda: admitted.append(real.offset_ms))

    def wake() -> None:
        for part in hand.parts:
            part.moved(is_last=False)
        eventually("what was due has run", lambda: not any(part.busy() for part in hand.parts))

    file.write_text("1000\n")  # others are moved while it starts
    broker.start()
    try:
        assert hand.clock.offset_ms == 1000
        hand.clock.move_to(600_000)
        wake()
        assert admitted == []
        real.move_to(60_000)
        wake()
        assert admitted == [60_000]
    finally:
        broker.close()


def test_clients_are_admitted_after_the_first_push(
    tmp_path: Path, controller: ControllerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, offsets = make_broker(broker_config(tmp_path, controller.port)), []
    cache = broker.services.metadata_cache
    monkeypatch.setattr(broker.network.sockets, "admit_clients", lambda: offsets.append(cache.image_offset))
    with running(broker):
        # Why eventually: the broker may be unfenced while the handler of the first push still calls its listeners.
        eventually("they are admitted", lambda: offsets)
        assert min(offsets) >= 0, "the response to the registration lacks what was set at run time for logins"
