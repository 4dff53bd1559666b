"""The server properties of the nodes that a test asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.kafka_suites.nodes import Nodes, Wanted, secured_login

PROTOCOLS = "listener.security.protocol.map"
WANTED = Wanted(
    cluster_id="cluster",
    brokers=2,
    controllers=1,
    disks=2,
    combined=False,
    standalone=False,
    broker_listener="EXTERNAL",
    broker_protocol="PLAINTEXT",
    controller_listener="CONTROLLER",
    controller_protocol="PLAINTEXT",
    properties={"log.retention.ms": "7", "broker.rack": "all"},
    properties_of={"1": {"broker.rack": "own"}},
    bootstrap="",
)


def properties(directory: Path, wanted: Wanted) -> dict[int, dict[str, str]]:
    nodes = Nodes(directory, wanted)
    found = {number: nodes.properties(node) for number, node in nodes.nodes.items()}
    nodes.stop()
    return found


def test_ids_are_those_of_kafkas_test_clusters(tmp_path: Path) -> None:
    found = properties(tmp_path, replace(WANTED, controllers=3))
    assert {number: each["process.roles"] for number, each in found.items()} == {
        0: "broker", 1: "broker", 3000: "controller", 3001: "controller", 3002: "controller",
    }  # fmt: skip
    assert found[0]["controller.quorum.voters"].startswith("3000@localhost:")


def test_a_node_gets_properties_of_all_and_its_own(tmp_path: Path) -> None:
    found = properties(tmp_path, WANTED)
    assert {each["log.retention.ms"] for each in found.values()} == {"7"}
    assert [each["broker.rack"] for each in found.values()] == ["all", "own", "all"]
    assert len(found[0]["log.dirs"].split(",")) == 2


def test_a_listener_that_a_test_gives_port_zero_has_the_planned_one(tmp_path: Path) -> None:
    own = {"listeners": "EXTERNAL://localhost:0", "advertised.listeners": "EXTERNAL://localhost:0"}
    found = properties(tmp_path, replace(WANTED, properties_of={"0": own}))[0]
    assert int(found["listeners"].removeprefix("EXTERNAL://localhost:")) > 0
    assert found["advertised.listeners"] == "EXTERNAL://localhost:0"


def test_combined_nodes_have_both_listeners(tmp_path: Path) -> None:
    found = properties(tmp_path, replace(WANTED, combined=True))
    assert {number: each["process.roles"] for number, each in found.items()} == {0: "broker,controller", 1: "broker"}
    assert [each.partition(":")[0] for each in found[0]["listeners"].split(",")] == ["EXTERNAL", "CONTROLLER"]
    assert found[0]["metadata.log.dir"].startswith(str(tmp_path))


def test_controllers_beyond_the_number_of_brokers_are_alone(tmp_path: Path) -> None:
    found = properties(tmp_path, replace(WANTED, brokers=1, controllers=2, combined=True))
    assert [each["process.roles"] for each in found.values()] == ["broker,controller", "controller"]
    assert [each.partition("@")[0] for each in found[0]["controller.quorum.voters"].split(",")] == ["0", "1"]


def test_a_quorum_that_can_change_has_no_voters_in_its_file(tmp_path: Path) -> None:
    found = properties(tmp_path, replace(WANTED, standalone=True))
    assert found[0]["controller.quorum.bootstrap.servers"].startswith("localhost:")
    assert "controller.quorum.voters" not in found[0]


def test_the_first_controller_is_the_only_voter_of_a_quorum_that_can_change(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"")
    nodes = Nodes(tmp_path / "nodes", replace(WANTED, controllers=2, standalone=True, bootstrap=str(tmp_path)))
    nodes.plan()
    snapshots = {path.parent.parent.parent.name for path in tmp_path.rglob("__cluster_metadata-0/*.checkpoint")}
    nodes.stop()
    assert snapshots == {"controller-3000"}


def test_a_broker_that_is_added_has_the_given_properties_and_own_ports(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, replace(WANTED, brokers=0))
    given = {"listeners": "PLAINTEXT://localhost:0,SSL://localhost:0", "broker.rack": "own"}
    ports = nodes.add_broker(4, given)["ports"]
    found = nodes.properties(nodes.nodes[4])
    nodes.stop()
    assert found["listeners"] == f"PLAINTEXT://localhost:{ports['PLAINTEXT']},SSL://localhost:{ports['SSL']}"
    assert found["broker.rack"] == "own"
    assert found["controller.quorum.voters"].startswith("3000@localhost:")
    assert len({*ports.values(), int(found["barnabas.metrics.port"])}) == 3


def test_sasl_comes_with_kafkas_users_and_authorizer(tmp_path: Path) -> None:
    found = properties(tmp_path, replace(WANTED, broker_protocol="SASL_PLAINTEXT"))
    assert found[0]["super.users"] == "User:plain-admin"
    assert 'user_plain-user1="plain-user1-secret"' in found[0]["listener.name.external.plain.sasl.jaas.config"]
    assert "authorizer.class.name" not in found[3000]


def test_a_test_can_ask_for_tls_by_properties(tmp_path: Path) -> None:
    wanted = replace(WANTED, properties={PROTOCOLS: "EXTERNAL:SSL,CONTROLLER:SSL"})
    assert properties(tmp_path, wanted)[0][PROTOCOLS] == "EXTERNAL:SSL,CONTROLLER:SSL"
    own = {"ssl.truststore.location": "trust.jks", "log.dirs": "here"}
    assert secured_login(replace(wanted, properties={**wanted.properties, **own})) == {
        "security.protocol": "SSL",
        "ssl.truststore.location": "trust.jks",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_nodes_are_asked_with_the_login_that_a_test_gives_their_listener() -> None:
    jaas = 'org.Plain required username="super" password="p" user_super="p";'
    own = {"listener.name.external.plain.sasl.jaas.config": jaas}
    assert secured_login(replace(WANTED, properties=own)) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
    }


def test_nodes_without_security_are_asked_without_a_login() -> None:
    assert secured_login(WANTED) is None


def test_the_controller_of_added_brokers_gets_their_security(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, replace(WANTED, brokers=0))
    nodes.defaults = {PROTOCOLS: "IN:SSL", "inter.broker.listener.name": "IN"}
    found = nodes.properties(nodes.controllers[0])
    nodes.stop()
    assert found[PROTOCOLS] == "EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,IN:SSL"
    assert found["inter.broker.listener.name"] == "IN"
