"""Feature levels as `kafka-features` changes them. Apache Kafka 4.3.1 prints the same (`--target apache`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from barnabas.cluster import CONTROLLER_ID, HOST, free_ports
from tests.support.cluster import ApacheKafkaTarget, BarnabasCluster, Target
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

ELR = "eligible.leader.replicas.version"
CONFIG = ("--alter", "--entity-type", "brokers")
FAILED = "The update failed for all features since the following feature had an error: "

#: (the command, what it prints)
STORY = [
    ("upgrade --feature group.version=1", "group.version was upgraded to 1."),
    ("upgrade --feature group.version=9",
     f"Could not upgrade group.version to 9. {FAILED}Invalid update version 9 for feature group.version. "
     "Local controller N only supports versions 0-1"),
    ("upgrade --feature no.such.version=1",
     f"Could not upgrade no.such.version to 1. {FAILED}Invalid update version 1 for feature no.such.version. "
     "Local controller N does not support this feature."),
    ("downgrade --feature transaction.version=1", "transaction.version was downgraded to 1."),
    ("upgrade --feature transaction.version=2", "transaction.version was upgraded to 2."),
    ("downgrade --feature transaction.version=2", "transaction.version was downgraded to 2."),
    ("upgrade --feature transaction.version=1",
     f"Could not upgrade transaction.version to 1. {FAILED}Invalid update version 1 for feature transaction.version. "
     "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
     "downgrade."),
    ("downgrade --feature metadata.version=29",
     f"Could not downgrade metadata.version to 29. {FAILED}Unsupported metadata.version downgrade from 30 to 29. "
     "Refusing to perform the requested downgrade because it might delete metadata information."),
    ("downgrade --feature metadata.version=29 --unsafe",
     f"Could not downgrade metadata.version to 29. {FAILED}Unsupported metadata.version downgrade from 30 to 29. "
     "Unsafe metadata downgrade is not supported in this version."),
    ("upgrade --feature metadata.version=30", "metadata.version was upgraded to 30."),
    ("disable --feature share.version", "share.version was disabled."),
    ("upgrade --feature share.version=1 --dry-run", "share.version can be upgraded to 1."),
    ("upgrade --feature share.version=1 --feature group.version=1",
     "group.version was upgraded to 1.\nshare.version was upgraded to 1."),
    (f"upgrade --feature {ELR}=1", f"{ELR} was upgraded to 1."),
    (f"upgrade --feature {ELR}=2",
     f"Could not upgrade {ELR} to 2. {FAILED}Invalid update version 2 for feature {ELR}. "
     "Local controller N only supports versions 0-1"),
    (f"feature-dependencies --feature {ELR}=1 --feature group.version=1",
     f"{ELR}=1 requires:\n    metadata.version=23 (4.0-IV1)\ngroup.version=1 has no dependencies."),
    ("version-mapping --release-version 4.0",
     "metadata.version=25 (4.0)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\n"
     f"{ELR}=0\nshare.version=0\nstreams.version=0"),
]  # fmt: skip


RANGE = ("SupportedMinVersion", "SupportedMaxVersion", "FinalizedVersionLevel")
#: Of a new cluster: feature -> (least level, greatest level, finalized level)
LEVELS = {
    ELR: ("0", "1", "1"),
    "group.version": ("0", "1", "1"),
    "kraft.version": ("0", "1", "0"),
    "metadata.version": ("3.3-IV3", "4.3-IV0", "4.3-IV0"),
    "share.version": ("0", "1", "1"),
    "streams.version": ("0", "1", "1"),
    "transaction.version": ("0", "2", "2"),
}


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One broker of its own, since the levels count for the whole cluster."""
    directory = tmp_path_factory.mktemp("features")
    if request.config.getoption("target") == "apache":
        port, controller_port = free_ports(2)
        with ApacheKafkaTarget(kafka_runtime(), directory, ports=(port, controller_port)) as apache:
            yield apache
    else:
        with BarnabasCluster(directory, broker_count=1, first_port=0) as barnabas:
            yield barnabas


def controller_of(cluster: Target) -> str:
    """Return the address of the controller."""
    if isinstance(cluster, BarnabasCluster):
        return cluster.nodes[CONTROLLER_ID].controller_address
    assert cluster.ports is not None
    return f"{HOST}:{cluster.ports[1]}"


def test_a_broker_and_the_controller_describe_the_levels(cluster: Target, tools: KafkaTools) -> None:
    # Why without: a controller of ours that is alone has no quorum, and so no kraft.version that could be raised.
    alone = {"kraft.version"} if isinstance(cluster, BarnabasCluster) else set()
    for option, address, missing in (
        ("--bootstrap-server", cluster.bootstrap, set()),
        ("--bootstrap-controller", controller_of(cluster), alone),
    ):
        described = tools.run("kafka-features", option, address, "describe").check().stdout
        found = [dict(re.findall(r"(\w+): (\S+)", line)) for line in described.splitlines()]
        expected = {name: levels for name, levels in LEVELS.items() if name not in missing}
        assert [list(each) for each in found] == [["Feature", *RANGE, "Epoch"]] * len(expected)
        assert {each["Feature"]: tuple(each[name] for name in RANGE) for each in found} == expected


def test_levels_go_up_and_down(cluster: Target, tools: KafkaTools) -> None:
    for command, expected in STORY:
        result = tools.run("kafka-features", "--bootstrap-server", cluster.bootstrap, *command.split())
        assert re.sub(r"controller \d+", "controller N", result.stdout.strip()) == expected, command
        assert result.exit_code == int("Could not" in expected), command


def test_min_isr_is_the_same_on_all_brokers_while_elr_is_enabled(cluster: Target, tools: KafkaTools) -> None:
    where = ("--bootstrap-server", cluster.bootstrap)
    tools.run("kafka-features", *where, "upgrade", "--feature", f"{ELR}=1").check()
    of_all = (*where, "--describe", "--entity-type", "brokers", "--entity-default")
    eventually(
        "the value of the cluster", lambda: "min.insync.replicas=1" in tools.run("kafka-configs", *of_all).stdout
    )
    (broker_id,) = re.findall(r"id: (\d+)", tools.run("kafka-broker-api-versions", *where).stdout)
    refusals = {
        (
            "--entity-name",
            broker_id,
            "--add-config",
            "min.insync.replicas=2",
        ): "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ("--entity-default", "--delete-config", "min.insync.replicas"): "Cluster-level min.insync.replicas cannot be "
        "removed while ELR is enabled.",
    }
    for arguments, reason in refusals.items():
        result = tools.run("kafka-configs", *where, *CONFIG, *arguments)
        assert result.exit_code == 1
        assert reason in result.stdout + result.stderr
    tools.run("kafka-features", *where, "downgrade", "--feature", f"{ELR}=0").check()
    tools.run("kafka-configs", *where, *CONFIG, "--entity-default", "--delete-config", "min.insync.replicas").check()
