"""With Apache Kafka 4.3.1: mixed quorums, and its tools on our files. Tests raft_log.py, senders.py and the wire.

In most tests only the replicas of Barnabas take part, without the active controller on top. So these write what Apache
Kafka's controllers must find in a log: `metadata.version` first.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.common.ids import uuid_to_string
from barnabas.controller.raft.log_outline import Membership
from barnabas.controller.raft.voter_set import VoterSet
from barnabas.protocol.messages import k55_describe_quorum as describe
from barnabas.protocol.metadata_records import FeatureLevelRecord, TopicRecord, encode_record
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.controller.raft.client.rig import config_record
from tests.controller.raft.client.servers import HOST, WAIT_MS, RaftServers
from tests.controller.raft.client.test_dynamic import BROKER, DynamicQuorum
from tests.controller.rig import CLUSTER_ID
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import MAIN_CLASSES, SMALL_JVM, KafkaTools
from tests.support.processes import tied_to_parent
from tests.support.waiting import eventually

FEATURES = FeatureLevelRecord(name="metadata.version", feature_level=30)


class ApacheController:
    """A controller of Apache Kafka, which is a voter."""

    def __init__(self, runtime: KafkaRuntime, directory: Path, node_id: int, ports: dict[int, int]) -> None:
        self.id = node_id
        self._runtime = runtime
        self._directory = directory
        self._properties = directory / "server.properties"
        directory.mkdir()
        settings = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(f"{voter}@{HOST}:{port}" for voter, port in ports.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{HOST}:{ports[node_id]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory / "data"),
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = runtime.command(MAIN_CLASSES["kafka-storage"], *SMALL_JVM)
        subprocess.run(
            [*command, "format", "-t", CLUSTER_ID, "-c", str(self._properties)], check=True, capture_output=True
        )
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the JVM."""
        command = tied_to_parent(self._runtime.command("kafka.Kafka", *SMALL_JVM))
        with (self._directory / "output").open("ab") as output:
            self._child = subprocess.Popen([*command, str(self._properties)], stdout=output, stderr=output)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._child is not None and self._child.poll() is None

    def kill(self) -> None:
        """End it with SIGKILL, if it runs."""
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()
            self._child = None


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[RaftServers]:
    """Three places of voters, in which nothing runs yet."""
    servers = RaftServers(tmp_path, 3)
    yield servers
    for node_id in list(servers.running):
        servers.stop(node_id)


def append_features(servers: RaftServers) -> None:
    leader = servers.leader()
    batch = build_batch([SimpleRecord(1, None, encode_record(FEATURES))])
    leader.raft.append(leader.raft.leader_and_epoch.epoch, bytearray(batch))


def has_all(servers: RaftServers, voter_id: int) -> bool:
    """Whether a voter has everything that is committed, as the leader, one of ours, sees it."""
    (partition,) = servers.leader().raft.describe().topics[0].partitions
    ends = {voter.replica_id: voter.log_end_offset for voter in partition.current_voters}
    return 0 < partition.high_watermark <= ends.get(voter_id, -1)


def leads(port: int) -> bool:
    """Whether the controller at a port leads and knows what is committed."""
    topic = describe.RequestTopicData(
        topic_name="__cluster_metadata", partitions=[describe.RequestPartitionData(partition_index=0)]
    )
    try:
        with NodeConnection(HOST, port) as connection:
            response = connection.send(describe.DescribeQuorumRequest(topics=[topic]), 2)
    except NodeConnectionError:
        return False
    (partition,) = response.topics[0].partitions
    return partition.error_code == 0 and partition.high_watermark > 0


def dump_of_log(tools: KafkaTools, directory: Path) -> str:
    """What `kafka-dump-log` prints of the metadata log of a controller that is stopped."""
    log = next((directory / "__cluster_metadata-0").glob("*.log"))
    output = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(log)).check().stdout
    assert "LeaderChange" in output
    assert "isvalid: false" not in output
    return output


