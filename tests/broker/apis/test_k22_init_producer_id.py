"""InitProducerId, and the blocks of producer ids of `channels/producer_ids.py`."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse
from tests.support.broker.broker_rig import BrokerRig


@pytest.fixture
def rig():
    made = BrokerRig()
    yield made
    made.close()


def test_producer_ids_come_from_blocks(rig):
    def init(**about):
        response = rig.answer(InitProducerIdRequest(transactional_id=None, **about), 4)
        return response.error_code, response.producer_id, response.producer_epoch

    assert init() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert init()[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ((_, on_done),) = rig.channel.sent
    on_done(AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=10))
    assert [init() for _ in range(9)] == [(0, 1000 + i, 0) for i in range(9)]
    assert len(rig.channel.sent) == 2  # nine tenths are used: the next block is requested
    rig.channel.sent[1][1](AllocateProducerIdsResponse(producer_id_start=5000, producer_id_len=10))
    assert [init()[1] for _ in range(2)] == [1009, 5000]
    assert init(producer_id=5)[0] == ErrorCode.INVALID_REQUEST
    transactional = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
    assert rig.answer(transactional, 4).error_code == ErrorCode.NOT_COORDINATOR
