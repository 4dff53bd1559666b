"""Policies of the operator's own: what they are asked, and what a client gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.config.errors import ConfigError
from barnabas.controller.decisions.configs import alter_configs, incremental_alter_configs
from barnabas.controller.decisions.topics import create_topics
from barnabas.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.controller.policies.policies import ConfigChange, NewTopic, Policies
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k19_create_topics as create
from barnabas.protocol.messages import k33_alter_configs as legacy
from barnabas.protocol.messages import k44_incremental_alter_configs as incremental
from tests.controller.rig import Rig, make_config

HERE = "tests.controller.policies.test_policies"


class Names:
    """Topics of teams only."""

    asked: list[NewTopic]

    def __init__(self, settings: Mapping[str, str]) -> None:
        assert settings["node.id"] == "100"
        type(self).asked = []
        self.is_closed = False

    def violation(self, topic: NewTopic) -> str | None:
        self.asked.append(topic)
        if topic.name == "bug":
            raise RuntimeError("our bug")
        return None if "-" in topic.name else f"{topic.name} names no team"

    def close(self) -> None:
        self.is_closed = True
        raise RuntimeError("another bug")


class Retention:
    """Nobody keeps records for ever."""

    asked: list[ConfigChange]

    def __init__(self, settings: Mapping[str, str]) -> None:
        type(self).asked = []

    def violation(self, change: ConfigChange) -> str | None:
        self.asked.append(change)
        return "records are kept for ever" if change.configs.get("retention.ms") == "-1" else None

    def close(self) -> None:
        pass


class NoClose:
    def __init__(self, settings: Mapping[str, str]) -> None:
        pass

    def violation(self, topic: NewTopic) -> str | None:
        return None


def fails(settings: Mapping[str, str]) -> None:
    raise RuntimeError("secret")


@pytest.fixture
def rig() -> Rig:
    rig = Rig(create_topic_policy_class_name=f"{HERE}:Names", alter_config_policy_class_name=f"{HERE}:Retention")
    rig.join(0, 1)
    return rig


def create_one(rig: Rig, name: str, *, validate_only: bool = False, **about: Any) -> tuple[int, str | None]:
    fields = {"num_partitions": 2, "replication_factor": 1, **about}
    topic = create.CreatableTopic(name=name, **fields)
    request = create.CreateTopicsRequest(topics=[topic], timeout_ms=1, validate_only=validate_only)
    (found,) = rig.decide(lambda view: create_topics(view, request)).topics
    return found.error_code, found.error_message


def change(rig: Rig, kind: int, name: str, **values: str | None) -> tuple[int, str | None]:
    """SET the values; DELETE those that are None."""
    configs = [
        incremental.AlterableConfig(name=key.replace("_", "."), config_operation=1 if value is None else 0, value=value)
        for key, value in values.items()
    ]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    (found,) = rig.decide(lambda view: incremental_alter_configs(view, request)).responses
    return found.error_code, found.error_message


# -- new topics


def test_a_topic_is_created_or_refused_with_the_policys_words(rig: Rig) -> None:
    assert create_one(rig, "orders") == (ErrorCode.POLICY_VIOLATION, "orders names no team")
    assert create_one(rig, "orders", validate_only=True)[0] == ErrorCode.POLICY_VIOLATION
    assert create_one(rig, "shop-orders")[0] == ErrorCode.NONE
    assert set(rig.image.topic_ids) == {"shop-orders"}


def test_a_policy_sees_partitions_and_replication_factor_or_the_assignment(rig: Rig) -> None:
    configs = [create.CreatableTopicConfig(name="retention.ms", value="5")]
    create_one(rig, "a-1", configs=configs)
    create_one(rig, "a-2", num_partitions=-1, replication_factor=-1)
    manual = [create.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 0])]
    create_one(rig, "a-3", num_partitions=-1, replication_factor=-1, assignments=manual)
    defaults = int(rig.config.num_partitions), int(rig.config.default_replication_factor)
    assert Names.asked == [
        NewTopic("a-1", 2, 1, None, {"retention.ms": "5"}),
        NewTopic("a-2", *defaults, None, {}),
        NewTopic("a-3", None, None, {0: (1, 0)}, {}),
    ]


def test_a_policy_is_asked_about_valid_topics_only(rig: Rig) -> None:
    assert create_one(rig, "a b")[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert create_one(rig, "a-b", replication_factor=9)[0] == ErrorCode.INVALID_REPLICATION_FACTOR
    assert Names.asked == []


def test_a_policy_that_fails_refuses(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    expected = (ErrorCode.UNKNOWN_SERVER_ERROR, "create.topic.policy.class.name failed.")
    assert create_one(rig, "bug") == expected
    assert "create.topic.policy.class.name failed" in caplog.text


def test_a_new_topics_configs_are_a_change_too(rig: Rig) -> None:
    configs = [create.CreatableTopicConfig(name="retention.ms", value="-1")]
    assert create_one(rig, "a-b", configs=configs) == (ErrorCode.POLICY_VIOLATION, "records are kept for ever")
    assert Retention.asked == [ConfigChange(TOPIC_RESOURCE, "a-b", {"retention.ms": "-1"})]


# -- changes of configs


def test_a_change_is_made_or_refused_with_the_policys_words(rig: Rig) -> None:
    create_one(rig, "a-b")
    refused = change(rig, TOPIC_RESOURCE, "a-b", retention_ms="-1")
    assert refused == (ErrorCode.POLICY_VIOLATION, "records are kept for ever")
    assert change(rig, TOPIC_RESOURCE, "a-b", retention_ms="5")[0] == ErrorCode.NONE
    assert rig.image.resource_configs(TOPIC_RESOURCE, "a-b") == {"retention.ms": "5"}
    assert change(rig, BROKER_RESOURCE, "", log_retention_ms="7")[0] == ErrorCode.NONE
    assert Retention.asked[-1] == ConfigChange(BROKER_RESOURCE, "", {"log.retention.ms": "7"})


def test_only_what_changes_is_shown(rig: Rig) -> None:
    create_one(rig, "a-b", configs=[create.CreatableTopicConfig(name="retention.ms", value="5")])
    Retention.asked.clear()
    change(rig, TOPIC_RESOURCE, "a-b", retention_ms="5")
    assert Retention.asked == []
    change(rig, TOPIC_RESOURCE, "a-b", retention_ms=None, retention_bytes="9")
    assert Retention.asked == [ConfigChange(TOPIC_RESOURCE, "a-b", {"retention.ms": None, "retention.bytes": "9"})]


def test_what_alterconfigs_removes_by_not_naming_it_is_not_shown(rig: Rig) -> None:
    create_one(rig, "a-b", configs=[create.CreatableTopicConfig(name="retention.ms", value="5")])
    Retention.asked.clear()
    configs = [legacy.AlterableConfig(name="retention.bytes", value="9")]
    resource = legacy.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="a-b", configs=configs)
    rig.decide(lambda view: alter_configs(view, legacy.AlterConfigsRequest(resources=[resource])))
    assert Retention.asked == [ConfigChange(TOPIC_RESOURCE, "a-b", {"retention.bytes": "9"})]
    assert rig.image.resource_configs(TOPIC_RESOURCE, "a-b") == {"retention.bytes": "9"}


# -- the classes


@pytest.mark.parametrize("key", ["create_topic_policy_class_name", "alter_config_policy_class_name"])
@pytest.mark.parametrize(
    ("entry_point", "reason"),
    [
        ("org.example.Policy", "Java classes cannot be loaded here"),
        (f"{HERE}:Missing", "cannot be imported"),
        (f"{HERE}:fails", "cannot be made: RuntimeError"),
        (f"{HERE}:NoClose", "has no close"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused(key: str, entry_point: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        Policies.of(make_config(**{key: entry_point}))
    assert key.replace("_", ".") in str(caught.value)
    assert "secret" not in str(caught.value)


def test_without_policies_everything_goes() -> None:
    policies = Policies.of(make_config())
    policies.check_topic(NewTopic("t", 1, 1, None, {}))
    policies.check_change(ConfigChange(TOPIC_RESOURCE, "t", {}))
    policies.close()


def test_policies_end_with_the_controller_even_if_they_fail(caplog: pytest.LogCaptureFixture) -> None:
    policy = Names({"node.id": "100"})
    policies = Policies(policy)
    with pytest.raises(ApiError):
        policies.check_topic(NewTopic("t", 1, 1, None, {}))
    policies.close()
    assert policy.is_closed
    assert "create.topic.policy.class.name: close failed" in caplog.text
