"""A request on its way through the faults."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.broker.answers import Answer, Close, Park
from barnabas.broker.faults import answers, fetching
from barnabas.broker.purgatory import Deferred
from barnabas.faults.shapes import places_asked, shapes_of
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.apis.api import Api
    from barnabas.broker.faults.armed import Armed
    from barnabas.broker.faults.matching import Partition
    from barnabas.broker.request_channel import Request
    from barnabas.broker.storage.scheduler import TaskScheduler

log = logging.getLogger("barnabas.faults")

TopicName = Callable[[bytes], str | None]


class Call:
    """One request, and what the faults' actions need to answer it. Owner: whoever handles the request."""

    __slots__ = ("_partitions", "api", "request", "scheduler", "sender", "services", "topic_name")

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
        self.sender = sender  # the id of the node that sent it, None for a client
        self.scheduler = scheduler
        self.topic_name = topic_name
        self._partitions: list[Partition] | None = None

    @property
    def key(self) -> int:
        return self.request.header.api_key

    @property
    def version(self) -> int:
        return self.request.header.api_version

    @property
    def partitions(self) -> list[Partition]:
        """What the request names, or its fetch session does; topics that nobody knows have the name ""."""
        if self._partitions is None:
            self._partitions = self._named()
        return self._partitions

    def _named(self) -> list[Partition]:
        if self.request.message is None:
            return []
        if self.key == ApiKey.FETCH:
            return fetching.partitions_of(self.services, self.request)
        named: list[Partition] = []
        for items in shapes_of(self.key, self.version):
            for place in places_asked(items, self.request.message):
                name = place.topic or self.topic_name(place.topic_id or b"")
                named.append((name or "", place.partition))
        return named

    # Answers

    def carry_out(self) -> Answer:
        """What the API answers."""
        return answers.carried_out(self.api, self.services, self.request)

    def refuse(self, code: ErrorCode) -> Answer:
        """The error as the answer to all of the request; where none may be sent, the connection's end."""
        if self.expects_nothing or self.request.message is None:
            return Close(f"{code.name} by a fault, and nothing may be answered")
        return answers.refusal(self.api, self.request, ApiError(code))

    @property
    def expects_nothing(self) -> bool:
        """Whether this is a produce with acks=0."""
        return self.key == ApiKey.PRODUCE and bool(self.request.message.acks == 0)

    def after(self, answer: Answer, follow: answers.Follow) -> Answer:
        """What `follow` makes of the answer, when it is there."""
        return answers.after(self.api, self.request, answer, follow)

    def later(self, armed: Armed, delay_ms: int, answer: Callable[[], Answer]) -> Answer:
        """What `answer()` gives in `delay_ms`, or when the fault is removed; no thread waits for it."""
        deferred = Deferred()

        def go() -> None:
            answers.settle(self.api, self.request, deferred, answer)
            self._wake_moved()

        held = armed.hold(self.request, go)
        held.task = self.scheduler.schedule_once("fault", held.go, delay_ms)
        return Park(deferred)

    def _wake_moved(self) -> None:
        """What handlers do after an API has returned: the handler of this request is long gone."""
        for key in list(self.request.moved):
            try:
                self.services.complete_delayed(key)
            except Exception:
                log.exception("waking what waits for %s failed", key)
