"""Delegation tokens: their life, who may change them, and the timer that removes them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decisions.security.tokens import Caller, create_token, expire_token, renew_token
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k38_create_delegation_token as create_wire
from barnabas.protocol.messages import k39_renew_delegation_token as renew_wire
from barnabas.protocol.messages import k40_expire_delegation_token as expire_wire
from barnabas.security.tokens import token_hmac
from tests.controller.rig import Rig

SECRET = "secret"
DAY_MS = 86_400_000
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"


def make_rig() -> Rig:
    return Rig(delegation_token_secret_key=SECRET)


def create(rig: Rig, principal: str = ALICE, **fields: Any) -> Any:
    request = create_wire.CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, **fields})
    caller = Caller(principal, rig.clock.wall_ms())
    return rig.decide(lambda view: create_token(view, request, caller))


def renew(rig: Rig, hmac: bytes, principal: str = ALICE, period_ms: int = -1) -> Any:
    request = renew_wire.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    caller = Caller(principal, rig.clock.wall_ms())
    return rig.decide(lambda view: renew_token(view, request, caller))


def expire(rig: Rig, hmac: bytes, principal: str = ALICE, period_ms: int = -1) -> Any:
    request = expire_wire.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    caller = Caller(principal, rig.clock.wall_ms())
    return rig.decide(lambda view: expire_token(view, request, caller))


def renewer(name: str, kind: str = "User") -> create_wire.CreatableRenewers:
    return create_wire.CreatableRenewers(principal_type=kind, principal_name=name)


def test_a_token_lives_for_a_day_and_at_most_a_week() -> None:
    rig = make_rig()
    now_ms = rig.clock.wall_ms()
    response = create(rig, renewers=[renewer("carol")])
    assert response.error_code == 0
    assert response.hmac == token_hmac(SECRET, response.token_id)
    assert response.issue_timestamp_ms == now_ms
    assert response.expiry_timestamp_ms == now_ms + DAY_MS
    assert response.max_timestamp_ms == now_ms + 7 * DAY_MS
    (token,) = rig.restart().image.security.tokens.values()
    assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, (CAROL,))
    assert create(rig, max_lifetime_ms=1000).expiry_timestamp_ms == now_ms + 1000


def test_a_token_for_another_owner() -> None:
    rig = make_rig()
    response = create(rig, owner_principal_type="User", owner_principal_name="bob")
    assert (response.principal_name, response.token_requester_principal_name) == ("bob", "alice")
    assert renew(rig, response.hmac, ALICE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(rig, response.hmac, BOB).error_code == 0


def test_renewers_are_users() -> None:
    response = create(make_rig(), renewers=[renewer("g", "Group")])
    assert response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert response.hmac == b""


def test_an_owner_has_a_bounded_number_of_tokens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "barnabas.controller")
    rig = Rig(delegation_token_secret_key="secret", barnabas_delegation_tokens_per_owner_max="2")
    first = create(rig)
    assert create(rig).error_code == 0
    refused = create(rig)
    assert (refused.error_code, refused.hmac, refused.token_id) == (ErrorCode.POLICY_VIOLATION, b"", "")
    assert [record.getMessage() for record in caplog.records][1:] == [
        "refused a delegation token for 'User:alice', which has too many"
    ]
    assert create(rig, "User:bob").error_code == 0, "the tokens of others do not count"
    expire(rig, first.hmac)
    assert create(rig).error_code == 0


def test_a_token_is_renewed_up_to_its_maximum() -> None:
    rig = make_rig()
    response = create(rig, renewers=[renewer("carol")])
    rig.clock.advance_ms(DAY_MS // 2)
    assert renew(rig, response.hmac, CAROL).expiry_timestamp_ms == response.expiry_timestamp_ms + DAY_MS // 2
    assert renew(rig, response.hmac, CAROL, 1000).expiry_timestamp_ms == rig.clock.wall_ms() + 1000
    for _ in range(7):
        renewed = renew(rig, response.hmac)
        rig.clock.advance_ms(DAY_MS - 1)
    assert renewed.expiry_timestamp_ms == response.max_timestamp_ms
    rig.clock.advance_ms(DAY_MS)
    assert renew(rig, response.hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


@pytest.mark.parametrize("change", [renew, expire])
def test_others_cannot_change_a_token(change: Any) -> None:
    rig = make_rig()
    hmac = create(rig).hmac
    assert change(rig, hmac, BOB).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert change(rig, b"x" * 64).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_ends_at_once_or_later() -> None:
    rig = make_rig()
    hmac = create(rig).hmac
    response = expire(rig, hmac, period_ms=1000)
    assert response.expiry_timestamp_ms == rig.clock.wall_ms() + 1000
    rig.clock.advance_ms(1001)
    assert expire(rig, hmac, period_ms=1000).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(rig, hmac).expiry_timestamp_ms == rig.clock.wall_ms()
    assert rig.image.security.tokens == {}
    assert expire(rig, hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_an_expired_token_of_another_owner() -> None:
    rig = make_rig()
    hmac = create(rig, max_lifetime_ms=1000).hmac
    rig.clock.advance_ms(1001)
    assert renew(rig, hmac, BOB).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    for period_ms in (-1, 0, 1000):
        assert expire(rig, hmac, BOB, period_ms).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_without_a_secret_there_are_no_tokens() -> None:
    rig = Rig()
    for response in (create(rig), renew(rig, b""), expire(rig, b"")):
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_expired_tokens_are_removed_in_time() -> None:
    rig = make_rig()
    create(rig)
    create(rig, max_lifetime_ms=1000)
    rig.tick(3_600_000)
    (token,) = rig.image.security.tokens.values()
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 7 * DAY_MS
    rig.tick(DAY_MS)
    assert rig.restart().image.security.tokens == {}


def test_a_request_that_a_broker_sends_twice_makes_one_token() -> None:
    rig = make_rig()
    request = create_wire.CreateDelegationTokenRequest(max_lifetime_ms=-1)

    def ask(principal: str) -> Any:
        caller = Caller(principal, rig.clock.wall_ms(), b"t" * 16)
        return rig.decide(lambda view: create_token(view, request, caller))

    first = ask(ALICE)
    rig.clock.advance_ms(50)
    again = ask(ALICE)
    assert again == first
    assert len(rig.controller.image.security.tokens) == 1
    other = ask(BOB)
    assert (other.error_code, other.hmac) == (ErrorCode.INVALID_REQUEST, b"")
