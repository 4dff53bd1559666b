"""Principals: the identity of a client, as text of the form `User:alice`.

A principal travels as text through requests, ACLs and log lines; `parse_principal` splits it where its parts matter.
Type and name are compared exactly, as in Kafka.

Source: KafkaPrincipal, SecurityUtils.parseKafkaPrincipal (Kafka 4.3).
"""

from __future__ import annotations

from typing import Final, NamedTuple

USER_TYPE: Final = "User"
ANONYMOUS: Final = "User:ANONYMOUS"  # a client that did not authenticate
WILDCARD: Final = "User:*"  # in an ACL: every principal


class Principal(NamedTuple):
    """A principal in its two parts. A name may contain colons; a type may not."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def parse_principal(text: str) -> Principal:
    """Split a principal at its first colon; raises ValueError, with Kafka's text, if it has none."""
    kind, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(kind, name)


def user(name: str) -> str:
    """Return the principal of a user."""
    return f"{USER_TYPE}:{name}"


def user_name(principal: str) -> str:
    """Return the name without the type, which quotas and SCRAM credentials are for."""
    return principal.partition(":")[2]
