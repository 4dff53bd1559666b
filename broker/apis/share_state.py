"""What the APIs of the share coordinator have in common: they name share partitions of one group, topic by topic.

A request without a group, without topics, or with a topic without partitions is answered with nothing, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators.share_state.values import SharePartitionKey
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.gathering import Gathering
from barnabas.broker.requests.parking import Park
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_state.operations import Operation
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.schema import Message

#: Makes an operation of a partition of the request.
Make = Callable[[SharePartitionKey, Any, "Completion[Any]"], "Operation"]


def carry_out(
    services: Services,
    request: Request,
    make: Make,
    *,
    response: Callable[..., Message],
    topic_result: Callable[..., Any],
    partition_result: Callable[[int, Any], Any],
) -> Answer:
    """Hand the operations of a request to the share coordinator; park until each has its answer.

    `partition_result(partition, answer)` makes what the response says of it.
    """
    message = request.message
    topics = message.topics
    if not message.group_id or not all(topic.partitions for topic in topics):
        return Reply(response())
    deferred = Deferred()
    named = [(topic.topic_id, partition) for topic in topics for partition in topic.partitions]

    def answered(answers: dict[int, Any]) -> None:
        index, results = 0, []
        for topic in topics:
            of_topic = []
            for partition in topic.partitions:
                of_topic.append(partition_result(partition.partition, answers[index]))
                index += 1
            results.append(topic_result(topic_id=topic.topic_id, partitions=of_topic))
        deferred.complete(response(results=results))

    gathering: Gathering[int, Any] = Gathering(len(named), answered)
    services.share_coordinator.handle(
        make(
            SharePartitionKey(message.group_id, topic_id, partition.partition),
            partition,
            partial(gathering.add, index),
        )
        for index, (topic_id, partition) in enumerate(named)
    )
    return Park(deferred)


def text_of(error: ErrorCode) -> str | None:
    """Return the text of an error; None without one."""
    return error.message if error else None
