"""A token's password is an HMAC-SHA512 of its id."""

from __future__ import annotations

from barnabas.security.tokens import token_hmac, token_password


def test_the_password_depends_on_secret_and_id() -> None:
    # Computed with javax.crypto.Mac, as Kafka's DelegationTokenControlManager does.
    assert token_hmac("secret", "id").hex().startswith("2aab23f380f61ef9a7111a7ca97f6f02")
    assert token_password("secret", "id") != token_password("other", "id")
    assert token_password("secret", "id") != token_password("secret", "ie")


def test_hmacs_are_remembered() -> None:
    """Anybody may present an HMAC, which is compared with those of all tokens."""
    assert token_hmac("secret", "remembered") is token_hmac("secret", "remembered")
