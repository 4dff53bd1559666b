"""RecoveryReporter: a report has all logs of the broker or there is none, and no invented producer id.

Also covers `apis/k59_fetch_snapshot.py`.
"""

from __future__ import annotations

import pytest

from barnabas.broker.metadata.recovery_reporter import RecoveryReporter, tls_set_before
from barnabas.broker.metadata.security_cache import SecurityCache
from barnabas.broker.storage.directories.names import METADATA_COPY_FILE
from barnabas.common.recovery_report import NOTHING, Report, encode_report
from barnabas.controller.metadata.recovery import RecoveryError, _security_records
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from barnabas.protocol.push_tags import FULL
from barnabas.security.image import quota_record
from barnabas.security.values import QuotaEntity
from tests.support.broker.broker_rig import (
    BROKER_EPOCH,
    BROKER_ID,
    CLUSTER_ID,
    PUSH_OFFSET,
    BrokerRig,
    batch,
    produce,
    state,
)


def reporter_of(rig: BrokerRig) -> RecoveryReporter:
    return RecoveryReporter(
        broker_id=BROKER_ID,
        cluster_id=CLUSTER_ID,
        broker_epoch=lambda: BROKER_EPOCH,
        fs=rig.fs,
        log_manager=rig.log_manager,
        replica_manager=rig.manager,
        metadata_cache=rig.cache,
        dynamic_config=rig.dynamic_config,
        producer_ids=rig.producer_ids,
        push_state=rig.push_state,
        security=rig.security,
    )


USER = UserScramCredentialRecord(
    name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
)
QUOTA = quota_record(QuotaEntity.of({"user": "alice"}), "producer_byte_rate", 1024.0)


def security_of(report: Report) -> list[MetadataRecord]:
    assert report.image is not None
    return [decode_record(bytes.fromhex(text)) for text in report.image.security]


def test_credentials_are_for_authenticated_requesters_only() -> None:
    rig = BrokerRig()
    rig.answer(rig.update_metadata({}, registrations=[USER, QUOTA], type_=FULL), 8)  # type: ignore[list-item]
    reporter = reporter_of(rig)
    report = reporter.report()
    assert security_of(report) == [QUOTA]
    assert report.image is not None
    assert report.image.withheld == ["alice"]
    assert security_of(reporter.report(with_credentials=True)) == [USER, QUOTA]


def test_the_copy_on_disk_has_the_security_metadata() -> None:
    rig = BrokerRig()
    rig.answer(rig.update_metadata({}, type_=FULL), 8)
    reporter = reporter_of(rig)
    reporter.write_copy()
    rig.security.apply([USER, QUOTA], PUSH_OFFSET, is_full=False)
    reporter.write_copy()
    rig.cache.image_offset = NOTHING  # as in a new process, before the first push
    rig.security = SecurityCache()
    later = reporter_of(rig)
    assert list(rig.security.image.records()) == [USER]
    assert security_of(later.report(with_credentials=True)) == [USER, QUOTA]
    assert security_of(later.report()) == [QUOTA]


@pytest.mark.parametrize("text", ["no hex", "01ff7f00"])
def test_a_copy_with_records_of_a_newer_release_ends_no_start(text: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = BrokerRig()
    rig.answer(rig.update_metadata({}, type_=FULL), 8)
    report = reporter_of(rig).report()
    assert report.image is not None
    report.image.security = [encode_record(USER).hex(), text]
    for directory in rig.log_manager.online_directories():
        rig.fs.atomic_write(f"{directory.path}/{METADATA_COPY_FILE}", encode_report(report))
    rig.security = SecurityCache()
    rig.cache.image_offset = NOTHING  # as in a new process, before the first push
    reporter = reporter_of(rig)
    assert list(rig.security.image.records()) == []
    assert "the users of the metadata copy are not used" in caplog.text
    anonymous, authenticated = reporter.report().image, reporter.report(with_credentials=True).image
    assert anonymous is not None
    assert authenticated is not None
    assert (anonymous.security, anonymous.withheld) == ([""], ["alice"]), "what cannot be read may be a credential"
    assert authenticated.security == [encode_record(USER).hex(), text]
    for image in (anonymous, authenticated):
        with pytest.raises(RecoveryError, match="reports security metadata that cannot be read"):
            _security_records(image, [])


def test_a_producer_id_that_was_never_allocated_is_not_reported() -> None:
    rig = BrokerRig()
    rig.push({"t": [state(1)]})
    for producer_id in (7, 2**63 - 1):
        data = batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
        answer = rig.answer(produce(data), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert reporter_of(rig).report().highest_producer_id == 7


def test_there_is_no_report_while_a_log_directory_is_offline() -> None:
    rig = BrokerRig(log_dirs="/a,/b")
    rig.push({"t": [state(1), state(1)]})
    reporter = reporter_of(rig)
    assert sorted((log.topic, log.partition, log.isr) for log in reporter.report().logs) == [
        ("t", 0, [1]),
        ("t", 1, [1]),
    ]
    failed = rig.log_manager.directories[0]
    rig.log_manager.fail_directory(failed, OSError("it broke"))
    rig.log_manager.forget_directory(failed)
    with pytest.raises(ApiError) as refusal:
        reporter.report()
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_the_copy_tells_what_of_tls_was_set_at_run_time() -> None:
    rig = BrokerRig()
    rig.answer(rig.update_metadata({}, type_=FULL), 8)
    own, other, location = str(BROKER_ID), str(BROKER_ID + 1), "listener.name.out.ssl.keystore.location"
    found = [
        (4, "", location, "/all.pem"),
        (4, own, location, "/own.pem"),
        (4, other, location, "/other.pem"),
        (4, "", "ssl.truststore.location", "/trust.pem"),
        (4, own, "ssl.keystore.password", "secret"),
        (4, own, "num.io.threads", "3"),
        (2, own, "ssl.keystore.type", "PEM"),
    ]
    records = [
        ConfigRecord(resource_type=type_, resource_name=name, name=key, value=text) for type_, name, key, text in found
    ]
    rig.dynamic_config.apply_records(records, is_full=True)

    def known(cluster_id: str | None) -> dict[str, str]:
        return tls_set_before(rig.fs, rig.log_manager, cluster_id, BROKER_ID)

    assert known(CLUSTER_ID) == {}
    reporter_of(rig).write_copy()
    assert known(CLUSTER_ID) == {location: "/own.pem", "ssl.truststore.location": "/trust.pem"}
    assert known("another") == known(None) == {}
