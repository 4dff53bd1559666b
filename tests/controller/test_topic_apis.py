"""Quotas of changes of topics (KIP-599), asked of the controller directly and through an Envelope.

Covers `controller/apis/k19_create_topics.py`, `controller/apis/k20_delete_topics.py` and
`controller/apis/k37_create_partitions.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.channels.forwarding import encode_principal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import k19_create_topics as create_wire
from barnabas.protocol.messages import k20_delete_topics as delete_wire
from barnabas.protocol.messages import k37_create_partitions as grow_wire
from barnabas.protocol.messages import k49_alter_client_quotas as quota_wire
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from tests.controller.rig import topic
from tests.controller.test_any_request import SIZE_PREFIX, Asker

TOO_MUCH = ErrorCode.THROTTLING_QUOTA_EXCEEDED
BUCKET = 11  # tokens, with one a second


@pytest.fixture
def asker() -> Asker:
    asker = Asker(0)
    set_limit(asker, 1.0)
    return asker


def set_limit(asker: Asker, value: float) -> None:
    op = quota_wire.OpData(key="controller_mutation_rate", value=value)
    entity = [quota_wire.EntityData(entity_type="user", entity_name=None)]
    entry = quota_wire.RequestEntryData(entity=entity, ops=[op])
    response = asker.ask(RequestHeader(49, 1, 7, "c"), quota_wire.AlterClientQuotasRequest(entries=[entry]))
    assert [entry.error_code for entry in response.entries] == [0]


def create(asker: Asker, *sizes: int, version: int = 7) -> Any:
    count = len(asker.rig.image.topics)
    topics = [topic(f"new-{count}-{number}", size, 1) for number, size in enumerate(sizes)]
    return asker.ask(RequestHeader(19, version, 7, "c"), create_wire.CreateTopicsRequest(topics=topics))


def test_topics_are_created_until_the_bucket_is_overdrawn(asker: Asker) -> None:
    response = create(asker, BUCKET, 5, 1)
    assert [t.error_code for t in response.topics] == [0, 0, TOO_MUCH]
    assert response.topics[2].error_message == TOO_MUCH.message
    assert response.throttle_time_ms == 5_000
    asker.rig.clock.advance_ms(5_000)
    response = create(asker, 1)
    assert ([t.error_code for t in response.topics], response.throttle_time_ms) == ([0], 0)


def test_an_old_client_waits_after_its_response(asker: Asker) -> None:
    response = create(asker, BUCKET, 5, 1, version=5)
    assert [t.error_code for t in response.topics] == [0, 0, 0]
    assert response.throttle_time_ms == 6_000


def test_partitions_and_deletions_are_charged(asker: Asker) -> None:
    create(asker, BUCKET)
    name = next(t.name for t in asker.rig.image.topics.values() if len(t.partitions) == BUCKET)
    request = grow_wire.CreatePartitionsRequest(
        topics=[grow_wire.CreatePartitionsTopic(name=name, count=BUCKET + 3, assignments=None)], timeout_ms=1000
    )
    response = asker.ask(RequestHeader(37, 3, 7, "c"), request)
    assert [r.error_code for r in response.results] == [0]
    response = asker.ask(RequestHeader(37, 3, 7, "c"), grow_wire.CreatePartitionsRequest(
        topics=[grow_wire.CreatePartitionsTopic(name=name, count=BUCKET + 4, assignments=None)], timeout_ms=1000
    ))  # fmt: skip
    assert ([r.error_code for r in response.results], response.throttle_time_ms) == ([TOO_MUCH], 3_000)
    topics = [delete_wire.DeleteTopicState(name=name)]
    response = asker.ask(RequestHeader(20, 6, 7, "c"), delete_wire.DeleteTopicsRequest(topics=topics, timeout_ms=1000))
    assert [(r.name, r.error_code) for r in response.responses] == [(name, TOO_MUCH)]
    assert name in asker.rig.image.topic_ids
    old = delete_wire.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
    response = asker.ask(RequestHeader(20, 4, 7, "c"), old)
    assert [(r.name, r.error_code) for r in response.responses] == [(name, 0)]
    assert response.throttle_time_ms == (3 + BUCKET + 3) * 1000


def test_a_forwarded_request_is_charged_to_its_client(asker: Asker) -> None:
    create(asker, BUCKET, 50)
    request = create_wire.CreateTopicsRequest(topics=[topic("forwarded", 1, 1)])
    frame = encode_request(RequestHeader(19, 7, 7, "c"), request)[SIZE_PREFIX:]

    def forward(principal: str) -> Any:
        message = EnvelopeRequest(
            request_data=frame, request_principal=encode_principal(principal), client_host_address=bytes(4)
        )
        response = asker.ask(RequestHeader(58, 0, 1, "0"), message)
        _, offset = decode_response_header(response.response_data, 19, 7)
        return create_wire.CreateTopicsResponse.decode(response.response_data, 7, offset)

    refused = forward("User:ANONYMOUS")
    assert ([t.error_code for t in refused.topics], refused.throttle_time_ms) == ([TOO_MUCH], 50_000)
    assert [t.error_code for t in forward("User:bob").topics] == [0]


def test_without_limits_nothing_is_counted() -> None:
    asker = Asker(0)
    assert [t.error_code for t in create(asker, 5000).topics] == [0]
    assert asker.services.mutations.manager is None
    set_limit(asker, 1.0)
    assert [t.error_code for t in create(asker, 1).topics] == [0]
