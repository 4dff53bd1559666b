"""SaslHandshake out of place."""

from __future__ import annotations

import pytest

from barnabas.broker.apis.k17_sasl_handshake import API
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from tests.broker.apis.config_rig import answer_of, make_services


@pytest.mark.parametrize("version", range(1 + 1))
def test_it_is_refused(version: int) -> None:
    answer = answer_of(API, make_services(), SaslHandshakeRequest(), version)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
