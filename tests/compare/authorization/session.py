"""A connection of a user who logs in by SASL PLAIN with frames of our own."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.schema import Request
from tests.compare.authorization.questions.build import build
from tests.support.wire import RawConnection

CLIENT_ID = "compare"
_HANDSHAKE_VERSION, _AUTHENTICATE_VERSION = 1, 2


class Session:
    """Sends requests as one user; connects again if the broker closed the connection."""

    def __init__(self, port: int, user: str, password: str) -> None:
        self._port, self._user, self._password = port, user, password
        self._connection = self._connect()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, request: Request, version: int) -> Any:
        """Return the decoded response; None if the connection was closed instead."""
        answer = _exchange(self._connection, request, version)
        if answer is None:
            self._connection.close()
            self._connection = self._connect()
        return answer

    def _connect(self) -> RawConnection:
        connection = RawConnection(self._port)
        shaken = _exchange(connection, build(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}), _HANDSHAKE_VERSION)
        assert shaken is not None, "the broker closes the connection of a client that wants SASL"
        assert not shaken.error_code, shaken
        token = f"\0{self._user}\0{self._password}".encode()
        answer = _exchange(connection, build(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": token}), _AUTHENTICATE_VERSION)
        assert answer is not None, f"the broker closes the connection of {self._user}"
        assert not answer.error_code, answer
        return connection


def _exchange(connection: RawConnection, request: Request, version: int) -> Any:
    answer = connection.request(encode_request(RequestHeader(request.API_KEY, version, 1, CLIENT_ID), request)[4:])
    if answer is None:
        return None
    _, offset = decode_response_header(answer, request.API_KEY, version)
    return response_class(request.API_KEY).decode(answer, version, offset)
