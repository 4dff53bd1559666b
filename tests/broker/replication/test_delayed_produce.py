"""DelayedProduce: what is answered when the time is up while somebody looks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from broker.answers import NO_REPLY
from broker.purgatory import Outcome
from broker.replication.delayed_produce import DelayedProduce, Errors

TP = TopicPartition("t", 0)


def test_a_failure_that_is_noted_as_the_time_runs_out_is_told() -> None:
    answered: list[Errors] = []
    refused = SimpleNamespace(has_reached=lambda _offset: (False, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    manager: Any = SimpleNamespace(partition=lambda _tp: refused, count_produce_expiration=lambda _tp: None)

    def respond(errors: Errors) -> Outcome:
        answered.append(errors)
        return NO_REPLY

    class TimeUpMeanwhile(dict[TopicPartition, int]):
        """The reaper comes while the one who tries has just taken the partition out."""

        def __delitem__(self, tp: TopicPartition) -> None:
            super().__delitem__(tp)
            operation.run()

    operation = DelayedProduce(manager, [], 1000, respond)
    operation._pending = TimeUpMeanwhile({TP: 5})
    operation.bind(lambda done: done.response())
    operation.safe_try_complete()
    assert answered == [{TP: ErrorCode.NOT_LEADER_OR_FOLLOWER}], "the producer would take it for written"
