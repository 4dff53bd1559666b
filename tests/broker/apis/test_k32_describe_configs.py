"""DescribeConfigs: every key as in Kafka's list; sources and synonyms; missing resources.

Also covers `settings/config_describer.py`.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.broker.apis.k32_describe_configs import API
from barnabas.broker.settings.config_describer import Source
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.config.checks import STANDARD_AUTHORIZER
from barnabas.config.secrets.sensitive import AUTHORIZER_KEYS
from barnabas.config.table.keys import BROKER_KEYS, GROUP_KEYS, OWN_KEYS, REQUIRED, TOPIC_KEYS, Type
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.metadata_records import ConfigRecord
from tests.broker.apis.config_rig import answer_of, make_services, set_configs


def describe(
    services: Any, type_: int, name: str, *keys: str, version: int = 4, synonyms: bool = True, docs: bool = True
) -> Any:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=list(keys) or None)
        ],
        include_synonyms=synonyms,
        include_documentation=docs,
    )
    (result,) = answer_of(API, services, request, version).results
    assert (result.resource_type, result.resource_name) == (type_, name)
    return result


def one(services: Any, type_: int, name: str, key: str) -> Any:
    (config,) = describe(services, type_, name, key).configs
    return config


def places(config: Any) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


@pytest.mark.parametrize(
    ("type_", "name", "keys"),
    [
        (ResourceType.TOPIC, "a", {name: key for name, key in TOPIC_KEYS.items() if not key.internal}),
        (
            ResourceType.BROKER,
            "1",
            {name: key for name, key in BROKER_KEYS.items() if not key.internal and name not in AUTHORIZER_KEYS},
        ),
        (ResourceType.GROUP, "g", GROUP_KEYS),
    ],
)
def test_every_key_is_described_with_its_default(type_: int, name: str, keys: Any) -> None:
    result = describe(make_services(), type_, name)
    assert result.error_code == ErrorCode.NONE
    described = {config.name: config for config in result.configs}
    assert described.keys() == keys.keys()
    for key in keys.values():
        config = described[key.name]
        assert config.config_type == key.type
        assert config.documentation == key.doc
        assert config.is_sensitive == key.sensitive
        if key.default != REQUIRED and key.name not in ("broker.id", "controller.quorum.bootstrap.servers"):
            assert config.value == (None if key.sensitive else key.to_text(key.default))
            assert config.config_source == 5


def test_only_keys_applied_at_run_time_are_not_read_only() -> None:
    described = {config.name: config for config in describe(make_services(), ResourceType.BROKER, "1").configs}
    assert not described["log.segment.bytes"].read_only
    assert described["num.partitions"].read_only
    assert not described["num.io.threads"].read_only
    assert described["listeners"].read_only
    topic = describe(make_services(), ResourceType.TOPIC, "a")
    assert not any(config.read_only for config in topic.configs)


def test_sources_and_synonyms_of_a_topic() -> None:
    services = make_services(log_segment_bytes="2000000")
    assert places(one(services, ResourceType.TOPIC, "a", "segment.bytes")) == [
        ("log.segment.bytes", "2000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    set_configs(services, ResourceType.BROKER, "", log_segment_bytes="3000000")
    set_configs(services, ResourceType.BROKER, "1", log_segment_bytes="4000000")
    set_configs(services, ResourceType.BROKER, "2", log_segment_bytes="9000000")
    set_configs(services, ResourceType.TOPIC, "a", segment_bytes="5000000")
    config = one(services, ResourceType.TOPIC, "a", "segment.bytes")
    assert (config.value, config.config_source) == ("5000000", 1)
    assert places(config) == [
        ("segment.bytes", "5000000", 1),
        ("log.segment.bytes", "4000000", 2),
        ("log.segment.bytes", "3000000", 3),
        ("log.segment.bytes", "2000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    other = one(services, ResourceType.TOPIC, "b", "segment.bytes")
    assert (other.value, other.config_source) == ("4000000", 2)
    set_configs(services, ResourceType.TOPIC, "a", segment_bytes=None)
    assert one(services, ResourceType.TOPIC, "a", "segment.bytes").value == "4000000"


def test_units() -> None:
    services = make_services(log_retention_minutes="3")
    config = one(services, ResourceType.TOPIC, "a", "retention.ms")
    assert config.value == "180000"
    assert one(services, ResourceType.BROKER, "1", "log.retention.minutes").value == "3"


def test_sources_of_a_broker() -> None:
    services = make_services(num_io_threads="3", unheard_of="x")
    assert places(one(services, ResourceType.BROKER, "1", "num.io.threads")) == [
        ("num.io.threads", "3", 4),
        ("num.io.threads", "8", 5),
    ]
    unknown = one(services, ResourceType.BROKER, "1", "unheard.of")
    assert (unknown.value, unknown.is_sensitive, unknown.config_type) == (None, True, 0)
    for key in ("node.id", "broker.id"):
        config = one(services, ResourceType.BROKER, "1", key)
        assert (config.value, config.config_source) == ("1", 4)
    assert describe(services, ResourceType.BROKER, "").configs == []
    set_configs(services, ResourceType.BROKER, "", min_insync_replicas="2")
    (config,) = describe(services, ResourceType.BROKER, "").configs
    assert (config.name, config.value, config.config_source, places(config)) == (
        "min.insync.replicas",
        "2",
        3,
        [("min.insync.replicas", "2", 3)],
    )


def test_keys_without_a_table_entry() -> None:
    """As Apache Kafka 4.3.1 shows them."""
    services = make_services()
    set_configs(services, ResourceType.BROKER, "1", leader_replication_throttled_rate="500", my_own_key="7")
    set_configs(services, ResourceType.BROKER, "", listener_name_plaintext_max_connections="50")
    throttle = one(services, ResourceType.BROKER, "1", "leader.replication.throttled.rate")
    assert (throttle.value, throttle.read_only, places(throttle)) == ("500", False, [(throttle.name, "500", 2)])
    of_listener = "listener.name.plaintext.max.connections"
    for resource, base in (("", []), ("1", [("max.connections", "2147483647", 5)])):
        config = one(services, ResourceType.BROKER, resource, of_listener)
        assert (config.value, config.is_sensitive, places(config)) == ("50", False, [(of_listener, "50", 3), *base])
    unknown = one(services, ResourceType.BROKER, "1", "my.own.key")
    assert (unknown.value, unknown.is_sensitive, places(unknown)) == (None, True, [("my.own.key", None, 2)])
    assert (config.read_only, unknown.read_only) == (True, True)


def test_the_key_of_all_listeners_is_a_synonym_of_that_of_one_listener() -> None:
    """Kafka: DynamicBrokerConfig.brokerConfigSynonyms, and DynamicBrokerReconfigurationTest."""
    of_listener = "listener.name.plaintext.max.connections"
    services = make_services(**{of_listener: "50", "max.connections": "60"})
    expected = [(of_listener, "50", 4), ("max.connections", "60", 4), ("max.connections", "2147483647", 5)]
    assert places(one(services, ResourceType.BROKER, "1", of_listener)) == expected
    set_configs(services, ResourceType.BROKER, "1", max_connections="70")  # stronger, and not used: not the first
    assert places(one(services, ResourceType.BROKER, "1", of_listener)) == expected
    of_mechanism = "listener.name.outside.scram-sha-256.connections.max.reauth.ms"
    set_configs(services, ResourceType.BROKER, "1", **{of_mechanism: "7"})
    assert places(one(services, ResourceType.BROKER, "1", of_mechanism)) == [
        (of_mechanism, "7", 2),
        ("connections.max.reauth.ms", "0", 5),
    ]


@pytest.mark.parametrize("key", sorted(AUTHORIZER_KEYS))
def test_an_authorizers_key_of_a_listener_tells_nothing_of_the_authorizers(key: str) -> None:
    of_listener = f"listener.name.plaintext.{key}"
    config = one(make_services(**{of_listener: "x"}), ResourceType.BROKER, "1", of_listener)
    assert places(config) == [(of_listener, None, 4)]


def test_secrets_stay_secret() -> None:
    services = make_services()
    set_configs(services, ResourceType.BROKER, "1", ssl_key_password="s3cret")
    config = one(services, ResourceType.BROKER, "1", "ssl.key.password")
    assert (config.value, config.is_sensitive) == (None, True)
    assert places(config) == [("ssl.key.password", None, 2)]


@pytest.mark.parametrize(
    ("key", "type_"),
    [
        ("listener.name.outside.ssl.keystore.password", 9),
        ("listener.name.outside.scram-sha-256.sasl.jaas.config", 9),
        ("vendor.api.key", 0),
    ],
)
def test_secrets_of_listeners_stay_secret(key: str, type_: int) -> None:
    services = make_services()
    record = ConfigRecord(resource_type=4, resource_name="1", name=key, value="s3cret")
    services.dynamic_config.apply_records([record], is_full=False)
    config = one(services, ResourceType.BROKER, "1", key)
    assert (config.value, config.is_sensitive, config.config_type) == (None, True, type_)
    assert places(config) == [(key, None, 2)]


def test_groups_and_client_metrics() -> None:
    services = make_services()
    set_configs(services, ResourceType.GROUP, "g", consumer_session_timeout_ms="46000")
    config = one(services, ResourceType.GROUP, "g", "consumer.session.timeout.ms")
    assert (config.value, config.config_source) == ("46000", 8)
    assert places(config)[1:] == [("group.consumer.session.timeout.ms", "45000", 5)]
    assert places(one(services, ResourceType.GROUP, "g", "share.auto.offset.reset")) == [
        ("share.auto.offset.reset", "latest", 5)
    ]
    set_configs(services, ResourceType.CLIENT_METRICS, "m", interval_ms="1000")
    config = one(services, ResourceType.CLIENT_METRICS, "m", "interval.ms")
    assert (config.value, config.config_source, places(config)) == ("1000", 7, [("interval.ms", "1000", 7)])
    described = describe(services, ResourceType.CLIENT_METRICS, "none").configs
    assert {(c.name, c.value, c.config_source, c.read_only) for c in described} == {
        ("metrics", "", 5, False),
        ("interval.ms", "300000", 5, False),
        ("match", "", 5, False),
    }


def test_the_keys_of_the_authorizer_are_hidden_and_listed_only_where_they_are_set() -> None:
    services = make_services(
        authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:root", allow_everyone_if_no_acl_found="true"
    )
    for name in ("super.users", "allow.everyone.if.no.acl.found"):
        config = one(services, ResourceType.BROKER, "1", name)
        assert (config.value, config.is_sensitive, config.read_only, config.config_type) == (None, True, True, 0)
        assert (config.documentation, places(config)) == (None, [(name, None, 4)])
        assert describe(make_services(), ResourceType.BROKER, "1", name).configs == []


def test_loggers() -> None:
    logging.getLogger("barnabas.test.describe").setLevel(logging.ERROR)
    described = {c.name: c for c in describe(make_services(), ResourceType.BROKER_LOGGER, "1").configs}
    assert described["barnabas.test.describe"].value == "ERROR"
    assert described["barnabas.test.describe"].config_source == 6
    assert "root" in described
    plain = describe(make_services(), ResourceType.BROKER_LOGGER, "1", docs=False).configs
    assert {c.documentation for c in (*described.values(), *plain)} == {""}, "as Kafka's"


@pytest.mark.parametrize("version", range(1, 5))
def test_versions(version: int) -> None:
    result = describe(make_services(), ResourceType.TOPIC, "a", "retention.ms", version=version)
    (config,) = result.configs
    assert config.value == "604800000"
    assert config.config_type == (5 if version >= 3 else 0)
    assert bool(config.documentation) == (version >= 3)
    plain = describe(make_services(), ResourceType.TOPIC, "a", "segment.bytes", synonyms=False, docs=False)
    assert (plain.configs[0].synonyms, plain.configs[0].documentation) == ([], None)


@pytest.mark.parametrize(
    ("type_", "name", "code", "message"),
    [
        (ResourceType.TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host"),
        (ResourceType.TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (
            ResourceType.BROKER,
            "2",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (ResourceType.BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (ResourceType.BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (ResourceType.BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 2"),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (ResourceType.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be"),
    ],
)
def test_errors(type_: int, name: str, code: ErrorCode, message: str) -> None:
    result = describe(make_services(), type_, name)
    assert result.error_code == code
    assert message in result.error_message
    assert result.configs == []


def test_an_internal_key_is_described_where_it_is_set() -> None:
    services = make_services()
    set_configs(services, ResourceType.TOPIC, "a", internal_segment_bytes="16384")
    (found,) = describe(services, ResourceType.TOPIC, "a", "internal.segment.bytes").configs
    assert (found.value, found.config_source, found.config_type) == ("16384", Source.TOPIC, Type.INT)
    assert places(found) == [("internal.segment.bytes", "16384", Source.TOPIC)]
    assert describe(services, ResourceType.TOPIC, "b", "internal.segment.bytes").configs == []


def test_an_internal_key_of_a_broker_is_described_where_it_is_set() -> None:
    assert describe(make_services(), ResourceType.BROKER, "1", "unstable.api.versions.enable").configs == []
    services = make_services(unstable_api_versions_enable="true")
    (found,) = describe(services, ResourceType.BROKER, "1", "unstable.api.versions.enable").configs
    assert found.value == "true"


def test_an_unknown_type_makes_the_whole_request_invalid() -> None:
    resources = [DescribeConfigsResource(resource_type=type_, resource_name="a") for type_ in (ResourceType.TOPIC, 99)]
    with pytest.raises(ApiError) as refused:
        answer_of(API, make_services(), DescribeConfigsRequest(resources=resources), 4)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_keys_of_this_project_are_described_too() -> None:
    names = {config.name for config in describe(make_services(), ResourceType.BROKER, "1").configs}
    assert names >= {name for name in OWN_KEYS - AUTHORIZER_KEYS if not BROKER_KEYS[name].internal}


def test_a_small_request_cannot_request_all_configs_repeatedly(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(type_: int, names: list[str]) -> Any:
        resources = [DescribeConfigsResource(resource_type=type_, resource_name=name) for name in names]
        return answer_of(API, make_services(), DescribeConfigsRequest(resources=resources), 4).results

    (only,) = ask(ResourceType.BROKER, ["1"] * 100)
    assert only.error_code == ErrorCode.NONE
    monkeypatch.setattr("barnabas.broker.apis.k32_describe_configs.DESCRIBED_MAX", 2 * len(GROUP_KEYS))
    codes = [result.error_code for result in ask(ResourceType.GROUP, ["a", "b", "c", "d"])]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
