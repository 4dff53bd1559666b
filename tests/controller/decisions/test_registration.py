"""Registrations: brokers that have applied other metadata, or use another broker's id or address, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.metadata.features import SUPPORTED_FEATURES
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.controller.broker_registry import BrokerState
from barnabas.controller.decision import Decision
from barnabas.controller.decisions.features import update_features
from barnabas.controller.decisions.registration import (
    FEATURES_MAX,
    LISTENERS_MAX,
    register_controller,
    unregister_broker,
)
from barnabas.controller.image import Endpoint, Image, PartitionKey
from barnabas.controller.image_editor import ImageEditor
from barnabas.controller.metadata.snapshot import image_records
from barnabas.metrics.table import catalogue as rows
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k57_update_features as features_wire
from barnabas.protocol.messages import k70_controller_registration as controller_wire
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Listener
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.metadata_records import FeatureLevelRecord, PartitionRecord
from barnabas.protocol.push_tags import TAG_OBEYED_OFFSET, Applied, records_of, set_applied
from tests.controller.fake_quorum import QuorumRig
from tests.controller.rig import Rig, registration
from tests.controller.test_broker_registry import SESSION_MS, refused


def register(rig: Rig, request: BrokerRegistrationRequest) -> int:
    epoch: int = rig.decide(lambda view: rig.controller.register(view, request))
    return epoch


def at(port: int, host: str = "127.0.0.1") -> dict[str, Any]:
    return {"listeners": [Listener(name="PLAINTEXT", host=host, port=port, security_protocol=0)]}


def with_applied(broker_id: int, offset: int, epoch: int = -1, **more: Any) -> BrokerRegistrationRequest:
    request = registration(broker_id, **more)
    set_applied(request, Applied(offset, epoch))
    return request


# -- addresses


def test_two_brokers_that_are_alive_cannot_have_one_address() -> None:
    rig = Rig()
    rig.join(0)
    for broker_id in (1, 2):
        request = registration(broker_id, **at(9000))
        message = refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda r=request: register(rig, r))
        assert message.startswith("broker 0 advertises 127.0.0.1:9000 already; give broker")
    assert set(rig.image.brokers) == {0}


def test_any_listener_counts_and_names_are_compared_as_dns_does() -> None:
    rig = Rig()
    listeners = [
        Listener(name="PLAINTEXT", host="a", port=1, security_protocol=0),
        Listener(name="INSIDE", host="Host", port=7, security_protocol=0),
    ]
    register(rig, registration(0, listeners=listeners))
    refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: register(rig, registration(1, **at(7, "hOST"))))
    register(rig, registration(1, **at(8, "host")))


def test_a_fenced_broker_that_starts_keeps_its_address() -> None:
    rig = Rig()
    rig.register(0)
    refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: register(rig, registration(1, **at(9000))))


def test_the_address_of_a_silent_broker_passes_to_another() -> None:
    rig = Rig()
    rig.join(0, 1, 2)
    rig.create("t", [[0, 1, 2]])
    rig.tick(SESSION_MS - 1)
    rig.heartbeat(1)
    rig.heartbeat(2)
    rig.tick(2)
    assert rig.image.brokers[0].is_fenced
    register(rig, registration(3, **at(9000)))
    assert set(rig.image.brokers) == {1, 2, 3}, "the sender for 0 would push to 3"
    assert 0 in rig.partition("t").replicas
    refused(ErrorCode.STALE_BROKER_EPOCH, lambda: rig.heartbeat(0, epoch=1))
    register(rig, registration(0, incarnation=1, **at(9100)))
    rig.heartbeat(0)


def test_a_broker_after_a_controlled_shutdown_frees_its_address_at_once() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.heartbeat(0, want_shut_down=True)
    assert rig.image.brokers[0].is_fenced
    register(rig, registration(4, **at(9000)))


# -- ids


def test_another_process_does_not_get_the_id_of_a_fenced_one_that_is_heard_of() -> None:
    rig = Rig()
    epoch = rig.register(0)
    rig.heartbeat(0, want_fence=True)
    refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: rig.register(0, incarnation=1))
    assert rig.register(0) == epoch, "the same process may register again"
    assert rig.heartbeat(0, want_fence=True).state is BrokerState.FENCED
    rig.clock.advance_ms(SESSION_MS + 1)
    assert rig.register(0, incarnation=1) > epoch, "it is silent"


def test_a_broker_that_ends_before_its_first_heartbeat_frees_its_id_at_once() -> None:
    rig = Rig()
    epoch = rig.register(0)
    assert rig.register(0, incarnation=1) > epoch


def test_a_broker_that_ends_in_order_frees_its_id_at_once() -> None:
    rig = Rig()
    for is_unfenced in (False, True):
        rig.register(0, incarnation=1 + is_unfenced)
        if is_unfenced:
            rig.heartbeat(0)
        assert rig.heartbeat(0, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW
    rig.register(0, incarnation=3)


def test_a_new_controller_keeps_the_id_of_a_fenced_broker_once_it_hears_of_it() -> None:
    rig = Rig()
    rig.register(0)
    rig.register(1)
    again = rig.restart()
    again.register(0, incarnation=1)
    again.controller.heartbeat_arrived(1, again.image.brokers[1].epoch)
    refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: again.register(1, incarnation=1))


# -- metadata that the controller does not have


def test_a_broker_that_has_applied_more_than_the_log_holds_is_refused() -> None:
    rig = Rig()
    rig.join(0)
    endings: list[str] = []
    rig.controller._on_hopeless = endings.append
    for offset in (rig.image.offset + 1, 2**63 - 1):
        message = refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda o=offset: register(rig, with_applied(1, o)))
        assert "has applied metadata offset" in message
    register(rig, with_applied(1, rig.image.offset, rig.controller.epoch))
    assert endings == []


def test_a_heartbeat_with_more_than_an_old_log_holds_forces_a_registration() -> None:
    """The old copy has the registration. Only the applied offset of the broker shows that the log is old."""
    rig = Rig()
    rig.join(0)
    broker = rig.image.brokers[0]

    def beat(applied: Applied) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=0, broker_epoch=broker.epoch, current_metadata_offset=rig.image.offset
        )
        set_applied(request, applied)
        return rig.decide(lambda view: rig.controller.heartbeat(view, request))

    beat(Applied(rig.image.offset, rig.controller.epoch))
    for applied_there in (
        Applied(rig.image.offset + 1, rig.controller.epoch),
        Applied(broker.epoch, rig.controller.epoch + 1),
    ):
        message = refused(ErrorCode.STALE_BROKER_EPOCH, lambda t=applied_there: beat(t))
        assert "has applied metadata offset" in message
    rig = rig.restart()
    beat(Applied(rig.image.offset, rig.controller.epoch))


def test_an_empty_controller_ends_with_advice() -> None:
    rig = Rig()
    endings: list[str] = []
    rig.controller._on_hopeless = endings.append
    other = with_applied(1, 500, 1)
    other.cluster_id = "other"
    refused(ErrorCode.INCONSISTENT_CLUSTER_ID, lambda: register(rig, other))
    assert endings == []
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: register(rig, with_applied(1, 500, 1)))
    (line,) = endings
    assert "metadata log is empty, but broker 1 has applied metadata offset 500" in line
    assert "barnabas controller recover" in line
    assert "\n" not in line


def test_a_different_log_of_the_same_length_does_not_hold_the_offset() -> None:
    rig = Rig()
    applied_there = Applied(rig.image.offset + 5, 1)
    for _ in range(10):
        rig = rig.restart()
    assert rig.image.offset > applied_there.offset
    assert rig.controller.epoch > applied_there.epoch
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: register(rig, with_applied(1, *applied_there)))


def test_the_log_holds_its_offsets_across_restarts_and_snapshots() -> None:
    rig = Rig()
    rig.join(0)
    applied_there = [Applied(rig.image.offset, rig.controller.epoch)]
    for round_ in range(3):
        rig.controller._snapshot_bytes = 100
        rig.controller.loop.step()
        rig = rig.restart()
        applied_there.append(Applied(rig.image.offset, rig.controller.epoch))
        for number, applied in enumerate(applied_there, 1 + 10 * round_):
            register(rig, with_applied(number, *applied))


def test_a_tag_of_a_wrong_size_is_an_invalid_registration() -> None:
    rig = Rig()
    request = registration(1)
    request.unknown_tagged_fields = ((TAG_OBEYED_OFFSET, b"123"),)
    refused(ErrorCode.INVALID_REGISTRATION, lambda: register(rig, request))


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_broker_that_has_applied_nothing_may_register(offset: int) -> None:
    register(Rig(), with_applied(1, offset))


def controller_request(controller_id: int = 101, **fields: Any) -> controller_wire.ControllerRegistrationRequest:
    values: dict[str, Any] = {
        "controller_id": controller_id,
        "incarnation_id": b"c" * 16,
        "listeners": [controller_wire.Listener(name="CONTROLLER", host="h", port=9, security_protocol=0)],
        "features": [
            controller_wire.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
    }
    return controller_wire.ControllerRegistrationRequest(**{**values, **fields})


def test_a_controller_registers_and_brokers_learn_its_address() -> None:
    rig = Rig()
    rig.join(0)
    rig.push()
    rig.brokers[0].take()
    rig.decide(lambda view: register_controller(view, controller_request()))
    assert rig.image.controllers[101].endpoints == (Endpoint("CONTROLLER", "h", 9, 0),)
    rig.push()
    (pushed,) = rig.brokers[0].take()
    (record,) = records_of(pushed)
    assert (record.controller_id, record.incarnation_id, record.features) == (101, bytes(16), [])
    assert [(e.host, e.port) for e in record.end_points] == [("h", 9)]
    offset = rig.image.offset
    rig.decide(lambda view: register_controller(view, controller_request()))
    assert rig.image.offset == offset
    again = rig.restart()
    assert again.image.controllers == rig.image.controllers
    again.controller._snapshot_bytes = 1
    again.controller.loop.step()
    assert again.restart().image.controllers == rig.image.controllers


@pytest.mark.parametrize(
    ("fields", "level", "code"),
    [
        ({"listeners": []}, 30, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, 30, ErrorCode.UNSUPPORTED_VERSION),
        ({}, 14, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_controllers_that_are_refused(fields: dict[str, Any], level: int, code: ErrorCode) -> None:
    rig = Rig()
    old = FeatureLevelRecord(name="metadata.version", feature_level=level)
    rig.decide(lambda _view: Decision([old], None))
    with pytest.raises(ApiError) as refused:
        rig.decide(lambda view: register_controller(view, controller_request(**fields)))
    assert refused.value.code is code


@pytest.mark.parametrize(
    "listener",
    [
        {"host": "h" * 256},
        {"host": ""},
        {"name": "N" * 256},
        {"name": ""},
        {"security_protocol": 4},
        {"security_protocol": -1},
    ],
)
def test_a_listener_that_no_node_can_have_is_refused(listener: dict[str, Any]) -> None:
    """It would be in the log, in each snapshot and in the pushes to all brokers, and in the metadata of all clients."""
    rig = Rig()
    rig.join(0)
    values = {"name": "CONTROLLER", "host": "h", "port": 9, "security_protocol": 0, **listener}
    of_controller = controller_request(listeners=[controller_wire.Listener(**values)])
    refused(ErrorCode.INVALID_REGISTRATION, lambda: rig.decide(lambda view: register_controller(view, of_controller)))
    refused(ErrorCode.INVALID_REGISTRATION, lambda: register(rig, registration(1, listeners=[Listener(**values)])))
    assert (set(rig.image.brokers), set(rig.image.controllers)) == ({0}, set())


def test_a_registration_names_a_node_once_and_not_too_much() -> None:
    rig = Rig()
    one = controller_wire.Listener(name="CONTROLLER", host="h", port=9, security_protocol=0)
    feature, long_named = (
        controller_wire.Feature(name=name, min_supported_version=0, max_supported_version=1)
        for name in ("f", "f" * 256)
    )
    for fields in (
        {"controller_id": -1},
        {"listeners": [one] * (LISTENERS_MAX + 1)},
        {"features": [*controller_request().features, *[feature] * FEATURES_MAX]},
        {"features": [*controller_request().features, long_named]},
    ):
        request = controller_request(**fields)
        refused(ErrorCode.INVALID_REGISTRATION, lambda r=request: rig.decide(lambda view: register_controller(view, r)))
    of_nobody = registration(1)
    of_nobody.broker_id = -1
    for broker in (
        of_nobody,
        registration(1, rack="r" * 32_768),
        registration(1, listeners=[Listener(name="A", host="h", port=1, security_protocol=0)] * (LISTENERS_MAX + 1)),
    ):
        refused(ErrorCode.INVALID_REGISTRATION, lambda r=broker: register(rig, r))
    assert (rig.image.brokers, rig.image.controllers) == ({}, {})


def test_a_controller_must_support_a_new_feature_level() -> None:
    rig = Rig()
    request = controller_request()
    (limited,) = (feature for feature in request.features if feature.name == "group.version")
    limited.min_supported_version = 1
    rig.decide(lambda view: register_controller(view, request))
    update = features_wire.FeatureUpdateKey(feature=limited.name, max_version_level=0, upgrade_type=2)
    message = features_wire.UpdateFeaturesRequest(feature_updates=[update])
    response = rig.decide(lambda view: update_features(view, message))
    assert "Controller 101 only supports versions 1" in response.error_message


def test_the_active_controller_registers_itself() -> None:
    quorum = QuorumRig(2)
    for node_id, rig in quorum.rigs.items():
        rig.controller.registration = controller_request(node_id)
    for node_id in (101, 100):
        quorum.elect(node_id)
        assert node_id in quorum[101].image.controllers
    end = quorum[100].image.offset
    quorum.elect(101)
    assert quorum[101].image.offset == end + 1  # the control record of the election only


# -- eligible leader replicas


@pytest.fixture
def eligible() -> Rig:
    """Partition t-0 without a leader: the ELR is 0 and 1, the last leader 0."""
    rig = Rig(min_insync_replicas="2")
    rig.join(0, 1, 2)
    rig.create("t", [[0, 1, 2]])
    for broker_id in (2, 1, 0):
        rig.heartbeat(broker_id, want_fence=True, want_shut_down=True)
    return rig


def state(rig: Rig) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    p = rig.partition("t")
    return p.leader, p.isr, p.elr, p.last_known_elr


def restarted(rig: Rig, broker_id: int, previous_broker_epoch: int) -> None:
    incarnation = rig.image.offset
    register(rig, registration(broker_id, incarnation, previous_broker_epoch=previous_broker_epoch))
    rig.heartbeat(broker_id)


def test_a_broker_that_stopped_cleanly_stays_eligible(eligible: Rig) -> None:
    assert state(eligible) == (-1, (), (0, 1), (0,))
    restarted(eligible, 1, eligible.image.brokers[1].epoch)
    assert state(eligible) == (1, (1,), (0,), ())
    assert eligible.registry.meter(rows.ELECTION_FROM_ELIGIBLE_LEADER_REPLICAS_PER_SEC).count == 1
    assert eligible.registry.meter(rows.UNCLEAN_LEADER_ELECTIONS_PER_SEC).count == 0


@pytest.mark.parametrize("epoch", [-1, 0, 10_000])
def test_a_broker_that_did_not_stop_cleanly_leaves_the_elr(eligible: Rig, epoch: int) -> None:
    restarted(eligible, 1, epoch)
    assert state(eligible) == (-1, (), (0,), (0,))
    restarted(eligible, 2, eligible.image.brokers[2].epoch)
    assert state(eligible) == (-1, (), (0,), (0,)), "2 left an ISR that was large enough without it"


def test_it_leaves_an_elr_from_before_the_feature_was_disabled(eligible: Rig) -> None:
    disabled = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)
    eligible.decide(lambda _view: Decision([disabled], None))
    restarted(eligible, 1, -1)
    assert state(eligible) == (-1, (), (0,), (0,))
    restarted(eligible, 0, eligible.image.brokers[0].epoch)
    assert state(eligible) == (0, (0,), (), ())


def test_the_last_leader_leads_again_after_all_stopped_uncleanly(eligible: Rig) -> None:
    restarted(eligible, 1, -1)
    restarted(eligible, 0, -1)
    assert state(eligible) == (0, (0,), (), ())
    assert eligible.registry.meter(rows.UNCLEAN_LEADER_ELECTIONS_PER_SEC).count == 1


def test_the_only_replica_leads_again_after_an_unclean_stop(eligible: Rig) -> None:
    restarted(eligible, 1, -1)
    eligible.create("one", [[1]])
    eligible.tick(SESSION_MS + 1)
    restarted(eligible, 1, -1)
    p = eligible.partition("one")
    assert (p.leader, p.isr, p.elr, p.last_known_elr) == (1, (1,), (), ())


def test_a_broker_that_was_unregistered_is_not_eligible(eligible: Rig) -> None:
    epoch = eligible.image.brokers[1].epoch
    eligible.decide(lambda view: unregister_broker(view, 1))
    restarted(eligible, 1, epoch)
    assert state(eligible) == (-1, (), (0,), (0,))


def test_the_elr_outlives_a_restart_of_the_controller_and_a_snapshot(eligible: Rig) -> None:
    before = eligible.partition("t")
    assert eligible.restart().partition("t") == before
    editor = ImageEditor(Image())
    editor.apply_all(image_records(eligible.image), 0)
    assert editor.image().partition(PartitionKey(eligible.image.topic_ids["t"], 0)) == before


def test_brokers_learn_the_elr(eligible: Rig) -> None:
    cache = MetadataCache()
    eligible.push()
    for request in eligible.brokers[2].take():
        if isinstance(request, UpdateMetadataRequest):
            partitions = [record for record in records_of(request) if isinstance(record, PartitionRecord)]
            cache.apply_update_metadata(request, partitions=partitions)
    found = cache.snapshot.topics["t"].partitions[0]
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (-1, (), (0, 1), (0,))
