"""Our tagged fields: they are read as written, damaged ones are refused, and the secret is never shown."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.messages.k05_stop_replica import StopReplicaRequest
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationResponse
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.metadata_records import ConfigRecord, RemoveTopicRecord
from barnabas.protocol.push_tags import (
    TAG_ATTEMPT,
    TAG_OBEYED_EPOCH,
    TAG_OBEYED_OFFSET,
    TAG_OFFSET,
    TAG_RECEIVER,
    TAG_RECORDS,
    UNKNOWN_EPOCH,
    Applied,
    Attempt,
    Receiver,
    applied_of,
    attempt_of,
    controller_epoch_of,
    offset_of,
    reason_of,
    receiver_of,
    records_of,
    set_applied,
    set_attempt,
    set_controller_epoch,
    set_offset,
    set_reason,
    set_receiver,
    set_records,
    set_tag,
    set_token_id,
    token_id_of,
)

RECEIVER = Receiver("h3zYrOmsQJqmHD2y0yjFEg", 3, b"0123456789abcdef")
RECORDS = [
    RemoveTopicRecord(topic_id=b"t" * 16),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
]


def sent(message: StopReplicaRequest) -> StopReplicaRequest:
    """Return the message as the receiver decodes it."""
    return StopReplicaRequest.decoder(4)(memoryview(bytearray(message.encode(4))), 0)[0]


def test_the_tags_of_a_push_are_read_as_written_in_any_order() -> None:
    message = StopReplicaRequest()
    set_receiver(message, RECEIVER)
    set_offset(message, 5)
    set_records(message, RECORDS)
    set_offset(message, 12)
    arrived = sent(message)
    assert (receiver_of(arrived), offset_of(arrived)) == (RECEIVER, 12)
    assert records_of(arrived) == RECORDS


def test_absent_tags_are_none() -> None:
    message = StopReplicaRequest()
    set_records(message, [])
    assert (receiver_of(message), offset_of(message), records_of(message)) == (None, None, [])
    assert message.unknown_tagged_fields == ()


@pytest.mark.parametrize(
    ("tag", "raw", "read"),
    [
        (TAG_OFFSET, b"\0" * 7, offset_of),
        (TAG_RECEIVER, b"\0" * 19, receiver_of),
        (TAG_RECEIVER, b"\0" * 20 + b"\xff", receiver_of),
        (TAG_RECORDS, b"\x05\x01", records_of),
        (TAG_RECORDS, b"\x80", records_of),
        (TAG_RECORDS, b"\x01\x01", records_of),
        (TAG_RECORDS, b"\x00", records_of),
    ],
)
def test_a_damaged_tag_is_refused(tag, raw, read) -> None:
    message = StopReplicaRequest()
    set_tag(message, tag, raw)
    with pytest.raises(MalformedMessageError):
        read(message)


def test_the_incarnation_id_is_not_shown() -> None:
    assert "0123" not in f"{RECEIVER!r} {RECEIVER}"


def test_a_heartbeat_reports_how_far_the_broker_has_come() -> None:
    request = BrokerHeartbeatRequest()
    assert applied_of(request) is None
    set_applied(request, Applied(77, 3))
    assert applied_of(request) == Applied(77, 3)
    set_applied(request, Applied(-1, 3))
    assert applied_of(request) is None


def test_an_offset_without_an_epoch_has_an_unknown_epoch() -> None:
    request = BrokerHeartbeatRequest()
    set_tag(request, TAG_OBEYED_OFFSET, b"\0" * 7 + b"\5")
    assert applied_of(request) == Applied(5, UNKNOWN_EPOCH)


@pytest.mark.parametrize("tag", [TAG_OBEYED_OFFSET, TAG_OBEYED_EPOCH])
def test_a_damaged_report_is_an_invalid_registration(tag) -> None:
    request = BrokerHeartbeatRequest()
    set_applied(request, Applied(77, 3))
    set_tag(request, tag, b"123")
    with pytest.raises(ApiError) as refused:
        applied_of(request)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION


def test_the_reason_for_a_refusal_is_read_as_one_line() -> None:
    response = BrokerRegistrationResponse()
    assert reason_of(response) is None
    set_reason(response, "another broker\n  has this address")
    assert reason_of(response) == "another broker has this address"


def test_a_registration_names_the_controllers_epoch() -> None:
    response = BrokerRegistrationResponse()
    assert controller_epoch_of(response) == UNKNOWN_EPOCH
    set_controller_epoch(response, 7)
    assert controller_epoch_of(response) == 7
    set_tag(response, TAG_OBEYED_EPOCH, b"7")
    with pytest.raises(MalformedMessageError):
        controller_epoch_of(response)


def test_an_envelope_says_which_request_it_is() -> None:
    envelope = EnvelopeRequest()
    assert attempt_of(envelope) is None
    attempt = Attempt(b"s" * 16, 1 << 40, 3)
    set_attempt(envelope, attempt)
    decoded = EnvelopeRequest.decode(envelope.encode(0), 0)
    assert attempt_of(decoded) == attempt
    assert repr(attempt) == "attempt 3 of request 1099511627776", "the sender is not shown"
    for raw in (b"", b"x" * 27, b"x" * 29):
        set_tag(envelope, TAG_ATTEMPT, raw)
        assert attempt_of(envelope) is None


def test_an_envelope_names_the_token_to_create() -> None:
    envelope = EnvelopeRequest()
    assert token_id_of(envelope) is None
    set_token_id(envelope, b"i" * 16)
    assert token_id_of(envelope) == b"i" * 16
    set_token_id(envelope, b"i" * 17)
    assert token_id_of(envelope) is None
