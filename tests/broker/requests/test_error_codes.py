"""The error codes of responses."""

from __future__ import annotations

import pytest

from barnabas.broker.requests.error_codes import collector_for, error_codes_of
from barnabas.protocol.api_keys import ROWS
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.messages.k12_heartbeat import HeartbeatResponse


def test_codes_are_found_at_any_depth() -> None:
    assert error_codes_of(HeartbeatResponse(error_code=27)) == [27]
    topics = [
        TopicProduceResponse(
            name=name, partition_responses=[PartitionProduceResponse(error_code=code) for code in codes]
        )
        for name, codes in (("a", [0, 6]), ("b", [3]), ("c", []))
    ]
    assert error_codes_of(ProduceResponse(responses=topics)) == [0, 6, 3]
    assert error_codes_of(ProduceResponse()) == []


@pytest.mark.parametrize("key", ROWS)
def test_every_response_can_be_searched(key: int) -> None:
    message = response_class(key)()
    codes = error_codes_of(message)
    assert codes in ([], [0])
    assert (codes == [0]) == any(field.name == "error_code" for field in message.FIELDS)
    assert collector_for(type(message)) is collector_for(type(message))
