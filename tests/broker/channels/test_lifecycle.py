"""Lifecycle: registration, heartbeats and shutdown, with a scripted controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.channels import lifecycle as module
from barnabas.broker.channels.lifecycle import Advertised, BrokerState, Lifecycle
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.metadata.security_cache import SecurityCache
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatResponse
from barnabas.protocol.metadata_records import ConfigRecord, UserScramCredentialRecord
from barnabas.protocol.push_tags import (
    TAG_RECORDS,
    Applied,
    applied_of,
    set_controller_epoch,
    set_offset,
    set_reason,
    set_records,
    set_tag,
)


class Controller:
    """Answers with what the test has laid out."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: list[Any] = []

    def __call__(self, *_: Any, **__: Any) -> Controller:
        return self

    def send(self, message: Any, version: int, **_: Any) -> Any:
        if isinstance(message, DescribeClusterRequest):  # of a standby controller that knows no active one
            return DescribeClusterResponse()
        self.asked.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        pass


def registered(epoch):
    return BrokerRegistrationResponse(broker_epoch=epoch)


def beat(**about):
    return BrokerHeartbeatResponse(**{"is_fenced": False, **about})


@pytest.fixture
def controller():
    return Controller()


@pytest.fixture
def rig(controller):
    calls: list[Any] = []
    cordoned: list[bytes] = []
    heard: list[Applied] = []
    cache, clock, security = MetadataCache(), FakeClock(), SecurityCache()
    life = Lifecycle(
        broker_id=1,
        cluster_id="c",
        addresses=[("c1", 1), ("c2", 2)],
        advertised=Advertised([("PLAINTEXT", "h", 9092, "PLAINTEXT")], [bytes(16)], "r"),
        config=SimpleNamespace(
            broker_heartbeat_interval_ms=2000,
            broker_session_timeout_ms=9000,
            log_dir_failure_timeout_ms=30_000,
            initial_broker_registration_timeout_ms=60_000,
        ),
        clock=clock,
        metadata_cache=cache,
        applied=lambda: Applied(cache.offset, 3),
        on_registered=calls.append,
        on_refused=calls.append,
        offline_log_dirs=list,
        cordoned_log_dirs=lambda: cordoned,
        connect=controller,
        security=security,
        on_security=heard.append,
    )
    return SimpleNamespace(
        life=life, cache=cache, clock=clock, calls=calls, cordoned=cordoned, security=security, heard=heard
    )


def test_a_broker_registers_catches_up_and_runs(rig, controller):
    controller.answers = [registered(5), beat(is_fenced=True), beat()]
    assert rig.life._step() == 0
    request = controller.asked[0]
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.cluster_id, request.rack, request.listeners[0].port) == ("c", "r", 9092)
    assert (rig.life.epoch, rig.life.state, rig.calls) == (5, BrokerState.RECOVERY, [5])
    assert rig.life._step() == 2000
    rig.cache.note_offset(7)
    assert rig.life._step() == 2000
    assert (controller.asked[2].broker_epoch, controller.asked[2].current_metadata_offset) == (5, 7)
    assert (rig.life.state, rig.life.is_fenced) == (BrokerState.RUNNING, False)


