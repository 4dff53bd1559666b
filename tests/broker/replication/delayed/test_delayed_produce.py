"""delayed_produce.py: a produce that expires while it is tried."""

from __future__ import annotations

from barnabas.broker.replication.delayed.delayed_produce import DelayedProduce, Errors
from barnabas.broker.requests.answers import NO_REPLY, Outcome
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from tests.support.broker.broker_rig import BrokerRig

TP = TopicPartition("unknown-here", 0)


def test_a_failure_found_during_expiration_is_reported() -> None:
    responses: list[Errors] = []

    def respond(errors: Errors) -> Outcome:
        responses.append(errors)
        return NO_REPLY

    class TimeUpMeanwhile(dict[TopicPartition, int]):
        """The reaper expires the operation just after the trying thread has removed the partition."""

        def __delitem__(self, tp: TopicPartition) -> None:
            super().__delitem__(tp)
            operation.run()

    rig = BrokerRig()
    operation = DelayedProduce(rig.manager.hosted, rig.manager.expirations, [], 1000, respond)
    operation._pending = TimeUpMeanwhile({TP: 5})
    operation.bind(lambda done: done.response())
    operation.safe_try_complete()
    rig.close()
    assert responses == [{TP: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}], "the producer would consider the batch written"
