"""AutoTopicCreation: one request for a topic at a time, on behalf of the client or of the broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.metadata.auto_topic_creation import SHOWN_MAX, AutoTopicCreation
from barnabas.common.clock import FakeClock
from barnabas.common.logs import LINES_MAX
from barnabas.config import Config
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import SIZE_BYTES, RequestHeader, decode_request_header, response_parts
from barnabas.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.k58_envelope import EnvelopeResponse

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
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def creation(channel: ScriptedChannel, clock: FakeClock) -> AutoTopicCreation:
    return AutoTopicCreation(CONFIG, channel, clock)  # type: ignore[arg-type]


def client_request() -> Any:
    """A request of a client."""
    return SimpleNamespace(
        header=SimpleNamespace(api_key=ApiKey.METADATA, correlation_id=5),
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


def test_what_the_file_does_not_say_the_controller_decides(channel: ScriptedChannel, clock: FakeClock) -> None:
    config = Config.from_properties({"node.id": "1"})
    AutoTopicCreation(config, channel, clock).create_internal("plain")  # type: ignore[arg-type]
    ((message, _),) = channel.sent
    (topic,) = message.topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)


def test_a_failed_creation_is_logged_and_may_be_repeated(
    creation: AutoTopicCreation, channel: ScriptedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    creation.create_internal("a")
    result = CreatableTopicResult(name="a", error_code=38, error_message="too few brokers")
    channel.sent[0][1](CreateTopicsResponse(topics=[result]))
    assert "a was not created: too few brokers" in caplog.text
    creation.create_internal("a")
    assert len(channel.sent) == 2


def test_a_topic_that_was_created_meanwhile_is_no_warning(
    creation: AutoTopicCreation, channel: ScriptedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    creation.create_internal("a")
    result = CreatableTopicResult(name="a", error_code=36, error_message="Topic 'a' already exists.")
    channel.sent[0][1](CreateTopicsResponse(topics=[result]))
    assert caplog.text == ""


# Topics of streams groups


def streams_topic(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=2, replication_factor=-1)


def answer(*topics: CreatableTopicResult, error_code: int = 0) -> EnvelopeResponse:
    """The controller's answer to the request of `client_request()`."""
    header = RequestHeader(ApiKey.CREATE_TOPICS, CreateTopicsRequest.MAX_VERSION, 5, "c")
    parts = response_parts(header, CreateTopicsResponse(topics=list(topics)))
    frame = b"".join(bytes(part) for part in parts)[SIZE_BYTES:]  # type: ignore[arg-type]
    return EnvelopeResponse(response_data=frame, error_code=error_code)


def test_topics_of_a_streams_group_are_created_as_described_and_as_the_member(
    creation: AutoTopicCreation, channel: ScriptedChannel
) -> None:
    creation.create_for_streams(["s-changelog"], streams_topic, client_request(), 1000)
    creation.create_for_streams(["s-changelog"], streams_topic, client_request(), 1000)
    ((envelope, on_done),) = channel.sent
    assert b"alice" in envelope.request_principal
    _, start = decode_request_header(envelope.request_data)
    message = CreateTopicsRequest.decode(memoryview(envelope.request_data), CreateTopicsRequest.MAX_VERSION, start)
    assert message.topics == [streams_topic("s-changelog")]
    on_done(answer(CreatableTopicResult(name="s-changelog")))
    assert creation.streams_errors(["s-changelog"]) == {}


def test_a_failed_creation_is_reported_and_not_repeated_for_a_while(
    creation: AutoTopicCreation, channel: ScriptedChannel, clock: FakeClock
) -> None:
    creation.create_for_streams(["a", "b"], streams_topic, client_request(), 1000)
    channel.sent[0][1](
        answer(
            CreatableTopicResult(name="a", error_code=38, error_message="too few brokers"),
            CreatableTopicResult(name="b", error_code=36, error_message="Topic 'b' already exists."),
        )
    )
    assert creation.streams_errors(["a", "b"]) == {"a": "too few brokers"}
    creation.create_for_streams(["a"], streams_topic, client_request(), 1000)
    assert len(channel.sent) == 1
    clock.advance_ms(1000)
    creation.create_for_streams(["a"], streams_topic, client_request(), 1000)
    assert len(channel.sent) == 2


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (None, "The controller did not answer in time."),
        (
            EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message,
        ),
        (EnvelopeResponse(response_data=b"x"), ErrorCode.UNKNOWN_SERVER_ERROR.message),
        (EnvelopeResponse(response_data=bytes(5)), ErrorCode.UNKNOWN_SERVER_ERROR.message),  # of another request
    ],
)
def test_an_answer_that_says_nothing_of_topics_is_an_error_of_each(
    creation: AutoTopicCreation, channel: ScriptedChannel, response: EnvelopeResponse | None, message: str
) -> None:
    creation.create_for_streams(["a"], streams_topic, client_request(), 1000)
    channel.sent[0][1](response)
    assert creation.streams_errors(["a"]) == {"a": message}


def test_a_client_cannot_fill_the_log_with_the_names_of_topics(
    creation: AutoTopicCreation, channel: ScriptedChannel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    names = [f"t{n}" for n in range(SHOWN_MAX + 5)]
    creation.create_for_streams(names, streams_topic, client_request(), 1000)
    channel.sent[0][1](None)
    asked, *refused = caplog.messages
    assert asked.endswith(" t9 and 5 more")
    assert len(refused) == LINES_MAX
    assert len(creation.streams_errors(names)) == len(names)
    caplog.clear()
    for number in range(100):
        creation.create([f"u{number}"], client_request())
    assert len(caplog.messages) == LINES_MAX - 1
