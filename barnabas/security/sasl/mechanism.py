"""What all SASL mechanisms have in common: their two sides, how a login ends, and how it fails.

A mechanism is a state machine over bytes. It has no socket, thread or clock of its own; one login uses one instance.

Rules
1. The text of an AuthenticationError is sent to the client, so it says nothing that a stranger may not know. The text
   of an InvalidCredentialsError stays in the server's log: the client gets one sentence that is the same for every
   cause. After a TransientError it gets no answer.
2. No password, proof or token appears in a text or a repr.

Source: javax.security.sasl, SaslAuthenticationException, SaslException in Kafka's SaslServerAuthenticator (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"


class SaslError(Exception):
    """A login failed."""


class AuthenticationError(SaslError):
    """A login failed for a reason that the client is shown."""


class RefusalError(SaslError):
    """A login is refused by a challenge, which the client should acknowledge; the text is for the server's log."""

    def __init__(self, challenge: bytes, text: str) -> None:
        super().__init__(text)
        self.challenge = challenge


class InvalidCredentialsError(SaslError):
    """A login failed for a reason that only the server's log shows."""


class TransientError(SaslError):
    """A login failed, and may succeed in a moment: the connection is closed without an answer, and clients try again.

    Source: KerberosError.retriable in Kafka's SaslServerAuthenticator (4.3).
    """


@dataclass(frozen=True, slots=True)
class Identity:
    """The outcome of a login."""

    principal: str  # User:name
    expires_ms: int | None = None  # wall clock; when the credential ends, None if it does not
    is_token: bool = False  # a delegation token was presented
    extensions: Mapping[str, str] = field(default_factory=dict)


class ServerMechanism(Protocol):
    """The server's side of one login."""

    identity: Identity | None
    """The client's identity; None until the login is complete."""

    def evaluate(self, response: bytes) -> bytes | None:
        """Take a client's message; return the answer to it. Raises SaslError.

        None: none is due, since the client is satisfied. A client that expects an answer anyway gets an empty one.
        After an error the login is over; after RefusalError once the client has answered.
        """


class ClientMechanism(Protocol):
    """The client's side of one login."""

    is_complete: bool
    """Whether the client is satisfied, and expects no other challenge."""

    def first(self) -> bytes:
        """Return the first message."""

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Take a server's message; return the next one, None if none is due. Raises SaslError."""


class ClientLogin(NamedTuple):
    """How a node logs in to others: the mechanism, and what begins its side of it."""

    mechanism: str
    begin: Callable[[str], ClientMechanism]  # takes the name of the other node's host
