"""A request on its path through the faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.broker.faults.actions import answers, fetching
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Close
from barnabas.broker.requests.parking import Answer, Continuation, Follow, then
from barnabas.faults.shapes import places_asked, shapes_of
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.faults.armed import Armed
    from barnabas.broker.faults.matching import Partition
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.request import Request
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.faults.shapes import Place

TopicName = Callable[[bytes], str | None]


class Call:
    """One request, with everything that the faults' actions need to answer it. Owner: the thread that handles it."""

    __slots__ = ("_partitions", "_topic_name", "api", "request", "scheduler", "sender", "services")

    def __init__(
        self,
        api: Api,
        services: Any,
        request: Request,
        sender: int | None,
        scheduler: TaskScheduler,
        topic_name: TopicName,
    ) -> None:
        self.api = api
        self.services = services
        self.request = request
        self.sender = sender  # the id of the sending node, None for a client
        self.scheduler = scheduler
        self._topic_name = topic_name
        self._partitions: list[Partition] | None = None

    @property
    def key(self) -> int:
        """The API key."""
        return self.request.header.api_key

    @property
    def version(self) -> int:
        """The version of the API."""
        return self.request.header.api_version

    @property
    def partitions(self) -> list[Partition]:
        """The partitions of the request or of its fetch session; unknown topics have the name ""."""
        if self._partitions is None:
            self._partitions = self._named()
        return self._partitions

    def _named(self) -> list[Partition]:
        if self.request.message is None:
            return []
        if self.key == ApiKey.FETCH:
            return fetching.partitions_of(self.services, self.request)
        return [
            self.partition_at(place)
            for items in shapes_of(self.key, self.version)
            for place in places_asked(items, self.request.message)
        ]

    def partition_at(self, place: Place) -> Partition:
        """Return the partition at a place of the request or its response. The name of an unknown topic id is ""."""
        return place.topic or self._topic_name(place.topic_id or b"") or "", place.partition

    # Answers

    def carry_out(self) -> Answer:
        """Return the API's answer."""
        return answers.carried_out(self.api, self.services, self.request)

    def refuse(self, code: ErrorCode) -> Answer:
        """Return the error as the answer to the whole request, or `Close` if no response may be sent."""
        if self.expects_nothing or self.request.message is None:
            return Close(f"{code.name} by a fault, and the request has no response")
        return answers.refusal(self.api, self.request, ApiError(code))

    @property
    def expects_nothing(self) -> bool:
        """Whether this is a produce with acks=0."""
        return self.key == ApiKey.PRODUCE and bool(self.request.message.acks == 0)

    def after(self, answer: Answer, follow: Follow) -> Answer:
        """Return what `follow` makes of the answer, now or when it is known."""
        return then(answer, follow, lambda error: answers.refusal(self.api, self.request, error))

    def later(self, armed: Armed, delay_ms: int, answer: Callable[[], Answer]) -> Answer:
        """Answer with `answer()` in `delay_ms`, or when the fault is removed; no thread waits meanwhile."""
        pause = Deferred()
        held = armed.hold(self.request, pause.force_complete)
        held.task = self.scheduler.schedule_once("fault", held.go, delay_ms)
        return Continuation(pause, answer)
