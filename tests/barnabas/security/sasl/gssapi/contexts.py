"""Contexts in place of libkrb5's: what a message is, both sides can read."""

from __future__ import annotations

from barnabas.security.sasl.gssapi.errors import GssError

SIGNED = b"signed:"


class FakeContext:
    """A side that takes the tokens in `expected`, each with its answer; None begins."""

    def __init__(self, expected: dict[bytes | None, bytes], last: bytes | None, principal: str = "alice@R") -> None:
        self._expected = expected
        self._last = last  # the token that establishes the context
        self._principal = principal
        self.is_established = False

    def step(self, token: bytes | None) -> bytes:
        if token not in self._expected:
            raise GssError("Invalid token was supplied")
        self.is_established = token == self._last
        return self._expected[token]

    def wrap(self, message: bytes) -> bytes:
        assert self.is_established
        return SIGNED + message

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(SIGNED):
            raise GssError("A token had an invalid MIC")
        return token.removeprefix(SIGNED)

    def initiator(self) -> str:
        return self._principal


def acceptor(principal: str = "alice@R", *, is_mutual: bool = True) -> FakeContext:
    """The server's side."""
    return FakeContext({b"ticket": b"proof" if is_mutual else b""}, b"ticket", principal)


def initiator() -> FakeContext:
    """The client's side."""
    return FakeContext({None: b"ticket", b"proof": b""}, b"proof")
