"""AutoTopicCreation: one request for a topic at a time, on behalf of the client or of the broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.metadata.auto_topic_creation import AutoTopicCreation
from barnabas.config import Config
from barnabas.protocol.messages.k19_create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

CONFIG = Config.from_properties(
    {
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "h:1",
        "num.partitions": "3",
        "default.replication.factor": "2",
        "offsets.topic.num.partitions": "50",
        "transaction.state.log.num.partitions": "40",
    },
    "broker",
)


class ScriptedChannel:
    """Keeps the requests; the test responds."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []

    def send(self, message: Any, on_done: Any) -> None:
        """Keep the request and its callback."""
        self.sent.append((message, on_done))


@pytest.fixture
def channel() -> ScriptedChannel:
    return ScriptedChannel()


@pytest.fixture
def creation(channel: ScriptedChannel) -> AutoTopicCreation:
    return AutoTopicCreation(CONFIG, channel)  # type: ignore[arg-type]


def client_request() -> Any:
    """A request of a client."""
    return SimpleNamespace(
        header=SimpleNamespace(correlation_id=5),
        client_id="c",
        principal="User:alice",
        context=SimpleNamespace(is_token_authenticated=False),
        client_address="10.0.0.1",
    )


def test_a_topic_is_requested_once_for_several_clients(creation: AutoTopicCreation, channel: ScriptedChannel) -> None:
    creation.create(["a", "b", "a"], client_request())
    creation.create(["a"], client_request())
    ((envelope, on_done),) = channel.sent
    assert envelope.client_host_address == bytes([10, 0, 0, 1])
    on_done(None)
    creation.create(["a"], client_request())
    assert len(channel.sent) == 2, "after a timeout the topic is requested again"


@pytest.mark.parametrize(
    ("name", "partitions", "factor", "policy"),
    [
        ("__consumer_offsets", 50, 3, "compact"),
        ("__transaction_state", 40, 3, "compact"),
        ("plain", 3, 2, None),
    ],
)
def test_internal_topics_have_their_own_configs(
    creation: AutoTopicCreation, channel: ScriptedChannel, name: str, partitions: int, factor: int, policy: str | None
) -> None:
    creation.create_internal(name)
    creation.create_internal(name)
    ((message, _),) = channel.sent
    assert isinstance(message, CreateTopicsRequest)
    (topic,) = message.topics
    configs = {config.name: config.value for config in topic.configs}
    assert (topic.num_partitions, topic.replication_factor, configs.get("cleanup.policy")) == (
        partitions,
        factor,
        policy,
    )


def test_a_failed_creation_is_logged_and_may_be_repeated(
    creation: AutoTopicCreation, channel: ScriptedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    creation.create_internal("a")
    result = CreatableTopicResult(name="a", error_code=38, error_message="too few brokers")
    channel.sent[0][1](CreateTopicsResponse(topics=[result]))
    assert "a was not created: too few brokers" in caplog.text
    creation.create_internal("a")
    assert len(channel.sent) == 2