def test_two_of_ours_and_one_of_apache(
    servers: RaftServers, apache_runtime: KafkaRuntime, tools: KafkaTools, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        apache = ApacheController(apache_runtime, tmp_path / "apache", 3, servers.ports)
        stack.callback(apache.kill)
        for node_id in (1, 2):
            servers.start(node_id)
        append_features(servers)
        servers.append("a")
        apache.start()
        eventually("Apache Kafka replicates", lambda: has_all(servers, 3), WAIT_MS)
        first = servers.leader().id
        servers.stop(first)
        (left,) = servers.running.values()
        before = left.raft.high_watermark
        eventually("the two others go on", lambda: left.raft.high_watermark > before, WAIT_MS)
        servers.start(first)
        apache.kill()
        servers.append("b")
        eventually("ours go on", lambda: all(s.listened.names[-1:] == ["b"] for s in servers.running.values()), WAIT_MS)
        assert all(node.listened.names == ["a", "b"] for node in servers.running.values())
    for node_id in (1, 2):
        servers.stop(node_id)
    output = dump_of_log(tools, tmp_path / "1")
    assert '"type":"FEATURE_LEVEL_RECORD"' in output


def test_an_apache_controller_under_our_active_one(apache_runtime: KafkaRuntime, tmp_path: Path) -> None:
    """It replays our records, registers itself, and its vote counts: without it, one of ours commits nothing."""
    with ExitStack() as stack:
        processes = DynamicQuorum(tmp_path, is_static=True)
        stack.callback(processes.stop)
        apache = ApacheController(apache_runtime, tmp_path / "apache", 3, processes.ports)
        stack.callback(apache.kill)
        for node_id in (1, 2):
            processes.format(node_id)
            processes.start(node_id)
        processes.start(BROKER)
        eventually("the broker serves", lambda: processes.voters() == {1, 2, 3}, WAIT_MS)
        processes.create("a")
        apache.start()

        def has_registered() -> bool:
            known = {member["id"]: member for member in processes.status().get("voters", ())}
            return 3 in known and known[3]["log_end"] > 0 and known[3]["behind"] == 0

        eventually("Apache Kafka replicates", has_registered, WAIT_MS)
        processes.kill(3 - processes.status()["leader"])
        processes.create("b")
        assert apache.is_running


def test_one_of_ours_and_two_of_apache(servers: RaftServers, apache_runtime: KafkaRuntime, tmp_path: Path) -> None:
    with ExitStack() as stack:
        others = {
            node_id: ApacheController(apache_runtime, tmp_path / f"apache{node_id}", node_id, servers.ports)
            for node_id in (2, 3)
        }
        for other in others.values():
            stack.callback(other.kill)
            other.start()
        eventually("one of them leads", lambda: any(leads(servers.ports[other]) for other in others), WAIT_MS)
        slow = {"controller_quorum_fetch_timeout_ms": "2000", "controller_quorum_election_timeout_ms": "1000"}
        servers.start(1, **slow)
        ours = servers.running[1]
        eventually("ours follows", lambda: ours.raft.leader_and_epoch.leader_id in others, WAIT_MS)
        eventually("ours replicates", lambda: ours.raft.high_watermark > 1, WAIT_MS)
        epoch, before = ours.raft.leader_and_epoch.epoch, ours.raft.high_watermark
        leader_id = ours.raft.leader_and_epoch.leader_id
        assert leader_id is not None
        others[leader_id].kill()
        eventually(
            "ours and the other go on",
            lambda: ours.raft.high_watermark > before and ours.raft.leader_and_epoch.epoch > epoch,
            WAIT_MS,
        )


def test_voters_are_added_and_removed_by_kafka_metadata_quorum(
    servers: RaftServers, tools: KafkaTools, tmp_path: Path
) -> None:
    """`kafka-storage` formats the directories: the first voter, and two controllers without voters."""
    for node_id, how in ((1, "--standalone"), (2, "--no-initial-controllers"), (3, "--no-initial-controllers")):
        file = tmp_path / f"{node_id}.properties"
        settings = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.bootstrap.servers": f"{HOST}:{servers.ports[1]}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{HOST}:{servers.ports[node_id]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "log.dirs": str(tmp_path / str(node_id)),
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        tools.run("kafka-storage", "format", "-t", CLUSTER_ID, "-c", str(file), how).check()
    servers.voters = Membership(-1, 0, VoterSet())
    for node_id in servers.ports:
        servers.start(node_id)
    servers.append("a")
    epoch = servers.leader().raft.leader_and_epoch.epoch

    def ask(node_id: int, *arguments: str) -> str:
        address = f"{HOST}:{servers.ports[node_id]}"
        return tools.run("kafka-metadata-quorum", "--bootstrap-controller", address, *arguments).check().stdout

    # The leader was alone for longer than its quorum may be silent.
    eventually("2 is caught up", lambda: '"id": 2' in ask(1, "describe", "--status").split("Observers")[1], WAIT_MS)
    ask(1, "--command-config", str(tmp_path / "2.properties"), "add-controller")
    assert servers.leader().raft.leader_and_epoch == (1, epoch)
    assert '"id": 2' in ask(1, "describe", "--status").split("CurrentObservers")[0]
    directory_id = uuid_to_string(servers.running[1].key.directory_id)
    ask(1, "remove-controller", "--controller-id", "1", "--controller-directory-id", directory_id)
    eventually("2 leads", lambda: servers.running[2].leads, WAIT_MS)
    servers.append("b")
    eventually("all have both", lambda: all(s.listened.names == ["a", "b"] for s in servers.running.values()), WAIT_MS)
    lines = ask(2, "describe", "--replication").splitlines()[1:]
    assert sorted((line.split()[0], line.split()[-1]) for line in lines if line.split()) == [
        ("1", "Observer"),
        ("2", "Leader"),
        ("3", "Observer"),
    ]
    for node_id in (1, 2, 3):
        servers.stop(node_id)
    output = dump_of_log(tools, tmp_path / "3")
    assert output.count("LeaderChange") == 2
    assert "KRaftVoters" in output


def test_apache_reads_a_snapshot_of_ours(servers: RaftServers, tools: KafkaTools, tmp_path: Path) -> None:
    for node_id in (1, 2):
        servers.start(node_id)
    append_features(servers)
    servers.append("a")
    leader = servers.leader()
    topic = TopicRecord(name="orders", topic_id=bytes(15) + b"\7")
    records = [FEATURES, config_record("a"), topic]
    epoch = leader.raft.leader_and_epoch.epoch
    assert leader.raft.create_snapshot(leader.raft.high_watermark, records, epoch) is not None
    (snapshot,) = (tmp_path / str(leader.id) / "__cluster_metadata-0").glob("*.checkpoint")
    output = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(snapshot)).check().stdout
    assert "SnapshotHeader" in output
    assert "SnapshotFooter" in output

    def topics() -> list[str]:
        shell = tools.run("kafka-metadata-shell", "--snapshot", str(snapshot), "ls", "/image/topics/byName").check()
        return shell.stdout.split()

    # Why more than once: the shell may answer before it has read the snapshot.
    eventually("the shell shows the topic", lambda: topics() == ["orders"])
    # The shell closes its output. A test after this one still reads what its own tools print.
    assert tools.run("kafka-storage", "random-uuid").check().stdout.strip()
