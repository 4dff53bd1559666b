"""AlterUserScramCredentials, with Kafka's errors."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decision import Decision
from barnabas.controller.decisions.security.scram import alter_scram_credentials
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k51_alter_user_scram_credentials as wire
from barnabas.protocol.metadata_records import UserScramCredentialRecord
from barnabas.security.image import FALSE_SALTS
from barnabas.security.sasl.scram.formulas import credential_of
from barnabas.security.values import ScramKey, ScramMechanism
from tests.controller.rig import Rig

TWICE = "A user credential cannot be altered twice in the same request"


def deletion(name: str = "alice", mechanism: int = 1) -> wire.ScramCredentialDeletion:
    return wire.ScramCredentialDeletion(name=name, mechanism=mechanism)


def upsertion(name: str = "alice", **fields: Any) -> wire.ScramCredentialUpsertion:
    values = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}
    return wire.ScramCredentialUpsertion(name=name, **{**values, **fields})


def alter(rig: Rig, *changes: Any) -> dict[str, tuple[int, str | None]]:
    request = wire.AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, wire.ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, wire.ScramCredentialUpsertion)],
    )
    response = rig.decide(lambda view: alter_scram_credentials(view, request))
    return {result.user: (result.error_code, result.error_message) for result in response.results}


def test_a_credential_is_set_changed_and_removed() -> None:
    rig = Rig()
    key = ScramKey("alice", ScramMechanism.SCRAM_SHA_256)
    assert alter(rig, upsertion(), upsertion("bob", mechanism=2)) == {"alice": (0, None), "bob": (0, None)}
    rig = rig.restart()
    assert rig.image.security.credentials[key] == credential_of(key.mechanism, b"salted", b"salt", 4096)
    alter(rig, upsertion(iterations=8192))
    assert rig.image.security.credentials[key].iterations == 8192
    assert alter(rig, deletion()) == {"alice": (0, None)}
    assert list(rig.restart().image.security.credentials) == [("bob", 2)]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion(FALSE_SALTS.user), ErrorCode.UNACCEPTABLE_CREDENTIAL, "This username is reserved"),
        (upsertion(salted_password=b""), ErrorCode.UNKNOWN_SERVER_ERROR, "Empty key"),
        (deletion(), ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        (deletion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    ],
)
def test_an_invalid_change_fails_alone(change: Any, error: ErrorCode, text: str) -> None:
    rig = Rig()
    assert alter(rig, change, upsertion("fine")) == {"fine": (0, None), change.name: (error, text)}
    assert list(rig.image.security.credentials) == [("fine", 1)]


@pytest.mark.parametrize(
    "changes",
    [
        (deletion(), deletion()),
        (upsertion(), upsertion(mechanism=2)),
        (deletion(), upsertion()),
        (deletion(), upsertion(), upsertion()),
    ],
)
def test_a_user_is_changed_once_in_a_request(changes: tuple[Any, ...]) -> None:
    rig = Rig()
    alter(rig, upsertion(iterations=5000))
    assert alter(rig, *changes) == {"alice": (ErrorCode.DUPLICATE_RESOURCE, TWICE)}
    (credential,) = rig.image.security.credentials.values()
    assert credential.iterations == 5000


def test_a_request_is_bounded() -> None:
    with pytest.raises(ApiError) as caught:
        alter(Rig(), *[upsertion()] * 10_001)
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


def test_the_first_user_brings_the_secret_of_false_salts() -> None:
    rig = Rig()
    alter(rig, deletion())
    assert rig.image.security.false_salts is None
    alter(rig, upsertion())
    secret = rig.image.security.false_salts
    assert secret is not None
    assert len({secret.salt, secret.stored_key, secret.server_key, b""}) == 4
    alter(rig, upsertion("bob"))
    rig = rig.restart()
    assert rig.image.security.false_salts == secret
    assert {key.user for key in rig.image.security.credentials} == {"alice", "bob"}
    text = "Attempt to delete a user credential that does not exist"
    assert alter(rig, deletion(FALSE_SALTS.user)) == {FALSE_SALTS.user: (ErrorCode.RESOURCE_NOT_FOUND, text)}
    other = Rig()
    alter(other, upsertion())
    assert other.image.security.false_salts != secret


def test_a_log_with_users_that_lacks_the_secret_gets_it_at_the_start() -> None:
    rig = Rig()
    user = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"s", stored_key=b"a", server_key=b"b", iterations=4096
    )
    rig.decide(lambda _view: Decision([user], None))
    assert rig.image.security.false_salts is None
    rig = rig.restart()
    secret = rig.image.security.false_salts
    assert secret is not None
    assert rig.restart().image.security.false_salts == secret
