"""Configs: AlterConfigs, IncrementalAlterConfigs and the configs of new topics."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decision import Decision
from barnabas.controller.decisions.configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    EffectiveConfigs,
    alter_configs,
    incremental_alter_configs,
)
from barnabas.controller.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    ELR_VERSION,
    GROUP_RESOURCE,
    METADATA_VERSION,
    TOPIC_RESOURCE,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k33_alter_configs as legacy_wire
from barnabas.protocol.messages import k44_incremental_alter_configs as wire
from barnabas.protocol.metadata_records import FeatureLevelRecord
from tests.controller.rig import Rig

Outcome = tuple[ErrorCode, str | None]


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.join(0)
    rig.create("t", [[0]], retention_ms="7")
    return rig


def alter(
    rig: Rig,
    *operations: tuple[str, int, str | None],
    kind: int = TOPIC_RESOURCE,
    name: str = "t",
    validate_only: bool = False,
) -> Outcome:
    resource = wire.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[wire.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in operations],
    )
    request = wire.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = rig.decide(lambda view: incremental_alter_configs(view, request)).responses
    return ErrorCode(answer.error_code), answer.error_message


def replace(rig: Rig, configs: dict[str, str | None], kind: int = TOPIC_RESOURCE, name: str = "t") -> Outcome:
    resource = legacy_wire.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[legacy_wire.AlterableConfig(name=n, value=v) for n, v in configs.items()],
    )
    request = legacy_wire.AlterConfigsRequest(resources=[resource])
    (answer,) = rig.decide(lambda view: alter_configs(view, request)).responses
    return ErrorCode(answer.error_code), answer.error_message


def configs(rig: Rig, kind: int = TOPIC_RESOURCE, name: str = "t") -> dict[str, str]:
    return dict(rig.image.resource_configs(kind, name))


OK: Outcome = (ErrorCode.NONE, None)


def test_set_and_delete(rig: Rig) -> None:
    assert alter(rig, ("retention.ms", SET, "9"), ("segment.bytes", SET, "1048576")) == OK
    assert configs(rig) == {"retention.ms": "9", "segment.bytes": "1048576"}
    assert alter(rig, ("retention.ms", DELETE, None), ("flush.ms", DELETE, None)) == OK
    assert configs(rig) == {"segment.bytes": "1048576"}


def test_lists_grow_and_shrink_from_their_default(rig: Rig) -> None:
    assert alter(rig, ("cleanup.policy", APPEND, "compact")) == OK
    assert configs(rig)["cleanup.policy"] == "delete,compact"
    assert alter(rig, ("cleanup.policy", APPEND, "compact")) == OK
    assert alter(rig, ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert configs(rig)["cleanup.policy"] == "compact"


def test_an_unchanged_topic_entry_writes_nothing_an_unchanged_broker_entry_does(rig: Rig) -> None:
    before = rig.image
    assert alter(rig, ("retention.ms", SET, "7")) == OK
    assert rig.image is before
    for _ in range(2):
        before = rig.image
        assert alter(rig, ("log.cleaner.threads", SET, "2"), kind=BROKER_RESOURCE, name="0") == OK
        assert rig.image.offset == before.offset + 1


def test_validate_only(rig: Rig) -> None:
    before = rig.image
    assert alter(rig, ("retention.ms", SET, "9"), validate_only=True) == OK
    assert rig.image is before


def test_alter_configs_replaces_all_configs(rig: Rig) -> None:
    assert replace(rig, {"segment.bytes": "1048576"}) == OK
    assert configs(rig) == {"segment.bytes": "1048576"}
    assert replace(rig, {}) == OK
    assert configs(rig) == {}
    assert replace(rig, {"retention.ms": None})[0] is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("operations", "code", "message"),
    [
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        ([("retention.ms", SET, "abc")], ErrorCode.INVALID_CONFIG, None),
        ([("retention.ms", SET, "-2")], ErrorCode.INVALID_CONFIG, None),
        (
            [("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys : retention.ms",
        ),
        (
            [("retention.ms", 9, "1")],
            ErrorCode.INVALID_REQUEST,
            "Unknown operation for config keys : retention.ms",
        ),
    ],
)
def test_what_is_refused(
    rig: Rig, operations: list[tuple[str, int, str | None]], code: ErrorCode, message: str | None
) -> None:
    before = rig.image
    outcome = alter(rig, *operations)
    assert outcome[0] is code
    assert message is None or outcome[1] == message
    assert rig.image is before


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC_RESOURCE, "x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'x' does not exist."),
        (TOPIC_RESOURCE, "", ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (TOPIC_RESOURCE, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, None),
        (
            BROKER_RESOURCE,
            "x",
            ErrorCode.INVALID_REQUEST,
            "Unable to parse broker name as a base 10 number.",
        ),
        (BROKER_RESOURCE, "-1", ErrorCode.INVALID_REQUEST, "Invalid negative broker ID."),
        (BROKER_RESOURCE, "9", ErrorCode.BROKER_ID_NOT_REGISTERED, "No node with id 9 found."),
        (GROUP_RESOURCE, "", ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        (CLIENT_METRICS_RESOURCE, "", ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
        (99, "x", ErrorCode.UNSUPPORTED_VERSION, "Unknown resource type 99."),
    ],
)
def test_invalid_resources(rig: Rig, kind: int, name: str, code: ErrorCode, message: str | None) -> None:
    outcome = alter(rig, kind=kind, name=name)
    assert outcome[0] is code
    assert message is None or outcome[1] == message


def test_brokers_groups_and_client_metrics(rig: Rig) -> None:
    assert alter(rig, ("log.retention.ms", SET, "5"), kind=BROKER_RESOURCE, name="") == OK
    assert alter(rig, ("log.retention.ms", SET, "6"), kind=BROKER_RESOURCE, name="100") == OK
    assert alter(rig, ("consumer.session.timeout.ms", SET, "46000"), kind=GROUP_RESOURCE, name="g") == OK
    assert alter(rig, ("interval.ms", SET, "1000"), kind=CLIENT_METRICS_RESOURCE, name="m") == OK
    assert alter(rig, ("x", SET, "1"), kind=CLIENT_METRICS_RESOURCE, name="m")[0] is ErrorCode.INVALID_REQUEST
    assert alter(rig, ("x", SET, "1"), kind=GROUP_RESOURCE, name="g")[0] is ErrorCode.INVALID_CONFIG
    assert configs(rig, BROKER_RESOURCE, "") == {"log.retention.ms": "5", "min.insync.replicas": "1"}
    assert configs(rig, GROUP_RESOURCE, "g") == {"consumer.session.timeout.ms": "46000"}


@pytest.mark.parametrize(
    ("name", "value", "code", "message"),
    [
        (
            "interval.ms",
            "99",
            ErrorCode.INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100",
        ),
        ("interval.ms", "soon", ErrorCode.INVALID_CONFIG, "Invalid value soon for configuration interval.ms"),
        ("match", "client_id", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id"),
        ("match", "colour=red", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: colour=red"),
        (
            "match",
            "client_id=a,client_id=b=c",
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: client_id=b=c",
        ),
    ],
)
def test_client_metrics_that_no_client_could_obey(
    rig: Rig, name: str, value: str, code: ErrorCode, message: str
) -> None:
    outcome = alter(rig, (name, SET, value), kind=CLIENT_METRICS_RESOURCE, name="m")
    assert outcome[0] is code
    assert (outcome[1] or "").startswith(message)


@pytest.mark.parametrize(("operation", "verb"), [(APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")])
@pytest.mark.parametrize(
    ("kind", "key"), [(CLIENT_METRICS_RESOURCE, "match"), (GROUP_RESOURCE, "streams.num.standby.replicas")]
)
def test_only_lists_of_topics_and_brokers_change_by_parts(
    rig: Rig, kind: int, key: str, operation: int, verb: str
) -> None:
    reason = f"Can't {verb} to key {key} because its type is not LIST."
    assert alter(rig, (key, operation, "client_id=a"), kind=kind, name="m") == (ErrorCode.INVALID_CONFIG, reason)


def test_a_resource_named_twice_is_refused(rig: Rig) -> None:
    resource: Any = wire.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t")
    request = wire.IncrementalAlterConfigsRequest(resources=[resource, resource])
    (answer,) = rig.decide(lambda view: incremental_alter_configs(view, request)).responses
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate resource.")


def test_the_sources_of_a_topics_configs() -> None:
    rig = Rig(log_segment_bytes="1048577")
    alter(rig, ("log.retention.ms", SET, "5"), kind=BROKER_RESOURCE, name="")
    found = {c.name: c for c in EffectiveConfigs(rig.controller.view()).of({"flush.ms": "3"})}
    assert (found["flush.ms"].value, found["flush.ms"].source) == ("3", 1)
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("5", 3)
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == ("1048577", 4)
    assert (found["max.message.bytes"].value, found["max.message.bytes"].source) == ("1048588", 5)


def test_the_configs_of_the_controllers_own_node_come_first() -> None:
    rig = Rig(log_segment_bytes="1048577")
    node = str(rig.controller.view().config.node_id)
    alter(rig, ("log.retention.ms", SET, "5"), kind=BROKER_RESOURCE, name="")
    alter(rig, ("log.retention.ms", SET, "6"), kind=BROKER_RESOURCE, name=node)
    alter(rig, ("log.roll.ms", SET, "7"), kind=BROKER_RESOURCE, name="12345")
    found = {c.name: c for c in EffectiveConfigs(rig.controller.view()).of({})}
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("6", 2)
    assert found["segment.ms"].source == 5


@pytest.mark.parametrize(
    ("own", "cluster", "expected"), [("-1", "5", ("7", 4)), (None, "-1", ("7", 4)), ("5", "-1", ("5", 2))]
)
def test_an_unusable_config_of_the_controllers_node_is_left_out(
    own: str | None, cluster: str, expected: tuple[str, int]
) -> None:
    """The metadata may have one that an older release accepted. It must not stop new topics."""
    rig = Rig(log_flush_interval_ms="7")
    alter(rig, ("log.flush.interval.ms", SET, cluster), ("log.retention.ms", SET, "8"), kind=BROKER_RESOURCE, name="")
    if own is not None:
        node = str(rig.controller.view().config.node_id)
        alter(rig, ("log.flush.interval.ms", SET, own), kind=BROKER_RESOURCE, name=node)
    found = {c.name: c for c in EffectiveConfigs(rig.controller.view()).of({})}
    assert (found["flush.ms"].value, found["flush.ms"].source) == expected
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("8", 3)


def test_an_internal_key_is_reported_where_it_is_set(rig: Rig) -> None:
    assert alter(rig, ("internal.segment.bytes", SET, "16384")) == OK
    effective = EffectiveConfigs(rig.controller.view())
    found = {c.name: c for c in effective.of(configs(rig))}
    assert (found["internal.segment.bytes"].value, found["internal.segment.bytes"].source) == ("16384", 1)
    assert "internal.segment.bytes" not in [c.name for c in effective.of({})]


# -- min.insync.replicas with eligible leader replicas (rule 5)

MIN_ISR = "min.insync.replicas"


@pytest.fixture
def eligible() -> Rig:
    """Topics a, b and c with ELRs; c has no leader."""
    rig = Rig()
    rig.join(0, 1, 2)
    for name, replicas in (("a", [0, 1]), ("b", [0, 1]), ("c", [1, 2])):
        rig.create(name, [replicas], min_insync_replicas="2")
    for broker_id in (2, 1):
        rig.heartbeat(broker_id, want_fence=True)
    return rig


def elrs(rig: Rig) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    return {name: (rig.partition(name).elr, rig.partition(name).last_known_elr) for name in "abc"}


def test_a_change_of_min_isr_clears_the_elrs_for_which_it_counts(eligible: Rig) -> None:
    assert elrs(eligible) == {"a": ((1,), ()), "b": ((1,), ()), "c": ((1, 2), (1,))}
    before = eligible.partition("a")
    assert alter(eligible, ("retention.ms", SET, "5"), name="a") == OK
    assert alter(eligible, (MIN_ISR, SET, "1"), name="a", validate_only=True) == OK
    assert eligible.partition("a") == before
    assert alter(eligible, (MIN_ISR, SET, "1"), name="a") == OK
    assert elrs(eligible) == {"a": ((), ()), "b": ((1,), ()), "c": ((1, 2), (1,))}
    assert eligible.partition("a").partition_epoch == before.partition_epoch + 1
    assert alter(eligible, (MIN_ISR, SET, "1"), kind=BROKER_RESOURCE, name="") == OK
    assert elrs(eligible) == {"a": ((), ()), "b": ((), ()), "c": ((), (1,))}, "c waits for its last leader"


def test_a_disabled_feature_does_not_keep_an_elr_that_is_not_true(eligible: Rig) -> None:
    eligible.decide(lambda _view: Decision([FeatureLevelRecord(name=ELR_VERSION, feature_level=0)], None))
    assert alter(eligible, (MIN_ISR, DELETE, None), name="b") == OK
    assert elrs(eligible)["b"] == ((), ())


def test_min_isr_is_the_same_on_all_brokers(eligible: Rig) -> None:
    refused = ErrorCode.INVALID_CONFIG
    of_a_broker = (refused, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
    of_all = (refused, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
    for operation, value in ((SET, "1"), (DELETE, None)):
        assert alter(eligible, (MIN_ISR, operation, value), kind=BROKER_RESOURCE, name="0") == of_a_broker
    assert alter(eligible, (MIN_ISR, DELETE, None), kind=BROKER_RESOURCE, name="") == of_all
    assert replace(eligible, {"log.retention.ms": "1"}, kind=BROKER_RESOURCE, name="") == of_all
    assert alter(eligible, (MIN_ISR, SET, "2"), kind=BROKER_RESOURCE, name="") == OK


# -- cordoned.log.dirs (rule 6)


def test_an_older_cluster_has_no_cordoned_directories(rig: Rig) -> None:
    reason = "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
    refused = (ErrorCode.INVALID_CONFIG, reason)
    assert replace(rig, {"cordoned.log.dirs": "/a"}, kind=BROKER_RESOURCE, name="0") == OK
    rig.decide(lambda _view: Decision([FeatureLevelRecord(name=METADATA_VERSION, feature_level=29)], None))
    for change in (("cordoned.log.dirs", SET, "/a"), ("cordoned.log.dirs", DELETE, None)):
        assert alter(rig, change, kind=BROKER_RESOURCE, name="0") == refused
    assert replace(rig, {}, kind=BROKER_RESOURCE, name="0") == refused
    assert alter(rig, ("log.cleaner.threads", SET, "2"), kind=BROKER_RESOURCE, name="0") == OK
