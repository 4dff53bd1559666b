"""Faults on removed versions: an error for some partitions of a request, or for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.handlers import Dispatcher
from barnabas.broker.requests.request import Request
from barnabas.broker.requests.request_log import RequestLog
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.protocol.errors import ErrorCode as E
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages.k09_offset_fetch import OffsetFetchRequestTopic
from barnabas.protocol.removed import k08_offset_commit as commit_wire
from barnabas.protocol.removed import removed_request, removed_response
from barnabas.protocol.schema import Message
from tests.broker.faults.fault_rig import FaultRig
from tests.broker.wiring.removed.test_records import CLIENT, TABLE_0_10, asked, fetched, message_set, produced
from tests.support.broker.broker_rig import state

GOOD = message_set(b"a")


@pytest.fixture
def rig() -> Iterator[FaultRig]:
    made = FaultRig()
    log = RequestLog(RequestMetrics(made.registry))
    made.dispatcher = Dispatcher(made.engine.wrap(TABLE_0_10), made.services, log, made.clock)
    made.push({"t": [state(1), state(1)]})
    yield made
    made.close()


def codes(rig: FaultRig, message: Message, version: int) -> list[int]:
    """Send a frame; return the error codes of the answer's partitions."""
    header = RequestHeader(message.API_KEY, version, 7, "old")
    request = Request(None, rig, CLIENT, memoryview(bytearray(encode_request(header, message)[4:])))  # type: ignore[arg-type]
    request.received_ns = request.dequeued_ns = rig.clock.monotonic_ns()
    rig.dispatcher.handle(request, [])
    assert request.parts is not None, "it has an answer"
    frame = b"".join(bytes(part) for part in request.parts)  # type: ignore[arg-type]
    _, start = decode_response_header(frame, message.API_KEY, version, 4)
    answer: Any = removed_response(message.API_KEY).decode(frame, version, start)
    topics = answer.responses if hasattr(answer, "responses") else answer.topics
    return [
        row.error_code
        for topic in topics
        for row in (topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions)
    ]


def committed(*indexes: int) -> Message:
    rows = [commit_wire.OffsetCommitRequestPartition(partition_index=i, committed_offset=1) for i in indexes]
    return commit_wire.OffsetCommitRequest(
        group_id="g", topics=[commit_wire.OffsetCommitRequestTopic(name="t", partitions=rows)]
    )


def fetched_offsets(*indexes: int) -> Message:
    message: Any = removed_request(9)(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(indexes))]
    )
    return message  # type: ignore[no-any-return]


MESSAGES = {
    "Produce": (lambda *indexes: produced(*((i, GOOD) for i in indexes)), 2),
    "Fetch": (lambda *indexes: fetched(*(0 for _ in indexes)), 3),
    "ListOffsets": (lambda *indexes: asked(*((i, -1) for i in indexes)), 0),
    "OffsetCommit": (committed, 1),
    "OffsetFetch": (fetched_offsets, 0),
}


@pytest.mark.parametrize("api", MESSAGES)
def test_an_error_of_all_partitions(rig: FaultRig, api: str) -> None:
    make, highest = MESSAGES[api]
    rig.add(api=api, topic="t", error="NOT_LEADER_OR_FOLLOWER")
    for version in range(highest + 1):
        assert codes(rig, make(0, 1), version) == [E.NOT_LEADER_OR_FOLLOWER] * 2


@pytest.mark.parametrize("api", ["Produce", "Fetch", "ListOffsets"])
def test_an_error_of_one_partition(rig: FaultRig, api: str) -> None:
    make, highest = MESSAGES[api]
    rig.add(api=api, topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    for version in range(highest + 1):
        assert codes(rig, make(0, 1), version) == [E.NONE, E.NOT_LEADER_OR_FOLLOWER]
