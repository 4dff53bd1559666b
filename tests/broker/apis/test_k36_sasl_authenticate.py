"""SaslAuthenticate out of place."""

from __future__ import annotations

import pytest

from barnabas.broker.apis.k36_sasl_authenticate import API
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from tests.broker.apis.config_rig import answer_of, make_services


@pytest.mark.parametrize("version", range(2 + 1))
def test_it_is_refused(version: int) -> None:
    answer = answer_of(API, make_services(), SaslAuthenticateRequest(), version)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
