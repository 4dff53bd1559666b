"""Asks the group APIs as the wire would: requests and answers go through their codecs at the version under test."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from barnabas.broker.coordinators.share_groups.latest_offsets import EndOffset
from barnabas.broker.coordinators.share_groups.requests import ShareGroupRequests
from barnabas.broker.coordinators.streams_groups.requests import StreamsGroupRequests
from barnabas.broker.metadata.metadata_cache import BrokerInfo, Endpoint
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.parking import Park
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k19_create_topics import CreatableTopic
from barnabas.protocol.schema import Message
from tests.broker.coordinators.fake_log import World, snapshot

CONTEXT = RequestContext("CLIENT", "PLAINTEXT", "10.0.0.9", 5555, "c-0")
CONSUMER = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


class Pending:
    """An answer to come."""

    def __init__(self, rig: Rig, answer: Park, key: int, version: int) -> None:
        self._answer = answer
        self._key = key
        self._version = version

    @property
    def is_there(self) -> bool:
        return self._answer.operation.is_completed

    def get(self) -> Any:
        assert self.is_there
        outcome = self._answer.operation.response()
        return through_wire(outcome.message if isinstance(outcome, Reply) else outcome, self._key, self._version)


class FakeEnds:
    """Partitions that end at offset 100, except those of `errors`."""

    def __init__(self) -> None:
        self.errors: dict[int, ErrorCode] = {}  # by partition

    def ask(self, partitions: Any, reply: Any) -> None:
        reply({tp: EndOffset(self.errors.get(tp.partition, ErrorCode.NONE), 100) for tp in partitions})


class FakeCreation:
    """Keeps the topics that are to be created; `failed` says why some cannot be."""

    def __init__(self) -> None:
        self.internal: list[str] = []
        self.of_streams: list[CreatableTopic] = []
        self.failed: dict[str, str] = {}
        self.keep_errors_ms = 0

    def create_internal(self, name: str) -> None:
        self.internal.append(name)

    def create_for_streams(
        self, names: list[str], describe: Callable[[str], CreatableTopic], request: Request, keep_errors_ms: int
    ) -> None:
        self.of_streams += [describe(name) for name in names]
        self.keep_errors_ms = keep_errors_ms

    def streams_errors(self, names: list[str]) -> dict[str, str]:
        return {name: self.failed[name] for name in names if name in self.failed}


class Rig:
    """A broker's services as far as groups need them."""

    def __init__(self, **config: Any) -> None:
        self.world = World(**config)
        self.client_address = "10.0.0.9"
        endpoints = {"CLIENT": Endpoint("broker0", 9092, 0), "OTHER": Endpoint("other0", 9093, 0)}
        self.world.cache.snapshot = SimpleSnapshot.with_broker(endpoints)
        self.creation = FakeCreation()
        self.ends = FakeEnds()
        share_groups = ShareGroupRequests(
            self.world.coordinator,
            self.world.persister,
            self.ends,
            self.world.cache,  # type: ignore[arg-type]
        )
        self.services: Any = SimpleNamespace(
            group_coordinator=self.world.coordinator,
            share_groups=share_groups,
            streams_groups=StreamsGroupRequests(self.world.config, self.world.coordinator, self.world.cache),  # type: ignore[arg-type]
            metadata_cache=self.world.cache,
            auto_topic_creation=self.creation,
        )

    def send(self, api: ModuleType, message: Message, version: int, listener: str = "CLIENT") -> Pending:
        key = api.API.key
        decoded = type(message).decode(message.encode(version), version)
        context = RequestContext(listener, "PLAINTEXT", self.client_address, 5555, "c-0")
        request = Request.for_message(RequestHeader(key, version, 1, "client"), decoded, context)
        answer = api.API.handle(self.services, request)
        if isinstance(answer, Reply):
            from barnabas.broker.purgatory import Deferred

            deferred = Deferred()
            deferred.complete(answer)
            answer = Park(deferred)
        assert isinstance(answer, Park)
        assert answer.purgatory is None
        return Pending(self, answer, key, version)

    def ask(self, api: ModuleType, message: Message, version: int | None = None, listener: str = "CLIENT") -> Any:
        return self.send(api, message, api.API.versions[1] if version is None else version, listener).get()


class SimpleSnapshot:
    """Makes pictures of a cluster with one live broker, 0."""

    @staticmethod
    def with_broker(endpoints: dict[str, Endpoint], topics: dict[str, int] | None = None) -> Any:
        picture = snapshot(topics)
        return type(picture)(
            brokers={0: BrokerInfo(0, None, endpoints)}, topics=picture.topics, topic_names=picture.topic_names
        )


def through_wire(message: Message, key: int, version: int) -> Any:
    cls = response_class(key)
    assert isinstance(message, cls)
    return cls.decode(message.encode(version), version)