def test_the_registration_brings_the_security_metadata(rig, controller):
    response = registered(5)
    record = UserScramCredentialRecord(
        name="controller", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    config = ConfigRecord(resource_type=4, resource_name="1", name="ssl.client.auth", value="required")
    set_records(response, [config, record])
    set_offset(response, 7)
    controller.answers = [response]
    set_controller_epoch(response, 3)
    was_loaded: list[bool] = []
    rig.life._on_configs = lambda records: was_loaded.append(rig.security.is_loaded or records != [config])
    rig.life._step()
    assert was_loaded == [False], "nodes are admitted once the security metadata is there: by these settings"
    assert list(rig.security.image.records()) == [record]
    assert rig.heard == [Applied(7, 3)]


def test_unreadable_security_metadata_does_not_end_the_registration(rig, controller):
    response = registered(5)
    set_tag(response, TAG_RECORDS, b"\xff")
    set_offset(response, 7)
    controller.answers = [response]
    rig.life._step()
    assert (rig.life.epoch, rig.security.is_loaded) == (5, False)


def test_a_config_that_cannot_be_applied_does_not_end_the_registration(rig, controller):
    def apply(_records):
        raise RuntimeError("a listener of configs failed")

    rig.life._on_configs = apply
    response = registered(5)
    set_records(response, [])
    set_offset(response, 7)
    set_controller_epoch(response, 3)
    controller.answers = [response]
    rig.life._step()
    assert (rig.life.epoch, rig.security.is_loaded) == (5, False), "no node is admitted by older settings"


def test_a_push_during_a_heartbeat_causes_another_heartbeat_at_once(rig, controller):
    controller.answers = [registered(5), beat(is_fenced=True)]
    rig.life._step()
    controller.send = lambda message, version, **_: (rig.cache.note_offset(9), beat(is_fenced=True))[1]
    assert rig.life._step() == 0


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_broker_whose_registration_is_gone_registers_the_same_incarnation_again(rig, controller, error):
    controller.answers = [registered(5), beat(error_code=error), registered(8)]
    for _ in range(3):
        rig.life._step()
    assert rig.life.epoch == 8
    assert controller.asked[0].incarnation_id == controller.asked[2].incarnation_id


def test_a_push_that_overtakes_the_registration_response_counts(rig, controller):
    controller.answers = [registered(5), beat(error_code=ErrorCode.STALE_BROKER_EPOCH)]
    rig.life._step()
    rig.cache.note_features({"transaction.version": 1})
    rig.cache.note_offset(6)
    rig.life._step()
    assert rig.cache.offset == -1, "earlier pushes no longer count"
    assert rig.cache.finalized_features.levels == {"transaction.version": 1}, "a broker that is refused goes on"

    def pushes_first(message, version):
        rig.cache.note_features({"transaction.version": 2})
        rig.cache.note_offset(8)
        return answers.pop(0)

    answers = [NodeConnectionError("the answer is lost"), registered(8)]
    controller.send = lambda *request, **_: raised(pushes_first(*request))
    for _ in range(2):
        rig.life._step()
    assert (rig.life.epoch, rig.cache.offset) == (8, 8)
    assert rig.cache.finalized_features.levels == {"transaction.version": 2}


def raised(answer):
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_a_heartbeat_reports_the_obeyed_offset_and_epoch(rig, controller):
    controller.answers = [registered(5), beat()]
    rig.life._step()
    rig.cache.note_offset(77)
    rig.life._step()
    assert applied_of(controller.asked[1]) == (77, 3)


def test_a_refusal_ends_the_broker_or_is_retried(rig, controller):
    controller.answers = [
        BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
    ]
    rig.life._step()
    assert rig.calls == []
    rig.life._step()
    assert "INCONSISTENT_CLUSTER_ID" in rig.calls[0]
    assert "controller recover" not in rig.calls[0], "it never was in a cluster"


def test_a_broker_of_another_cluster_ends_with_advice(rig, controller):
    rig.cache.note_offset(77)
    controller.answers = [BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)]
    rig.life._step()
    assert "barnabas controller recover FILE --from-brokers" in rig.calls[0]


def refusal(error, reason=""):
    response = BrokerRegistrationResponse(error_code=error)
    set_reason(response, reason)
    return response


def test_a_registration_reports_the_obeyed_offset_and_epoch(rig, controller):
    rig.cache.note_offset(77)
    controller.answers = [registered(5)]
    rig.life._step()
    assert applied_of(controller.asked[0]) == Applied(77, 3)


def test_a_broker_that_was_replaced_ends(rig, controller):
    duplicate = refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "broker 2 advertises h:9092 already")
    controller.answers = [registered(5), beat(), beat(error_code=ErrorCode.STALE_BROKER_EPOCH), duplicate]
    for _ in range(4):
        rig.life._step()
    assert rig.calls[1:] == ["another process has taken the place of this broker: broker 2 advertises h:9092 already"]


def test_a_starting_broker_waits_for_its_id_and_gives_up_in_the_end(rig, controller, caplog):
    controller.answers = [refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "somebody has that id")] * 600
    for _ in range(599):
        rig.life._step()
        rig.clock.advance_ms(100)
    assert rig.calls == []
    assert caplog.text.count("somebody has that id") == 1, "it is logged once"
    rig.clock.advance_ms(100)
    rig.life._step()
    assert rig.calls == ["the controller has refused this broker for 60000 ms: somebody has that id"]


@pytest.mark.parametrize("error", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.INCONSISTENT_CLUSTER_ID])
def test_a_controller_that_lost_its_log_is_not_obeyed_and_ends_no_broker(rig, controller, caplog, error):
    controller.answers = [registered(5), beat(), beat(error_code=ErrorCode.STALE_BROKER_EPOCH)]
    controller.answers += [refusal(error, "the log ends at 3")] * 100 + [registered(8)]
    for _ in range(3):
        rig.life._step()
    for _ in range(100):
        rig.clock.advance_ms(rig.life._step())
    assert rig.calls == [5]
    assert rig.life.state is BrokerState.RUNNING
    assert caplog.text.count("the log ends at 3. This broker keeps all its data and does not obey") == 2, "1 a minute"
    assert "barnabas controller recover" in caplog.text
    rig.life._step()
    assert rig.life.epoch == 8


