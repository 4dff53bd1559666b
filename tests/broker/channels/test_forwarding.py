"""Admin requests forwarded to the controller (`channels/forwarding.py`, `apis/k19_create_topics.py`,
`apis/k20_delete_topics.py`, `apis/k37_create_partitions.py`), and their answers.
"""

from __future__ import annotations

import sys

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.channels.forwarding import encode_principal, make_envelope
from barnabas.common.logs import LINES_MAX
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, encode_request, response_parts
from barnabas.protocol.messages import k19_create_topics as create_wire
from barnabas.protocol.messages import k20_delete_topics as delete_wire
from barnabas.protocol.messages import k49_alter_client_quotas as quota_wire
from barnabas.protocol.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.k39_renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.messages.k58_envelope import EnvelopeResponse
from barnabas.protocol.push_tags import TAG_OFFSET, set_offset, set_tag, token_id_of
from tests.support.broker.broker_rig import BrokerRig, state


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"old": [state(1)]})
    yield made
    made.close()


def envelope_with(message, version):
    header = RequestHeader(message.API_KEY, version, 7, "tester")
    parts = response_parts(header, message)
    whole = b"".join(bytes(part) for part in parts)
    return EnvelopeResponse(response_data=whole[4:] if int.from_bytes(whole[:4], "big") == len(whole) - 4 else whole)


def create(names, **about):
    topics = [create_wire.CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    return create_wire.CreateTopicsRequest(topics=topics, timeout_ms=1000, **about)


def created(name, error=0):
    result = create_wire.CreatableTopicResult(name=name, error_code=error, num_partitions=2)
    return envelope_with(create_wire.CreateTopicsResponse(topics=[result]), 7)


def test_a_creation_is_answered_when_the_topic_is_visible(rig):
    waiting = rig.answer(create(["new"]), 7)
    ((envelope, on_done),) = rig.channel.sent
    assert envelope.client_host_address == bytes([127, 0, 0, 1])
    on_done(created("new"))
    assert waiting.response is None
    rig.push({"new": [state(1)]})
    assert waiting.response is None  # one partition of two
    rig.push({"new": [state(1), state(1)]})
    assert waiting.response.topics[0].name == "new"


def test_a_creation_is_answered_at_its_timeout_even_if_the_topic_is_not_visible(rig):
    waiting = rig.answer(create(["new"]), 7)
    rig.channel.sent[0][1](created("new"))
    rig.advance_ms(rig.config.request_timeout_ms + 1)
    assert waiting.response.topics[0].error_code == 0


def test_an_answered_request_is_not_kept(rig):
    """Completed operations linger in their purgatory; their requests may be large."""
    request = rig.request(quota_wire.AlterClientQuotasRequest(entries=[]), 1)

    def references():  # Why a function: pytest keeps the values of an assertion
        return sys.getrefcount(request.message)

    before = references()
    parked = TABLE[49].handle(rig.services, request)
    parked.operation.bind(lambda _operation: None)
    rig.channel.sent.pop()[1](envelope_with(quota_wire.AlterClientQuotasResponse(), 1))
    assert references() > before
    assert parked.answer().message.entries == []
    assert references() == before


def test_a_failure_or_a_validation_is_answered_at_once(rig):
    waiting = rig.answer(create(["old"]), 7)
    rig.channel.sent[0][1](created("old", ErrorCode.TOPIC_ALREADY_EXISTS))
    assert waiting.response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    trial = rig.answer(create(["new"], validate_only=True), 7)
    rig.channel.sent[1][1](created("new"))
    assert trial.response.topics[0].error_code == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, ErrorCode.REQUEST_TIMED_OUT),
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\x00\x00\x00\x07\x00\x01"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_unusable_answer_becomes_an_error_of_each_topic(rig, answer, error):
    waiting = rig.answer(create(["a", "b"]), 7)
    rig.channel.sent[0][1](answer)
    assert [t.error_code for t in waiting.response.topics] == [error] * 2


def test_answers_that_refuse_do_not_fill_the_log(rig, caplog):
    for number in range(LINES_MAX + 20):
        rig.answer(create(["a"]), 7)
        rig.channel.sent[number][1](EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert caplog.text.count("the controller refused a forwarded request") == LINES_MAX


def test_a_deletion_is_answered_when_the_topic_is_gone(rig):
    request = delete_wire.DeleteTopicsRequest(topics=[delete_wire.DeleteTopicState(name="old")], timeout_ms=1000)
    waiting = rig.answer(request, 6)
    result = delete_wire.DeletableTopicResult(name="old")
    rig.channel.sent[0][1](envelope_with(delete_wire.DeleteTopicsResponse(responses=[result]), 6))
    assert waiting.response is None
    rig.answer(rig.update_metadata({"old": [state(-2)]}, type_=1), 8)
    assert waiting.response.responses[0].name == "old"


def test_a_change_of_security_metadata_is_answered_when_this_broker_has_it(rig):
    request = quota_wire.AlterClientQuotasRequest(entries=[])
    waiting = rig.answer(request, 1)
    answer = envelope_with(quota_wire.AlterClientQuotasResponse(), 1)
    effect = rig.cache.offset + 5
    set_offset(answer, effect)
    rig.channel.sent[0][1](answer)
    assert waiting.response is None
    rig.answer(rig.update_metadata({}, offset=effect - 1), 8)
    assert waiting.response is None
    rig.answer(rig.update_metadata({}, offset=effect), 8)
    assert waiting.response.entries == []
    again = rig.answer(request, 1)
    rig.channel.sent[1][1](answer)
    assert again.response.entries == []


def test_an_unreadable_offset_does_not_hold_an_answer_back(rig):
    waiting = rig.answer(quota_wire.AlterClientQuotasRequest(entries=[]), 1)
    answer = envelope_with(quota_wire.AlterClientQuotasResponse(), 1)
    set_tag(answer, TAG_OFFSET, b"x")
    rig.channel.sent[0][1](answer)
    assert waiting.response.entries == []


def test_the_principal_is_encoded():
    assert encode_principal("User:ANONYMOUS") == b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"
    assert encode_principal("User:a", is_token=True) == b"\x00\x00\x05User\x02a\x01\x00"


def test_frames_are_what_clients_send(rig):
    header = RequestHeader(19, 7, 7, "tester")
    assert encode_request(header, create(["x"]))[:4] != b""


def test_a_client_waits_here_if_the_controllers_quota_says_so(rig):
    parked = TABLE[19].handle(rig.services, rig.request(create(["old"]), 7))
    response = create_wire.CreateTopicsResponse(throttle_time_ms=900, topics=[])
    parked.operation.bind(lambda _operation: None)
    rig.channel.sent[0][1](envelope_with(response, 7))
    answer = parked.answer()
    assert (answer.throttle_time_ms, answer.message.throttle_time_ms) == (900, 900)


def test_an_envelope_with_a_new_token_has_its_id(rig):
    create = rig.request(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    first, second = (token_id_of(make_envelope(b"frame", create)) for _ in range(2))
    assert first is not None
    assert len(first) == 16
    assert second != first
    other = rig.request(RenewDelegationTokenRequest(), 2)
    assert token_id_of(make_envelope(b"frame", other)) is None


@pytest.mark.parametrize("answer", [None, created("new")])
def test_an_answer_that_comes_after_the_timeout_is_dropped(rig, answer):
    """The request is answered by then, and has dropped its message and its frame."""
    request = rig.request(create(["new"]), 7)
    parked = TABLE[19].handle(rig.services, request)
    parked.operation.force_complete()
    assert parked.operation.response().message.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    request.message = request.buffer = None
    rig.channel.sent[0][1](answer)
