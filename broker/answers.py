"""What an API returns: a value, up one stack.

Rules
1. An API never sends and never calls back. It returns an `Answer`; `handlers` acts on it, in one place.
2. `Reply` and `NoReply` end a request, `Close` ends its connection too, `Park` leaves it to a `DelayedOperation`.

Threads: values, made by one handler thread and read by the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from broker.purgatory import DelayedOperation, Purgatory


@dataclass(slots=True)  # Why not frozen: a frozen one takes three times as long to make, and each request makes one
class Reply:
    """Send this message.

    The connection stays muted for `throttle_time_ms` after the answer was sent (KIP-219); the message's own field of
    that name is for the API to set. `close_after` closes the connection once the answer is out.
    """

    message: Message
    throttle_time_ms: int = 0
    close_after: bool = False


@dataclass(slots=True, frozen=True)
class NoReply:
    """Send nothing (a produce with acks=0); the connection goes on with its next request."""

    throttle_time_ms: int = 0


@dataclass(slots=True, frozen=True)
class Close:
    """Close the connection: the only way to tell a client of an error where no answer may be sent."""

    reason: str = ""


@dataclass(slots=True, frozen=True)
class Park:
    """Answer later, when `operation` completes.

    With a purgatory the operation is tried, watched under `keys` and timed. `purgatory` None is for a `Deferred` that
    its owner completes.
    """

    operation: DelayedOperation
    purgatory: Purgatory | None = None
    keys: Sequence[Hashable] = ()


Answer: TypeAlias = Reply | NoReply | Close | Park

NO_REPLY = NoReply()
