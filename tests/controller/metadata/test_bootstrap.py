"""The first records: new directories of ours and of kafka-storage, and Apache Kafka's shell on our log."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.disk.files import OsFileSystem
from barnabas.controller.decision import Decision
from barnabas.controller.decisions.features import update_features
from barnabas.controller.image import BROKER_RESOURCE
from barnabas.controller.metadata.metadata_directory import DirectoryError, MetadataDirectory
from barnabas.protocol.messages import k57_update_features as update_wire
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.metadata_records import FeatureLevelRecord, TopicRecord, UserScramCredentialRecord, encode_record
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from barnabas.security.image import FALSE_SALTS, acl_record, credential_record, quota_record, token_record
from barnabas.security.values import (
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    QuotaEntity,
    ResourceType,
    TokenInformation,
)
from tests.controller.rig import CLUSTER_ID, DIRECTORY, Rig
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import SMALL_JVM, KafkaTools

DIRS = [b"a" * 16, b"b" * 16]


LEVELS = {
    "eligible.leader.replicas.version": 1, "group.version": 1, "share.version": 1, "streams.version": 1,
    "transaction.version": 2,
}  # fmt: skip


def bootstrap(*records: FeatureLevelRecord | UserScramCredentialRecord | TopicRecord) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir(DIRECTORY)
    batch = build_batch([SimpleRecord(0, None, encode_record(r)) for r in records], base_offset=0, leader_epoch=0)
    fs.write_bytes(f"{DIRECTORY}/bootstrap.checkpoint", batch, sync=True)
    return fs


def level(version: int, name: str = "metadata.version") -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=version)


def scram(user: str) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user, mechanism=1, salt=b"s", stored_key=b"k" * 32, server_key=b"v" * 32, iterations=4096
    )


def cordon(rig: Rig) -> None:
    beat = BrokerHeartbeatRequest(
        broker_id=0,
        broker_epoch=rig.image.brokers[0].epoch,
        current_metadata_offset=rig.image.offset,
        cordoned_log_dirs=[DIRS[1]],
    )
    rig.decide(lambda view: rig.controller.heartbeat(view, beat))


def snapshot(rig: Rig) -> None:
    rig.controller._snapshot_bytes = 1
    rig.controller.loop.step()


def test_a_new_cluster_has_kafkas_newest_version() -> None:
    assert Rig().image.features == {"metadata.version": 30, **LEVELS}


def test_an_older_cluster_starts_and_can_be_upgraded() -> None:
    from tests.controller.rig import registration

    rig = Rig(bootstrap(level(25)))
    assert rig.image.features == {"metadata.version": 25}
    rig.decide(lambda view: rig.controller.register(view, registration(0, log_dirs=DIRS)))
    cordon(rig)
    assert rig.image.brokers[0].cordoned_log_dirs == ()
    update = update_wire.FeatureUpdateKey(feature="metadata.version", max_version_level=30, upgrade_type=1)
    request = update_wire.UpdateFeaturesRequest(feature_updates=[update])
    assert rig.decide(lambda view: update_features(view, request)).error_code == 0
    cordon(rig)
    assert rig.image.brokers[0].cordoned_log_dirs == (DIRS[1],)
    again = rig.restart()
    assert again.image.features == {"metadata.version": 30}
    assert again.image.brokers[0].cordoned_log_dirs == (DIRS[1],)


def test_credentials_are_kept_through_restarts_and_snapshots() -> None:
    rig = Rig(bootstrap(level(30), scram("alice"), level(1, "group.version")))
    secret = rig.image.security.false_salts
    assert secret is not None
    for _ in range(2):
        assert list(rig.image.security.records()) == [scram("alice"), credential_record(FALSE_SALTS, secret)]
        snapshot(rig)
        rig = rig.restart()
    assert rig.image.features == {"metadata.version": 30, "group.version": 1}


def test_features_that_are_not_built_stay_disabled() -> None:
    record = TopicRecord(name="t", topic_id=b"x" * 16)
    rig = Rig(bootstrap(level(30), level(1, "future.version"), level(0, "kraft.version"), record))
    assert rig.image.features == {"metadata.version": 30}
    assert rig.image.topics == {}


def test_eligible_leader_replicas_come_with_one_min_isr_for_all_brokers() -> None:
    rig = Rig(bootstrap(level(30), level(1, "eligible.leader.replicas.version")), min_insync_replicas="2")
    assert rig.image.resource_configs(BROKER_RESOURCE, "") == {"min.insync.replicas": "2"}
    assert Rig(bootstrap(level(30)), min_insync_replicas="2").image.configs == {}


def test_an_unusable_bootstrap_file_is_a_one_line_error() -> None:
    with pytest.raises(DirectoryError, match=r"metadata\.version=99, but this controller supports 7 to 30"):
        Rig(bootstrap(level(99)))
    with pytest.raises(DirectoryError, match=r"does not name the cluster.s metadata\.version"):
        Rig(bootstrap(level(1, "group.version")))
    fs = bootstrap(level(30))
    path = f"{DIRECTORY}/bootstrap.checkpoint"
    content = fs.read_bytes(path)
    for damaged in (content[:-1], content[:20] + b"\xff" + content[21:]):
        fs.write_bytes(path, damaged, sync=True)
        with pytest.raises(DirectoryError, match=r"bootstrap\.checkpoint (cannot be understood|does not name)"):
            Rig(fs)


def test_a_directory_that_kafka_formatted(tools: KafkaTools, tmp_path: Path) -> None:
    data = tmp_path / "data"
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=controller\nnode.id=100\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:0\ncontroller.quorum.voters=100@127.0.0.1:9093\nlog.dirs={data}\n"
    )
    password = "SCRAM-SHA-256=[name=alice,password=secret]"
    tools.run("kafka-storage", "format", "-t", CLUSTER_ID, "-c", str(file), "--add-scram", password).check()
    fs = OsFileSystem()
    MetadataDirectory.open(fs, str(data), 100, CLUSTER_ID).close()
    rig = Rig(fs, directory=str(data))
    assert rig.image.features == {"metadata.version": 30, "eligible.leader.replicas.version": 1, **LEVELS}
    assert list(rig.image.security.credentials) == [("alice", 1)]
    rig.controller.stop()


@pytest.mark.parametrize("version", [25, 30])
def test_kafkas_shell_reads_the_log_and_the_snapshot(
    apache_runtime: KafkaRuntime, tmp_path: Path, version: int
) -> None:
    batch = build_batch([SimpleRecord(0, None, encode_record(level(version)))], base_offset=0, leader_epoch=0)
    (tmp_path / "bootstrap.checkpoint").write_bytes(batch)
    rig = Rig(OsFileSystem(), directory=str(tmp_path))
    rig.join(0, 1)
    rig.create("t", [[0, 1], [1, 0]], retention_ms="7")
    directory = tmp_path / "__cluster_metadata-0"
    check_shell(apache_runtime, directory / "00000000000000000000.log")
    snapshot(rig)
    (file,) = directory.glob("*.checkpoint")
    check_shell(apache_runtime, file)


def test_kafkas_shell_reads_acls_users_tokens_and_quotas(apache_runtime: KafkaRuntime, tmp_path: Path) -> None:
    rig = Rig(OsFileSystem(), directory=str(tmp_path))
    acl = AclBinding(
        b"a" * 16,
        ResourceType.TOPIC,
        "orders",
        PatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        PermissionType.ALLOW,
    )
    token = TokenInformation("token-1", "User:alice", "User:bob", ("User:carol",), 1, 3, 2)
    quota = quota_record(QuotaEntity.of({"user": "alice", "client-id": "c"}), "producer_byte_rate", 1024.0)
    records = [acl_record(acl), scram("alice"), token_record(token), quota]
    rig.decide(lambda _: Decision(records, None))
    directory = tmp_path / "__cluster_metadata-0"
    check_shell(apache_runtime, directory / "00000000000000000000.log", "ls", "/image/scram/SCRAM-SHA-256", "alice")
    snapshot(rig)
    (file,) = directory.glob("*.checkpoint")
    for path, expected in (
        ("/image/acls/byId", "YWFhYWFhYWFhYWFhYWFhYQ"),
        ("/image/scram/SCRAM-SHA-256", "alice"),
        ("/image/delegationToken", "token-1"),
        ("/image/clientQuotas", "clientId(c)_user(alice)"),
    ):
        check_shell(apache_runtime, file, "ls", path, expected)


def check_shell(
    runtime: KafkaRuntime,
    file: Path,
    action: str = "cat",
    path: str = "/image/cluster/brokers/0",
    expected: str = "127.0.0.1",
) -> None:
    command = runtime.command("org.apache.kafka.shell.MetadataShell", *SMALL_JVM)
    arguments = ["--snapshot", str(file), action, path]
    for _ in range(5):  # Why: now and then the shell looks before it has published what it read
        found = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert found.returncode == 0, found.stderr
        assert "could not be represented" not in found.stdout + found.stderr
        if expected in found.stdout:
            break
    assert expected in found.stdout
