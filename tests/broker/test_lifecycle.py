"""How a broker joins and leaves, with a controller that is a script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import lifecycle as module
from barnabas.broker.lifecycle import Advertised, BrokerState, Lifecycle
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatResponse
from barnabas.protocol.registration_tags import Applied, applied_of, set_reason


class Controller:
    """Answers with what the test has laid out."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: list[Any] = []

    def __call__(self, *_: Any, **__: Any) -> Controller:
        return self

    def send(self, message: Any, version: int) -> Any:
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
def room(controller):
    told: list[Any] = []
    cordoned: list[bytes] = []
    cache, clock = MetadataCache(), FakeClock()
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
        on_registered=told.append,
        on_refused=told.append,
        offline_log_dirs=list,
        cordoned_log_dirs=lambda: cordoned,
        connect=controller,
    )
    return SimpleNamespace(life=life, cache=cache, clock=clock, told=told, cordoned=cordoned)


def test_a_broker_registers_catches_up_and_runs(room, controller):
    controller.answers = [registered(5), beat(is_fenced=True), beat()]
    assert room.life._step() == 0
    request = controller.asked[0]
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.cluster_id, request.rack, request.listeners[0].port) == ("c", "r", 9092)
    assert (room.life.epoch, room.life.state, room.told) == (5, BrokerState.RECOVERY, [5])
    assert room.life._step() == 2000
    room.cache.note_offset(7)
    assert room.life._step() == 2000
    assert (controller.asked[2].broker_epoch, controller.asked[2].current_metadata_offset) == (5, 7)
    assert (room.life.state, room.life.is_fenced) == (BrokerState.RUNNING, False)


def test_a_push_that_came_meanwhile_makes_it_ask_again_at_once(room, controller):
    controller.answers = [registered(5), beat(is_fenced=True)]
    room.life._step()
    controller.send = lambda message, version: (room.cache.note_offset(9), beat(is_fenced=True))[1]
    assert room.life._step() == 0


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_broker_that_was_forgotten_registers_again_as_the_same(room, controller, error):
    controller.answers = [registered(5), beat(error_code=error), registered(8)]
    for _ in range(3):
        room.life._step()
    assert room.life.epoch == 8
    assert controller.asked[0].incarnation_id == controller.asked[2].incarnation_id


def test_a_push_that_overtakes_the_answer_to_a_registration_counts_for_it(room, controller):
    controller.answers = [registered(5), beat(error_code=ErrorCode.STALE_BROKER_EPOCH)]
    room.life._step()
    room.cache.note_features({"transaction.version": 1})
    room.cache.note_offset(6)
    room.life._step()
    assert room.cache.offset == -1, "what was told before counts no more"
    assert room.cache.finalized_features.levels == {"transaction.version": 1}, "a broker that is refused goes on"

    def pushes_first(message, version):
        room.cache.note_features({"transaction.version": 2})
        room.cache.note_offset(8)
        return answers.pop(0)

    answers = [NodeConnectionError("the answer is lost"), registered(8)]
    controller.send = lambda *request: raised(pushes_first(*request))
    for _ in range(2):
        room.life._step()
    assert (room.life.epoch, room.cache.offset) == (8, 8)
    assert room.cache.finalized_features.levels == {"transaction.version": 2}


def raised(answer):
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_a_heartbeat_says_how_far_the_broker_has_come(room, controller):
    controller.answers = [registered(5), beat()]
    room.life._step()
    room.cache.note_offset(77)
    room.life._step()
    assert applied_of(controller.asked[1]) == (77, 3)


def test_a_refusal_is_final_or_tried_again(room, controller):
    controller.answers = [
        BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
    ]
    room.life._step()
    assert room.told == []
    room.life._step()
    assert "INCONSISTENT_CLUSTER_ID" in room.told[0]
    assert "controller recover" not in room.told[0], "it never was in a cluster"


def test_a_broker_that_was_in_a_cluster_is_told_how_to_go_on_when_it_meets_another(room, controller):
    room.cache.note_offset(77)
    controller.answers = [BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)]
    room.life._step()
    assert "barnabas controller recover FILE --from-brokers" in room.told[0]


def refusal(error, reason=""):
    response = BrokerRegistrationResponse(error_code=error)
    set_reason(response, reason)
    return response


def test_a_registration_says_how_far_the_broker_has_come(room, controller):
    room.cache.note_offset(77)
    controller.answers = [registered(5)]
    room.life._step()
    assert applied_of(controller.asked[0]) == Applied(77, 3)


