"""The values of the security metadata: codes, identity, and no secret in a repr."""

from __future__ import annotations

import pytest

from barnabas.security.values import (
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    QuotaEntity,
    ResourceType,
    ScramCredential,
    ScramMechanism,
    TokenInformation,
)

TOKEN = TokenInformation("id", "User:owner", "User:asks", ("User:renews",), 100, 300, 200)


def acl(acl_id: bytes) -> AclBinding:
    return AclBinding(
        acl_id,
        ResourceType.TOPIC,
        "orders",
        PatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        PermissionType.ALLOW,
    )


def test_unknown_codes_become_unknown() -> None:
    assert ResourceType.of(2) is ResourceType.TOPIC
    assert ResourceType.of(99) is ResourceType.UNKNOWN
    assert AclOperation.of(-1) is AclOperation.UNKNOWN


def test_the_same_rule_with_another_id_is_the_same_acl() -> None:
    assert acl(bytes(16)) != acl(b"x" * 16)
    assert acl(bytes(16)).rule == acl(b"x" * 16).rule


def test_scram_mechanisms_have_names() -> None:
    names = [(m.mechanism_name, m.hash_name) for m in ScramMechanism if m]
    assert names == [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]


def test_a_credential_shows_nothing() -> None:
    assert repr(ScramCredential(b"salt", b"stored", b"server", 4096)) == "ScramCredential()"


@pytest.mark.parametrize(("now_ms", "is_expired"), [(200, False), (201, True), (301, True)])
def test_a_token_expires(now_ms: int, is_expired: bool) -> None:
    assert TOKEN.is_expired(now_ms) is is_expired


def test_owner_and_renewers_may_renew() -> None:
    assert [TOKEN.can_be_renewed_by(f"User:{name}") for name in ("owner", "renews", "asks")] == [True, True, False]


def test_an_entity_does_not_depend_on_order() -> None:
    assert QuotaEntity.of({"user": None, "client-id": "c"}) == QuotaEntity.of({"client-id": "c", "user": None})
    assert QuotaEntity.of({"user": None, "client-id": "c"}).as_mapping() == {"client-id": "c", "user": None}
