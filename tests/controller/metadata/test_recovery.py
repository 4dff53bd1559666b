"""Rebuilding the metadata log (`metadata/recovery.py`, `controller/recover.py`): no acknowledged record is lost."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.connection import NodeConnection
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import FileSystem
from barnabas.common.recovery_report import ConfigValue, LogState, PartitionState, Report, ReportedImage
from barnabas.config.config import Config
from barnabas.controller import recover
from barnabas.controller.image import NO_LEADER, ConfigKey, Partition
from barnabas.controller.metadata.metadata_directory import DirectoryError, MetadataDirectory
from barnabas.controller.metadata.opened_log import open_log
from barnabas.controller.metadata.recovery import RecoveryError, rebuild
from barnabas.controller.raft.client.driver import RaftDriver
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.errors import ApiError
from barnabas.protocol.metadata_records import encode_record
from barnabas.security.image import quota_record
from barnabas.security.values import QuotaEntity
from tests.controller.decisions.test_registration import register, with_applied
from tests.controller.rig import CLUSTER_ID, DIRECTORY, Rig, make_config

ID, OTHER_ID = "0a" * 16, "0b" * 16
FEATURES = {"metadata.version": 25, "group.version": 1}


def reported(
    offset: int = 50, *, isr: tuple[int, ...] = (0, 1), epochs: tuple[int, int] = (4, 9), **more: Any
) -> ReportedImage:
    state = PartitionState(0, *epochs, [0, 1], list(isr))
    return ReportedImage(**{"offset": offset, "features": FEATURES, "topics": {"t": (ID, [state])}, **more})


def log(epoch: int, end: int, topic_id: str | None = ID, **leads: Any) -> LogState:
    return LogState("t", 0, topic_id, epoch, end, **leads)


def report(broker_id: int, *logs: LogState, newest: ReportedImage | None = None, **more: Any) -> Report:
    values = {"controller_epoch": 3, "metadata_offset": 50, "broker_epoch": 20, **more}
    return Report(broker_id, CLUSTER_ID, image=newest, logs=list(logs), **values)


def partition(reports: list[Report]) -> Partition:
    topic = rebuild(reports).image.topic("t")
    assert topic is not None
    return topic.partitions[0]


@pytest.mark.parametrize(
    ("logs", "isr"),
    [
        ([log(4, 100), log(4, 100)], (0, 1)),
        ([log(4, 100), log(4, 99)], (0,)),
        ([log(4, 999), log(5, 10)], (1,)),
        ([log(4, 100, leads_epoch=4, isr=[0, 1]), log(4, 90)], (0, 1)),
        ([log(4, 100, leads_epoch=4, isr=[0]), log(4, 130)], (0,)),
        ([log(4, 100, leads_epoch=6, isr=[0]), log(5, 130, leads_epoch=5, isr=[0, 1])], (0,)),
        ([log(4, 100, leads_epoch=4, isr=[0, 1]), log(5, 90)], (1,)),
        ([log(-1, 0), log(-1, 0)], (0, 1)),
        ([log(4, 1, topic_id=None), log(4, 0)], (0,)),
    ],
    ids=[
        "equal logs",
        "the shorter one is out",
        "a higher epoch counts more than a longer log",
        "a leader knows who is in sync",
        "what a follower has more was reported later",
        "the newest leader",
        "a leader that was replaced",
        "empty logs",
        "a log whose partition.metadata was lost",
    ],
)
def test_the_replicas_in_sync(logs: list[LogState], isr: tuple[int, ...]) -> None:
    found = partition([report(index, each, newest=reported()) for index, each in enumerate(logs)])
    assert (found.isr, found.leader, found.replicas) == (isr, NO_LEADER, (0, 1))
    assert found.leader_epoch > max(4, *(each.epoch for each in logs), *(each.leads_epoch for each in logs))
    assert found.partition_epoch == 10


def test_security_metadata_is_rebuilt() -> None:
    quota = quota_record(QuotaEntity.of({"user": "alice"}), "producer_byte_rate", 1024.0)
    image = reported(security=[encode_record(quota).hex()], withheld=["alice"])
    rebuilt = rebuild([report(0, log(4, 1), newest=image), report(1, log(4, 1))])
    assert list(rebuilt.image.security.records()) == [quota]
    assert "the SCRAM credentials of alice are secret: set them again" in rebuilt.notes


@pytest.mark.parametrize("text", ["no hex", "ff"])
def test_unreadable_security_metadata_is_an_error(text: str) -> None:
    with pytest.raises(RecoveryError, match="security metadata that cannot be read"):
        rebuild([report(0, log(4, 1), newest=reported(security=[text])), report(1, log(4, 1))])


def test_the_newest_image_and_the_newest_state_count() -> None:
    old = reported(30, epochs=(2, 3), configs=[ConfigValue(2, "t", "retention.ms", "1")])
    new = reported(50, configs=[ConfigValue(2, "t", "retention.ms", "7"), ConfigValue(2, "gone", "retention.ms", "1")])
    rebuilt = rebuild([report(0, log(4, 1), newest=old), report(1, log(4, 1), newest=new)])
    assert rebuilt.image.configs == {ConfigKey(2, "t"): {"retention.ms": "7"}}
    assert rebuilt.image.features == FEATURES
    assert rebuilt.notes == []
    assert rebuilt.image.brokers == {}


def test_offsets_epochs_and_producer_ids_continue_above_all_known_ones() -> None:
    reports = [report(0, log(4, 1), newest=reported(), metadata_offset=70, controller_epoch=8)]
    reports.append(report(1, log(4, 1), highest_producer_id=12_345, broker_epoch=500))
    rebuilt = rebuild(reports)
    assert rebuilt.image.offset > 500
    assert rebuilt.epoch > 8
    assert rebuilt.image.next_producer_id > 12_345 + 10**9
    assert rebuilt.image.next_producer_id % 1000 == 0


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ([report(0, log(4, 1), newest=reported())], "broker 1 holds a replica of t-0 and sent no report"),
        ([report(0), report(1, log(4, 1))], "none of these brokers has any metadata"),
        ([report(0), report(0)], "two of the addresses belong to broker 0"),
        ([report(0), Report(1, "other")], "belong to different clusters"),
        (
            [report(0, log(4, 1), newest=reported(30)), report(1, log(4, 1, OTHER_ID))],
            f"disagree about the id of topic t: {OTHER_ID}",
        ),
        (
            [report(0, log(4, 1), newest=reported(), highest_producer_id=2**63 - 1), report(1, log(4, 1))],
            f"a broker reports producer id {2**63 - 1}",
        ),
    ],
)
def test_missing_facts_are_refused(reports: list[Report], message: str) -> None:
    with pytest.raises(RecoveryError, match=message):
        rebuild(reports)


def test_notes_for_the_operator() -> None:
    secret = ConfigValue(4, "", "ssl.keystore.key", None)
    rebuilt = rebuild([report(0, newest=reported(configs=[secret])), report(1)])
    assert rebuilt.notes == [
        "no replica of t-0 has a log: it begins empty",
        "ssl.keystore.key of all brokers is secret: set it again",
    ]
    stray = LogState("u", 0, OTHER_ID, 4, 10)
    assert "are left alone" in rebuild([report(0, log(4, 1), stray, newest=reported()), report(1, log(4, 1))]).notes[0]


def test_records_that_moved_to_other_brokers_after_the_image_are_kept() -> None:
    reports = [
        report(0, newest=reported(50)),
        report(1),
        report(2, log(5, 100, leads_epoch=5, isr=[2]), metadata_offset=51),
    ]
    assert (partition(reports).replicas, partition(reports).isr) == ((0, 1, 2), (2,))
    up_to_date = [report(0, log(4, 9), newest=reported(50)), report(1, log(4, 9)), report(2, log(4, 9))]
    assert partition(up_to_date).replicas == (0, 1), "what is left of an older reassignment"


def test_a_note_reports_that_the_logs_of_all_in_sync_replicas_are_gone() -> None:
    newest = reported(isr=(0,))
    assert (
        "no replica of t-0 that was in sync has its log"
        in rebuild([report(0, newest=newest), report(1, log(4, 90))]).notes[0]
    )
    assert rebuild([report(0, log(4, 100), newest=newest), report(1)]).notes == []


def test_a_topic_that_is_newer_than_the_image_is_rebuilt_from_its_logs() -> None:
    made = LogState("u", 0, OTHER_ID, 0, 10)
    rebuilt = rebuild([report(0, log(4, 1), made, newest=reported(30)), report(1, log(4, 1), made)])
    topic = rebuilt.image.topic("u")
    assert topic is not None
    assert (topic.id, topic.partitions[0].isr) == (bytes.fromhex(OTHER_ID), (0, 1))
    assert any("topic u is known only by its logs" in note for note in rebuilt.notes)
    with pytest.raises(RecoveryError, match="no broker knows partition u-0"):
        rebuild([report(0, log(4, 1), made._replace(partition=1), newest=reported(30)), report(1, log(4, 1))])


# -- the directory


def rebuilt_on(fs: FileSystem, config: Config | None = None, **features: int) -> None:
    known = {**FEATURES, **{name.replace("_", "."): level for name, level in features.items()}}
    reports = [report(index, log(4, 1), newest=reported(features=known)) for index in (0, 1)]
    recover.write(config or make_config(), rebuild(reports), FakeClock(), fs)


@pytest.mark.parametrize(
    ("settings", "features"),
    [
        ({"controller_quorum_bootstrap_servers": "a:1,b:1"}, {}),
        ({"controller_quorum_bootstrap_servers": "a:1"}, {"kraft_version": 1}),
        ({"controller_quorum_voters": "100@a:1,101@b:1"}, {"kraft_version": 1}),
    ],
)
def test_a_quorum_that_had_its_voters_in_the_lost_log_goes_on_with_one(
    settings: dict[str, str], features: dict[str, int]
) -> None:
    """Without a voter, the controllers would wait for a leader for ever; one alone could add nobody."""
    fs = MemoryFileSystem()
    config = make_config(**settings)
    rebuilt_on(fs, config, **features)
    for _ in range(2):
        directory = MetadataDirectory.open(fs, DIRECTORY, 100, CLUSTER_ID)
        opened = open_log(config, directory, NodeConnection, FakeClock(), fs)
        assert isinstance(opened.log, RaftDriver)
        opened.log.begin()
        while opened.log.step():
            if not opened.log._effects:
                break
        status = opened.log.status()
        assert [member.key for member in status.voters] == [ReplicaKey(100, directory.directory_id)]
        assert (status.role, status.kraft_version, status.high_watermark) == ("leader", 1, status.end_offset)
        opened.log.shutdown(0)
        directory.close()


def test_the_kraft_version_is_no_feature_of_the_rebuilt_metadata() -> None:
    known = reported(features={**FEATURES, "kraft.version": 1})
    assert rebuild([report(0, log(4, 1), newest=known), report(1, log(4, 1))]).image.features == FEATURES


def test_a_controller_starts_with_the_rebuilt_log_and_brokers_register() -> None:
    fs = MemoryFileSystem()
    Rig(fs).controller.stop()  # a start on the wiped disk
    rebuilt_on(fs)
    assert any("before-recovery" in entry.name for entry in fs.listdir(DIRECTORY))
    MetadataDirectory.open(fs, DIRECTORY, 100, CLUSTER_ID).close()
    rig = Rig(fs)
    for broker_id in (0, 1):
        assert register(rig, with_applied(broker_id, 50, 3)) > 50
        rig.heartbeat(broker_id)
    assert (rig.partition("t").leader, rig.partition("t").isr) == (0, (0, 1))
    rig.create("u", [[0, 1]])
    again = rig.restart()
    assert set(again.image.topic_ids) == {"t", "u"}
    register(again, with_applied(0, rig.image.offset, rig.controller.epoch))


def test_a_log_with_content_is_not_touched() -> None:
    fs = MemoryFileSystem()
    rig = Rig(fs)
    rig.join(0)
    rig.controller.stop()
    with pytest.raises(DirectoryError, match="holds the metadata of 0 topics and 1 brokers"):
        rebuilt_on(fs)
    assert set(Rig(fs).image.brokers) == {0}


def test_after_a_crash_at_any_point_the_command_can_be_repeated() -> None:
    for fail_at in range(1, 40):
        disk = MemoryFileSystem()
        Rig(disk).controller.stop()
        faulty = FaultyFileSystem(disk)
        faulty.fail_at = fail_at
        try:
            rebuilt_on(faulty)
        except (OSError, ApiError):
            image = Rig(disk.kill()).image
            assert set(image.topic_ids) in (set(), {"t"}), "all of it or nothing"
            if not image.topics:
                rebuilt_on(disk)
        assert set(Rig(disk).image.topic_ids) == {"t"}
