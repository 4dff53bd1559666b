"""DelayedProduce: what is answered when the time is up while somebody looks."""

from __future__ import annotations

from barnabas.broker.answers import NO_REPLY
from barnabas.broker.purgatory import Outcome
from barnabas.broker.replication.delayed_produce import DelayedProduce, Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from tests.support.broker_room import BrokerRoom

TP = TopicPartition("unknown-here", 0)


def test_a_failure_that_is_noted_as_the_time_runs_out_is_told() -> None:
    answered: list[Errors] = []

    def respond(errors: Errors) -> Outcome:
        answered.append(errors)
        return NO_REPLY

    class TimeUpMeanwhile(dict[TopicPartition, int]):
        """The reaper comes while the one who tries has just taken the partition out."""

        def __delitem__(self, tp: TopicPartition) -> None:
            super().__delitem__(tp)
            operation.run()

    room = BrokerRoom()
    operation = DelayedProduce(room.manager, [], 1000, respond)
    operation._pending = TimeUpMeanwhile({TP: 5})
    operation.bind(lambda done: done.response())
    operation.safe_try_complete()
    room.close()
    assert answered == [{TP: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}], "the producer would take it for written"
