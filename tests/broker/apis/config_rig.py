"""A broker's services as far as the config APIs use them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.channels.forwarding import ForwardingManager
from barnabas.broker.metadata.metadata_cache import MetadataSnapshot, Node, TopicInfo
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.settings.dynamic_config import DynamicConfig
from barnabas.common.clock import FakeClock
from barnabas.config import Config
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.metadata_records import ConfigRecord
from barnabas.protocol.schema import Message

CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "c")


class Channel:
    """The channel to the controller: records what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []

    def send(self, message: Any, on_done: Any, *, timeout_ms: int | None = None) -> None:
        self.sent.append((message, on_done))


class Snapshot(MetadataSnapshot):
    """A snapshot with two live brokers, in order of ids as always."""

    def nodes(self, listener_name: str) -> list[Node]:
        return [Node(1, "b1", 9092, None), Node(2, "b2", 9092, None)]


def make_services(**settings: str) -> Any:
    """Services of broker 1 with topics a and b."""
    properties = {
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "h:1",
        **{name.replace("_", "."): text for name, text in settings.items()},
    }
    config = Config.from_properties(properties, "broker")
    channel: Any = Channel()
    purgatory: Any = None
    topics = {name: TopicInfo(name, bytes(16), {}) for name in ("b", "a")}
    return SimpleNamespace(
        broker_id=1,
        config=config,
        dynamic_config=DynamicConfig(config),
        metadata_cache=SimpleNamespace(snapshot=Snapshot(topics=topics)),
        channel=channel,
        forwarding=ForwardingManager(config, channel, purgatory, FakeClock()),
    )


def set_configs(services: Any, type_: int, name: str, **texts: str | None) -> None:
    """Apply pushed settings."""
    services.dynamic_config.apply_records(
        [
            ConfigRecord(resource_type=type_, resource_name=name, name=key.replace("_", "."), value=text)
            for key, text in texts.items()
        ],
        is_full=False,
    )


def make_request(api: Api, message: Message, version: int | None = None) -> Request:
    """Make a request of a version, the highest by default."""
    chosen = api.versions[1] if version is None else version
    return Request.for_message(RequestHeader(api.key, chosen, 7, "client"), message, CONTEXT)


def answer_of(api: Api, services: Any, message: Message, version: int | None = None) -> Any:
    """Return the message that an API replies, as a client of the version decodes it."""
    request = make_request(api, message, version)
    answer = api.handle(services, request)
    assert isinstance(answer, Reply)
    chosen = request.header.api_version
    return type(answer.message).decode(answer.message.encode(chosen), chosen)
