"""ProducerIds: blocks of ids, requested early."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.channels.producer_ids import ProducerIds
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse


class ScriptedChannel:
    """Keeps the callbacks of requests; the test responds."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def send(self, message: Any, on_done: Any) -> None:
        """Keep the callback."""
        assert (message.broker_id, message.broker_epoch) == (3, 7)
        self.waiting.append(on_done)

    def give(self, first: int, size: int = 20) -> None:
        """Respond to the oldest request with a block."""
        self.waiting.pop(0)(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=size))


@pytest.fixture
def channel() -> ScriptedChannel:
    return ScriptedChannel()


@pytest.fixture
def ids(channel: ScriptedChannel) -> ProducerIds:
    return ProducerIds(3, lambda: 7, channel)  # type: ignore[arg-type]


def test_without_a_block_the_producer_has_to_try_again(ids: ProducerIds, channel: ScriptedChannel) -> None:
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            ids.take()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(channel.waiting) == 1, "one request at a time"
    channel.give(1000)
    assert ids.take() == 1000
    assert ids.highest == 1019


def test_the_next_block_is_requested_when_a_tenth_is_left(ids: ProducerIds, channel: ScriptedChannel) -> None:
    ids.prefetch()
    ids.prefetch()
    channel.give(1000)
    assert [ids.take() for _ in range(17)] == list(range(1000, 1017))
    assert not channel.waiting
    assert ids.take() == 1017
    channel.give(5000)
    assert [ids.take() for _ in range(3)] == [1018, 1019, 5000], "no id is lost or used twice"
    ids.prefetch()
    assert not channel.waiting


@pytest.mark.parametrize("response", [None, AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)])
def test_a_failed_request_is_repeated_with_the_next_producer(
    ids: ProducerIds, channel: ScriptedChannel, response: Any
) -> None:
    ids.prefetch()
    channel.waiting.pop()(response)
    with pytest.raises(ApiError):
        ids.take()
    channel.give(1000)
    assert ids.take() == 1000