def test_a_broker_that_was_replaced_ends(room, controller):
    duplicate = refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "broker 2 advertises h:9092 already")
    controller.answers = [registered(5), beat(), beat(error_code=ErrorCode.STALE_BROKER_EPOCH), duplicate]
    for _ in range(4):
        room.life._step()
    assert room.told[1:] == ["another process has taken the place of this broker: broker 2 advertises h:9092 already"]


def test_a_broker_that_starts_waits_for_its_id_and_gives_up_in_the_end(room, controller, caplog):
    controller.answers = [refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "somebody has that id")] * 600
    for _ in range(599):
        room.life._step()
        room.clock.advance_ms(100)
    assert room.told == []
    assert caplog.text.count("somebody has that id") == 1, "it is said once"
    room.clock.advance_ms(100)
    room.life._step()
    assert room.told == ["the controller refuses this broker since 60000 ms: somebody has that id"]


@pytest.mark.parametrize("error", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.INCONSISTENT_CLUSTER_ID])
def test_a_controller_that_lost_its_log_is_not_obeyed_and_ends_nobody(room, controller, caplog, error):
    controller.answers = [registered(5), beat(), beat(error_code=ErrorCode.STALE_BROKER_EPOCH)]
    controller.answers += [refusal(error, "the log ends at 3")] * 100 + [registered(8)]
    for _ in range(3):
        room.life._step()
    for _ in range(100):
        room.clock.advance_ms(room.life._step())
    assert room.told == [5]
    assert room.life.state is BrokerState.RUNNING
    assert caplog.text.count("the log ends at 3. This broker keeps all its data and obeys nothing") == 2, "1 a minute"
    assert "barnabas controller recover" in caplog.text
    room.life._step()
    assert room.life.epoch == 8


def test_heartbeats_tell_of_cordoned_directories_and_a_change_wakes_them(room, controller):
    controller.answers = [registered(5), beat(), beat(), beat()]
    room.life._step()
    room.life._step()
    assert controller.asked[-1].cordoned_log_dirs == []
    room.life.tell_of_cordoned_directories()
    assert not room.life._is_woken, "the controller knows"
    room.cordoned.append(bytes(16))
    room.life.tell_of_cordoned_directories()
    assert room.life._is_woken
    room.life._step()
    assert controller.asked[-1].cordoned_log_dirs == [bytes(16)]


def test_a_shutdown_waits_for_the_controllers_consent(room, controller):
    controller.answers = [registered(5), beat(), beat(), beat(should_shut_down=True)]
    room.life._step()
    room.life._step()
    room.life.begin_controlled_shutdown()
    room.life._step()
    assert (controller.asked[2].want_shut_down, room.life.state) == (True, BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    room.life._step()
    assert room.life.state == BrokerState.SHUTTING_DOWN


def test_a_shutdown_goes_on_without_a_controller(room, controller):
    controller.answers = [registered(5), NodeConnectionError("gone"), NodeConnectionError("gone")]
    room.life._step()
    room.life.begin_controlled_shutdown()
    room.life._step()
    assert room.life.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN
    room.clock.advance_ms(module.CONTROLLER_GONE_MS)
    room.life._step()
    assert room.life.state == BrokerState.SHUTTING_DOWN


def test_one_that_never_joined_leaves_at_once(room):
    room.life.begin_controlled_shutdown()
    assert room.life.state == BrokerState.SHUTTING_DOWN


def test_a_failed_directory_is_told_at_once(room, controller):
    offline: list[bytes] = []
    room.life._offline_log_dirs = lambda: offline
    controller.answers = [registered(5), beat(), beat()]
    room.life._step()
    room.life._step()
    offline.append(b"d" * 16)
    room.life.tell_of_failed_directory(b"d" * 16)
    assert room.life._is_woken
    room.life._step()
    assert [list(beat.offline_log_dirs) for beat in controller.asked[1:]] == [[], [b"d" * 16]]
    room.clock.advance_ms(30_000)
    controller.answers = [beat()]
    room.life._step()
    assert room.told == [5], "it knows"


def test_a_failure_that_cannot_be_told_ends_the_broker(room, controller):
    controller.answers = [registered(5), NodeConnectionError("gone"), NodeConnectionError("gone")]
    room.life._step()
    room.life.tell_of_failed_directory(b"d" * 16)
    room.life._step()
    assert room.told == [5]
    room.clock.advance_ms(30_000)
    room.life._step()
    assert "could not be told" in room.told[1]


def test_a_failed_directory_is_not_registered(room, controller):
    room.life._offline_log_dirs = lambda: [bytes(16)]
    controller.answers = [registered(5)]
    room.life._step()
    assert controller.asked[0].log_dirs == []