def test_heartbeats_report_cordoned_directories_and_a_change_triggers_one(rig, controller):
    controller.answers = [registered(5), beat(), beat(), beat()]
    rig.life._step()
    rig.life._step()
    assert controller.asked[-1].cordoned_log_dirs == []
    rig.life.report_cordoned_directories()
    assert not rig.life._is_woken, "the controller knows"
    rig.cordoned.append(bytes(16))
    rig.life.report_cordoned_directories()
    assert rig.life._is_woken
    rig.life._step()
    assert controller.asked[-1].cordoned_log_dirs == [bytes(16)]


def test_a_shutdown_waits_for_the_controllers_consent(rig, controller):
    controller.answers = [registered(5), beat(), beat(), beat(should_shut_down=True)]
    rig.life._step()
    rig.life._step()
    rig.life.begin_controlled_shutdown()
    rig.life._step()
    assert (controller.asked[2].want_shut_down, rig.life.state) == (True, BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    rig.life._step()
    assert rig.life.state == BrokerState.SHUTTING_DOWN


def test_a_shutdown_goes_on_without_a_controller(rig, controller):
    controller.answers = [registered(5), NodeConnectionError("gone"), NodeConnectionError("gone")]
    rig.life._step()
    rig.life.begin_controlled_shutdown()
    rig.life._step()
    assert rig.life.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN
    rig.clock.advance_ms(module.CONTROLLER_GONE_MS)
    rig.life._step()
    assert rig.life.state == BrokerState.SHUTTING_DOWN


def test_a_shutdown_goes_on_if_only_standby_controllers_answer(rig, controller, caplog):
    standby = beat(error_code=ErrorCode.NOT_CONTROLLER)
    controller.answers = [registered(5), standby, standby, standby]
    rig.life._step()
    rig.life.begin_controlled_shutdown()
    with caplog.at_level("INFO", logger="barnabas.lifecycle"):
        for _ in range(2):
            rig.life._step()
    assert rig.life.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert caplog.text.count("is not the active controller") == 1, "it is logged once"
    rig.clock.advance_ms(module.CONTROLLER_GONE_MS)
    rig.life._step()
    assert rig.life.state == BrokerState.SHUTTING_DOWN


def test_a_broker_that_never_registered_leaves_at_once(rig):
    rig.life.begin_controlled_shutdown()
    assert rig.life.state == BrokerState.SHUTTING_DOWN


def test_a_failed_directory_is_reported_at_once(rig, controller):
    offline: list[bytes] = []
    rig.life._offline_log_dirs = lambda: offline
    controller.answers = [registered(5), beat(), beat()]
    rig.life._step()
    rig.life._step()
    offline.append(b"d" * 16)
    rig.life.report_failed_directory(b"d" * 16)
    assert rig.life._is_woken
    rig.life._step()
    assert [list(beat.offline_log_dirs) for beat in controller.asked[1:]] == [[], [b"d" * 16]]
    rig.clock.advance_ms(30_000)
    controller.answers = [beat()]
    rig.life._step()
    assert rig.calls == [5], "the controller knows of the directory"


def test_a_failed_directory_that_cannot_be_reported_ends_the_broker(rig, controller):
    controller.answers = [registered(5), NodeConnectionError("gone"), NodeConnectionError("gone")]
    rig.life._step()
    rig.life.report_failed_directory(b"d" * 16)
    rig.life._step()
    assert rig.calls == [5]
    rig.clock.advance_ms(30_000)
    rig.life._step()
    assert "could not be reported" in rig.calls[1]


def test_a_failed_directory_is_not_registered(rig, controller):
    rig.life._offline_log_dirs = lambda: [bytes(16)]
    controller.answers = [registered(5)]
    rig.life._step()
    assert controller.asked[0].log_dirs == []


def test_the_registration_names_the_epoch_of_the_last_clean_stop(rig, controller):
    controller.answers = [registered(5), registered(6)]
    rig.life._step()
    assert controller.asked[0].previous_broker_epoch == -1
    rig.life.epoch, rig.life._previous_epoch = -1, lambda: 4
    rig.life._step()
    assert controller.asked[1].previous_broker_epoch == 4
