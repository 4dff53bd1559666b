from __future__ import annotations

from barnabas.protocol.errors import ApiError, EncodeError, ErrorCode, MalformedMessageError, UnsupportedFieldError


def test_codes() -> None:
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (code.value, int(code), code.retriable) == (6, 6, True)
    assert ErrorCode(6) is code
    assert not ErrorCode.INVALID_TOPIC_EXCEPTION.retriable
    assert all(code.message for code in ErrorCode)


def test_codes_of_newer_peers() -> None:
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_api_error_has_the_message_of_its_code_unless_told() -> None:
    assert ApiError(ErrorCode.INVALID_CONFIG).message == ErrorCode.INVALID_CONFIG.message
    assert str(ApiError(ErrorCode.INVALID_CONFIG, "retention.ms must be a number")) == "retention.ms must be a number"


def test_families() -> None:
    assert issubclass(UnsupportedFieldError, EncodeError)
    assert issubclass(MalformedMessageError, ValueError)
