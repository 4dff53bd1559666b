"""Config: the values of file, variables and overrides, and the errors of invalid ones.

Tests `config/config.py`, `config/checks.py` and `config/listeners.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.config import Config, ConfigError, Listener
from barnabas.config.checks import STANDARD_AUTHORIZER

BROKER = {"node.id": "1", "controller.quorum.bootstrap.servers": "localhost:9093"}


def broker(**more: str) -> Config:
    return Config.from_properties({**BROKER, **{k.replace("_", "."): v for k, v in more.items()}}, "broker")


def test_a_controller_at_any_address_is_advertised_by_the_name_of_its_host(tmp_path) -> None:
    file = tmp_path / "c.properties"
    file.write_text("process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://0.0.0.0:9093\n")
    config = Config.load(file, role="controller")
    assert [str(listener) for listener in config.listeners_parsed] == ["CONTROLLER://0.0.0.0:9093"]
    assert config.controller_endpoint() == ("CONTROLLER", "", 9093)
    file.write_text(file.read_text() + "advertised.listeners=CONTROLLER://0.0.0.0:9093\n")
    with pytest.raises(ConfigError, match="nonroutable meta-address"):
        Config.load(file, role="controller")
    for host in ("[::]", "[0:0::0]"):
        config = Config.from_properties({"node.id": "1", "listeners": f"CONTROLLER://{host}:9093"}, "controller")
        assert config.controller_endpoint() == ("CONTROLLER", "", 9093), host
        assert config.listeners_parsed[0].host == host.strip("[]")
    config = Config.from_properties({"node.id": "1", "listeners": "CONTROLLER://[::1]:9093"}, "controller")
    assert config.controller_endpoint() == ("CONTROLLER", "::1", 9093)


def test_a_small_broker_file_is_enough() -> None:
    config = broker()
    assert config.node_id == config.broker_id == 1
    assert config.process_roles == ("broker",)
    assert config.listeners_parsed == (Listener("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert config.advertised_listeners_parsed == config.listeners_parsed
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.controller_bootstrap() == [("localhost", 9093)]
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config.metadata_log_dir == "/tmp/kafka-logs"
    assert config.num_io_threads == 8


def test_a_small_controller_file_is_enough() -> None:
    config = Config.from_properties({"node.id": "100"}, "controller")
    assert config.listeners_parsed == (Listener("CONTROLLER", "PLAINTEXT", "", 9093),)
    voters = Config.from_properties({"node.id": "7", "controller.quorum.voters": "7@h:1234"}, "controller")
    assert voters.listeners_parsed[0].port == 1234
    named = Config.from_properties({"node.id": "7", "listeners": "CTL://127.0.0.1:0"}, "controller")
    assert named.controller_listener_names == ("CTL",)


def test_broker_id_and_node_id_replace_each_other() -> None:
    config = Config.from_properties({"broker.id": "4", "controller.quorum.voters": "9@[::1]:9093"}, "broker")
    assert (config.node_id, config.broker_id) == (4, 4)
    assert config.controller_bootstrap() == [("::1", 9093)]


def test_listeners() -> None:
    config = broker(
        listeners="INSIDE://0.0.0.0:9092,OUTSIDE://[::1]:9094",
        advertised_listeners="INSIDE://b1:9092,OUTSIDE://example.org:29094",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="inside",
    )
    assert [str(listener) for listener in config.listeners_parsed] == ["INSIDE://0.0.0.0:9092", "OUTSIDE://[::1]:9094"]
    assert config.advertised_listeners_parsed[1] == Listener("OUTSIDE", "PLAINTEXT", "example.org", 29094)
    assert config.inter_broker_listener_name == "INSIDE"


def test_overrides_precede_variables_and_these_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nnum.io.threads=2\nnum.network.threads=2\nnum.partitions=2\n")
    config = Config.load(
        path,
        environment={"KAFKA_NUM_IO_THREADS": "3", "KAFKA_NUM_NETWORK_THREADS": "3"},
        overrides={"num.io.threads": "4"},
    )
    assert (config.num_io_threads, config.num_network_threads, config.num_partitions) == (4, 3, 2)


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nothing: No such file or directory"):
        Config.load(tmp_path / "nothing")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_file_that_is_not_utf_8_is_read_as_java_reads_it(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nbroker.rack=caf\u00e9\n", encoding)
    assert Config.load(path).broker_rack == "caf\u00e9"


def test_keys_in_other_units() -> None:
    assert broker().log_retention_ms == 168 * 3_600_000
    assert broker(log_retention_hours="1").log_retention_ms == 3_600_000
    assert broker(log_retention_hours="1", log_retention_minutes="1").log_retention_ms == 60_000
    assert broker(log_retention_minutes="1", log_retention_ms="5").log_retention_ms == 5
    assert broker(log_retention_hours="-1").log_retention_ms == -1
    assert broker(log_roll_hours="2").topic_config().segment_ms == 7_200_000
    assert broker(log_flush_scheduler_interval_ms="9").topic_config().flush_ms == 9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num.io.threads": "0"}, "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
        ({"log.segment.bytes": "1k"}, "Invalid value 1k for configuration log.segment.bytes: Not a number of type INT"),
        ({"listeners": "PLAINTEXT:9092"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://:70000"}, "port 70000 is not between 0 and 65535"),
        (
            {"listeners": "SSL://:9092"},
            "Controller listener with name CONTROLLER defined in controller.listener.names",
        ),
        ({"connections.max.idle.ms": "100"}, "authentication.delay.ms=100 should always be less than connections.max."),
        ({"listener.security.protocol.map": "X:TLS"}, "Invalid security protocol `TLS` defined in"),
        ({"listeners": "X://:9092"}, "No security protocol defined for listener X"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "must have a different name"),
        (
            {
                "listeners": "A://:1,B://:1",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
            "must have a different port",
        ),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot use the nonroutable meta-address 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot use the nonroutable meta-address 0.0.0.0"),
        ({"listeners": "CONTROLLER://:9092"}, "must not contain a value appearing in the 'listeners'"),
        ({"listener.security.protocol.map": "PLAINTEXT:NONE"}, "Invalid security protocol `NONE`"),
        (
            {"barnabas.compat.release": "0.9"},
            "Invalid value 0.9 for configuration barnabas.compat.release: String must",
        ),
        ({"barnabas.compat.release": "2.8"}, "needs a listener for clients beside PLAINTEXT: brokers, which use that"),
        ({"inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name must be a listener name defined in"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name",
        ),
        ({"controller.quorum.bootstrap.servers": "localhost"}, "expected host:port"),
        ({"controller.quorum.bootstrap.servers": ""}, "must name the controller"),
        ({"controller.quorum.voters": "localhost:9093"}, "expected id@host:port"),
        ({"controller.quorum.voters": "1@localhost:9093"}, "must not be included in the set of voters"),
        ({"process.roles": "controller"}, "process.roles=controller, but this process is started as a broker"),
        ({"broker.id": "2"}, "You must set `node.id` to the same value as `broker.id`."),
        ({"authorizer.class.name": "X"}, "Class X could not be found: authorizer.class.name can be org.apache.kafka"),
        (
            {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
            "Class kafka.security.authorizer.AclAuthorizer could not be found",
        ),
        ({"super.users": "User:admin"}, "super.users has no effect without authorizer.class.name"),
        (
            {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:a;b"},
            "super.users: expected a string in format principalType:principalName but got b",
        ),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.socket.timeout.ms should always be at least"),
        ({"queued.max.request.bytes": "1"}, "queued.max.request.bytes must be larger or equal"),
        ({"max.connections.per.ip": "0"}, "can be set to zero only if"),
        ({"max.connections.per.ip.overrides": "host"}, "expected host:count"),
        ({"max.connections.per.ip.overrides": "a:1,host#:2"}, "contains invalid addresses : host#"),
        ({"remote.log.storage.system.enable": "true"}, "tiered storage is not supported"),
        ({"offsets.topic.compression.codec": "5"}, "Unknown compression type id: 5"),
        ({"log.dirs": ""}, "must not be empty"),
    ],
)
def test_errors(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_properties({**BROKER, **settings}, "broker")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


COMBINED = {  # of config/server.properties in Apache Kafka 4.3
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "log.dirs": "/tmp/kraft-combined-logs",
}


def test_a_node_with_both_roles_has_a_config_for_each() -> None:
    config = Config.from_properties(COMBINED, "broker")
    of_controller = config.of_role("controller")
    assert config.is_combined
    assert of_controller.is_combined
    assert [each.name for each in config.listeners_parsed] == ["PLAINTEXT"]
    assert [str(each) for each in config.advertised_listeners_parsed] == ["PLAINTEXT://localhost:9092"]
    assert [each.name for each in of_controller.listeners_parsed] == ["CONTROLLER"]
    assert [str(each) for each in of_controller.advertised_listeners_parsed] == ["CONTROLLER://localhost:9093"]
    assert [each.name for each in config.all_listeners] == ["PLAINTEXT", "CONTROLLER"]
    assert config.controller_bootstrap() == [("localhost", 9093)]
    assert of_controller.controller_endpoint() == ("CONTROLLER", "localhost", 9093)
    assert [each.name for each in config.with_overrides({"num.io.threads": "3"}).listeners_parsed] == ["PLAINTEXT"]
    with pytest.raises(ConfigError, match="names two roles: `barnabas server FILE`"):
        config.require_one_role()


def test_a_controllers_listener_need_not_be_advertised() -> None:
    for advertised in ("PLAINTEXT://h:1", "PLAINTEXT://h:1,CONTROLLER://h:2"):
        config = Config.from_properties({**COMBINED, "advertised.listeners": advertised}, "controller")
        assert [each.name for each in config.advertised_listeners_parsed] == ["CONTROLLER"]
        assert [str(each) for each in config.of_role("broker").advertised_listeners_parsed] == ["PLAINTEXT://h:1"]
    assert config.controller_endpoint() == ("CONTROLLER", "h", 2)


def test_the_roles_share_a_metadata_directory_among_the_log_directories() -> None:
    assert Config.from_properties(COMBINED, "controller").shares_metadata_directory
    own = {**COMBINED, "metadata.log.dir": "/tmp/metadata"}
    assert not Config.from_properties(own, "controller").shares_metadata_directory
    assert not broker().shares_metadata_directory


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"controller.quorum.bootstrap.servers": ""},
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap",
        ),
        (
            {"controller.quorum.voters": "2@h:1"},
            "If process.roles contains the 'controller' role, the node id 1 must be included in the set of voters",
        ),
        (
            {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://h:1"},
            "controller.listener.names must only contain values appearing in the 'listeners' configuration",
        ),
        ({"listeners": "PLAINTEXT://:9093,CONTROLLER://:9093"}, "Each listener must have a different port"),
        ({"node.id": "-1"}, "node.id"),
    ],
)
def test_errors_of_both_roles(role: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Config.from_properties({**COMBINED, **settings}, role)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"listeners": "CONTROLLER://:9093", "advertised.listeners": "CONTROLLER://h:9093"},
            "There must be at least one broker advertised listener. Perhaps all listeners appear in controller.",
        ),
        ({"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name must be a listener name defined in"),
    ],
)
def test_errors_of_the_broker_in_a_node_with_both_roles(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Config.from_properties({**COMBINED, **settings}, "broker")


@pytest.mark.parametrize("protocol", ["consumer", "share", "streams"])
def test_the_settings_of_groups_are_within_their_bounds(protocol: str) -> None:
    def refused(setting: str, value: int, message: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(message)):
            broker(**{f"group_{protocol}_{setting}": str(value)})

    prefix = f"group.{protocol}"
    for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        setting, low, high = name.replace(".", "_"), f"{prefix}.min.{name}", f"{prefix}.max.{name}"
        refused(setting, 9_999_999, f"{prefix}.{name} must be less than or equal to {high}")
        if name != "assignment.interval.ms":  # its minimum is 0
            refused(f"max_{setting}", 1, f"{high} must be greater than or equal to {low}")
            refused(setting, 1, f"{prefix}.{name} must be greater than or equal to {low}")
    message = f"{prefix}.heartbeat.interval.ms must be less than {prefix}.session.timeout.ms"
    with pytest.raises(ConfigError, match=re.escape(message)):
        broker(**{
            f"group_{protocol}_{setting}": "45000" for setting in ("heartbeat_interval_ms", "max_heartbeat_interval_ms")
        })  # fmt: skip


@pytest.mark.parametrize("name", ["delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"])
def test_the_settings_of_share_partitions_are_within_their_bounds(name: str) -> None:
    own, low, high = (f"group.share.{bound}{name}" for bound in ("", "min.", "max."))
    values = {"delivery.count.limit": (4, 6, 5), "partition.max.record.locks": (1000, 5000, 2000)}
    least, most, middle = values.get(name, (14_999, 60_001, 29_999))
    above = {own: str(most), high: str(most - 1)}
    if name == "record.lock.duration.ms":
        above = {own: str(most)}
    with pytest.raises(ConfigError, match=re.escape(f"{high} must be greater than or equal to {own}")):
        Config.from_properties(above)
    with pytest.raises(ConfigError, match=re.escape(f"{own} must be greater than or equal to {low}")):
        Config.from_properties({own: str(least), low: str(middle)})


def test_share_sessions_are_no_fewer_than_members() -> None:
    message = "group.share.max.share.sessions must be greater than or equal to group.share.max.size"
    with pytest.raises(ConfigError, match=message):
        broker(group_share_max_share_sessions="199")
    assert broker(group_share_max_share_sessions="200").group_share_max_share_sessions == 200


@pytest.mark.parametrize("topic", ["offsets", "share.coordinator.state"])
@pytest.mark.parametrize("codec", ["-1", "5"])
def test_an_unknown_compression_of_a_coordinators_topic(topic: str, codec: str) -> None:
    with pytest.raises(ConfigError, match=f"^Unknown compression type id: {codec}$"):
        Config.from_properties({f"{topic}.topic.compression.codec": codec})


def test_the_classic_protocol_stays() -> None:
    with pytest.raises(ConfigError, match="Disabling the 'classic' protocol is not supported"):
        broker(group_coordinator_rebalance_protocols="consumer")


@pytest.mark.parametrize("name", ["log_flush_interval_ms", "log_flush_scheduler_interval_ms"])
def test_flush_intervals_are_not_negative(name: str) -> None:
    with pytest.raises(ConfigError, match=r"Invalid value -1 for configuration flush\.ms: Value must be at least 0"):
        broker(**{name: "-1"})


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_any_negative_retention_is_unlimited(name: str) -> None:
    config = Config.from_properties({name: "-5"})
    assert (config.log_retention_ms, config.topic_config().retention_ms, config.value(name)) == (-1, -1, -5)


def test_only_listeners_that_are_there_start_early() -> None:
    assert broker(early_start_listeners="PLAINTEXT")
    message = "early.start.listeners contains listener X, but this is not contained in listeners or controller."
    with pytest.raises(ConfigError, match=re.escape(message)):
        broker(early_start_listeners="X")


@pytest.mark.parametrize("value", ["a:1,,b:2", ",a:1"])
def test_an_empty_override_of_an_address_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="expected host:count"):
        broker(max_connections_per_ip_overrides=value)
    assert broker(max_connections_per_ip_overrides="a:1, [::1] : 2,").max_connections_per_ip_overrides


def test_a_broker_may_advertise_a_controllers_listener() -> None:
    config = broker(advertised_listeners="PLAINTEXT://h:9092,CONTROLLER://h:9093")
    assert [listener.name for listener in config.advertised_listeners_parsed] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CONTROLLER", "must not contain an explicitly set inter.broker.listener.name configuration value"),
        (
            "X",
            "Listener with name X defined in inter.broker.listener.name not found in listener.security.prot",
        ),
        ("", "The provided listener name is null or empty string"),
    ],
)
def test_the_listener_of_brokers_in_a_controllers_file(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Config.from_properties({"node.id": "100", "inter.broker.listener.name": name}, "controller")
    assert Config.from_properties({"node.id": "100", "inter.broker.listener.name": "PLAINTEXT"}, "controller")


def test_standby_replicas_are_bounded() -> None:
    assert broker(group_streams_num_standby_replicas="2").group_streams_num_standby_replicas == 2
    message = "group.streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas"
    with pytest.raises(ConfigError, match=re.escape(message)):
        broker(group_streams_num_standby_replicas="3")


def test_the_roles_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("process.roles=controller,broker\nnode.id=${env:NONE}\n")
    assert Config.roles_of(file, overrides={}, environment={}) == {"broker", "controller"}
    assert Config.roles_of(file, overrides={"process.roles": "broker"}, environment={}) == {"broker"}
    assert Config.roles_of(file, overrides={}, environment={"KAFKA_PROCESS_ROLES": "controller"}) == {"controller"}
    file.write_text("node.id=1\n")
    with pytest.raises(ConfigError, match=r'Missing required configuration "process\.roles" which'):
        Config.roles_of(file, overrides={}, environment={})


def test_a_node_needs_an_id() -> None:
    with pytest.raises(ConfigError, match=r'Missing required configuration "node\.id"'):
        Config.from_properties({"controller.quorum.bootstrap.servers": "h:1"}, "broker")


def test_new_values_replace_the_old_ones() -> None:
    config = broker(min_insync_replicas="1")
    config.replace(config.with_overrides({"min.insync.replicas": "2"}))
    assert config.min_insync_replicas == config.topic_config().min_insync_replicas == 2
    assert config.originals == {**BROKER, "min.insync.replicas": "1"}
    with pytest.raises(ConfigError):
        config.with_overrides({"min.insync.replicas": "0"})
    assert config.min_insync_replicas == 2


def test_an_unknown_attribute_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no config key has the attribute nonsense"):
        _ = broker().nonsense


def test_importing_the_table_loads_no_slow_module() -> None:
    """Keeps start-up fast: no slow module may be imported."""
    script = "import sys; before = set(sys.modules); import barnabas.config; print(*set(sys.modules) - before)"
    modules = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"tempfile", "ipaddress", "dataclasses", "inspect", "asyncio", "http"} & set(modules)
