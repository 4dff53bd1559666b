"""What a controller itself describes (KIP-919): configs, ACLs, SCRAM credentials and tokens; levels of its loggers.

Covers `controller/apis/k29_describe_acls.py`, `controller/apis/k32_describe_configs.py`,
`controller/apis/k41_describe_delegation_token.py`, `controller/apis/k50_describe_user_scram_credentials.py`,
`controller/apis/k44_incremental_alter_configs.py` and `controller/apis/node_configs.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.settings.config_describer import Source
from barnabas.controller.apis.node_configs import NodeConfigs
from barnabas.controller.decision import Decision
from barnabas.controller.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages import k32_describe_configs as describe
from barnabas.protocol.messages import k38_create_delegation_token as token_wire
from barnabas.protocol.messages import k44_incremental_alter_configs as alter
from barnabas.protocol.messages.k29_describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.k41_describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.protocol.messages.k50_describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from barnabas.protocol.metadata_records import ConfigRecord
from tests.controller.rig import Rig
from tests.controller.test_any_request import Asker
from tests.controller.test_security_apis import EVERY_ACL, acl, forward, user
from tests.controller.test_security_apis import ask as change

LOGGER_RESOURCE = 8
LOGGER = "barnabas.controller.tests"
CONTROLLER_ID = "100"
NEWEST = {29: 3, 32: 4, 41: 3, 44: 1, 50: 0}


@pytest.fixture
def asker() -> Asker:
    return Asker(0)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(LOGGER)
    yield found
    found.setLevel(logging.NOTSET)


def ask(asker: Asker, message: Any) -> Any:
    return asker.ask(RequestHeader(message.API_KEY, NEWEST[message.API_KEY], 7, "c"), message)


def configs_of(asker: Asker, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    """The value and source of each config of a resource that is described without an error."""
    result = described(asker, kind, name)
    assert result.error_code == 0, result.error_message
    return {config.name: (config.value, config.config_source) for config in result.configs}


def described(asker: Asker, kind: int, name: str) -> Any:
    resource = describe.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = ask(asker, describe.DescribeConfigsRequest(resources=[resource])).results
    return result


def set_config(asker: Asker, kind: int, name: str, key: str, value: str | None) -> Any:
    config = alter.AlterableConfig(name=key, config_operation=0, value=value)
    resource = alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    (result,) = ask(asker, alter.IncrementalAlterConfigsRequest(resources=[resource])).responses
    return result


# -- configs


def test_a_topic_has_its_own_configs_and_the_defaults_of_the_cluster(asker: Asker) -> None:
    assert set_config(asker, BROKER_RESOURCE, "", "log.retention.ms", "5000").error_code == 0
    found = configs_of(asker, TOPIC_RESOURCE, "t")
    assert found["cleanup.policy"] == ("compact", Source.TOPIC)
    assert found["retention.ms"] == ("5000", Source.DYNAMIC_DEFAULT_BROKER)
    assert found["flush.messages"][1] == Source.DEFAULT
    assert described(asker, TOPIC_RESOURCE, "nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_controller_describes_itself(asker: Asker) -> None:
    assert set_config(asker, BROKER_RESOURCE, CONTROLLER_ID, "log.retention.ms", "6000").error_code == 0
    found = configs_of(asker, BROKER_RESOURCE, CONTROLLER_ID)
    assert found["node.id"] == (CONTROLLER_ID, Source.STATIC_BROKER)
    assert found["log.retention.ms"] == ("6000", Source.DYNAMIC_BROKER)
    assert found["delegation.token.secret.key"][0] is None
    assert configs_of(asker, BROKER_RESOURCE, "").keys() == asker.rig.image.resource_configs(BROKER_RESOURCE, "").keys()


def test_another_nodes_configs_are_refused(asker: Asker) -> None:
    result = described(asker, BROKER_RESOURCE, "0")
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == "Unexpected broker id, expected 100 or empty string, but received 0"


def test_groups_and_subscriptions_are_described(asker: Asker) -> None:
    assert set_config(asker, GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "50000").error_code == 0
    assert set_config(asker, CLIENT_METRICS_RESOURCE, "m", "interval.ms", "1000").error_code == 0
    assert configs_of(asker, GROUP_RESOURCE, "g")["consumer.session.timeout.ms"] == ("50000", Source.GROUP)
    assert configs_of(asker, CLIENT_METRICS_RESOURCE, "m")["interval.ms"] == ("1000", Source.CLIENT_METRICS)


def test_values_that_cannot_be_used_are_left_out() -> None:
    """A later release may have written them."""
    rig = Rig()
    rig.join(0)
    rig.create("t", [[0]])
    records = [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        for kind, name, key, value in (
            (BROKER_RESOURCE, "", "log.retention.ms", "soon"),
            (BROKER_RESOURCE, "", "log.flush.interval.ms", "77"),
            (BROKER_RESOURCE, "", "replica.fetch.wait.max.ms", "1"),  # cannot be changed while a node runs
            (BROKER_RESOURCE, CONTROLLER_ID, "log.cleaner.max.compaction.lag.ms", "1"),
            (BROKER_RESOURCE, CONTROLLER_ID, "log.cleaner.min.compaction.lag.ms", "2"),  # contradicts that
            (TOPIC_RESOURCE, "t", "retention.ms", "later"),
            (TOPIC_RESOURCE, "t", "new.key", "1"),
        )
    ]
    rig.decide(lambda _: Decision(records, None))
    configs = NodeConfigs(rig.config, rig.image)
    assert configs.config.values["log.retention.ms"] == rig.config.values["log.retention.ms"]
    assert configs.config.values["log.flush.interval.ms"] == 77
    assert configs.config.values["replica.fetch.wait.max.ms"] == rig.config.values["replica.fetch.wait.max.ms"]
    assert configs.config.values["log.cleaner.min.compaction.lag.ms"] == 0
    assert configs.topic_config("t").values["retention.ms"] == rig.config.topic_defaults["retention.ms"]


def test_a_controller_that_is_asked_directly_only_takes_back_cordoned_directories(asker: Asker) -> None:
    key, reason = "cordoned.log.dirs", "When updating cordoned.log.dirs via controllers,  the new value must be"

    def change(value: str) -> alter.IncrementalAlterConfigsRequest:
        config = alter.AlterableConfig(name=key, config_operation=0, value=value)
        resource = alter.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="0", configs=[config])
        return alter.IncrementalAlterConfigsRequest(resources=[resource])

    refused = set_config(asker, BROKER_RESOURCE, "0", key, "/a")
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert refused.error_message.startswith(reason)
    assert set_config(asker, BROKER_RESOURCE, "0", key, " ").error_code == 0
    assert forward(asker, change("/a, /b")).responses[0].error_code == 0
    assert set_config(asker, BROKER_RESOURCE, "0", key, "/b").error_code == 0
    assert set_config(asker, BROKER_RESOURCE, "0", key, "/a,/b").error_code == ErrorCode.INVALID_CONFIG
    assert asker.rig.image.resource_configs(BROKER_RESOURCE, "0") == {key: "/b"}


# -- loggers


def test_levels_of_loggers_are_described_and_changed_at_once(asker: Asker, logger: logging.Logger) -> None:
    assert set_config(asker, LOGGER_RESOURCE, CONTROLLER_ID, LOGGER, "DEBUG").error_code == 0
    assert logger.level == logging.DEBUG
    assert configs_of(asker, LOGGER_RESOURCE, CONTROLLER_ID)[LOGGER] == ("DEBUG", Source.DYNAMIC_BROKER_LOGGER)
    assert LOGGER_RESOURCE not in {key.type for key in asker.rig.image.configs}


def test_loggers_of_other_nodes_and_unknown_ones_are_refused(asker: Asker) -> None:
    assert set_config(asker, LOGGER_RESOURCE, "0", LOGGER, "DEBUG").error_code == ErrorCode.INVALID_REQUEST
    unknown = set_config(asker, LOGGER_RESOURCE, CONTROLLER_ID, "no.such.logger", "DEBUG")
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.INVALID_CONFIG,
        "Logger no.such.logger does not exist!",
    )


def test_loggers_change_beside_other_resources(asker: Asker, logger: logging.Logger) -> None:
    def resource(kind: int, name: str, key: str, value: str) -> alter.AlterConfigsResource:
        config = alter.AlterableConfig(name=key, config_operation=0, value=value)
        return alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    resources = [
        resource(LOGGER_RESOURCE, CONTROLLER_ID, LOGGER, "ERROR"),
        resource(TOPIC_RESOURCE, "t", "retention.ms", "9"),
    ]
    response = ask(asker, alter.IncrementalAlterConfigsRequest(resources=resources))
    assert {(r.resource_type, r.resource_name): r.error_code for r in response.responses} == {
        (TOPIC_RESOURCE, "t"): 0,
        (LOGGER_RESOURCE, CONTROLLER_ID): 0,
    }
    assert logger.level == logging.ERROR
    assert configs_of(asker, TOPIC_RESOURCE, "t")["retention.ms"] == ("9", Source.TOPIC)
    twice = ask(asker, alter.IncrementalAlterConfigsRequest(resources=[resources[0], resources[0]]))
    assert [r.error_code for r in twice.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_change_of_loggers_that_is_only_validated_changes_nothing(asker: Asker, logger: logging.Logger) -> None:
    config = alter.AlterableConfig(name=LOGGER, config_operation=0, value="DEBUG")
    resource = alter.AlterConfigsResource(resource_type=LOGGER_RESOURCE, resource_name=CONTROLLER_ID, configs=[config])
    response = ask(asker, alter.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True))
    assert [r.error_code for r in response.responses] == [0]
    assert logger.level == logging.NOTSET


# -- security


def test_acls_are_described(asker: Asker) -> None:
    assert change(asker, acl()).results[0].error_code == 0
    (resource,) = ask(asker, DescribeAclsRequest(**EVERY_ACL)).resources
    assert (resource.resource_name, [entry.principal for entry in resource.acls]) == ("orders", ["User:alice"])


def test_scram_credentials_are_described(asker: Asker) -> None:
    assert change(asker, user("alice")).results[0].error_code == 0
    (result,) = ask(asker, DescribeUserScramCredentialsRequest(users=None)).results
    assert (result.user, [(info.mechanism, info.iterations) for info in result.credential_infos]) == (
        "alice",
        [(1, 4096)],
    )


def test_tokens_are_described_to_who_has_logged_in(asker: Asker) -> None:
    assert forward(asker, token_wire.CreateDelegationTokenRequest(max_lifetime_ms=-1)).error_code == 0
    wanted = DescribeDelegationTokenRequest(owners=None)
    assert ask(asker, wanted).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    asker.context = replace(asker.context, security_protocol="SASL_PLAINTEXT", principal="User:alice")
    (token,) = ask(asker, wanted).tokens
    assert token.principal_name == "alice"
