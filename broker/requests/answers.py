"""What ends a request: the values that an API, or a completed operation, gives as the answer.

Rules
1. An API never sends and never calls back. It returns one of these values, or a `Park` (parking.py); `handlers` acts on
   it, in one place.
2. `Reply` and `NoReply` end a request; `Close` also ends its connection.

Threads: one thread makes a value, the same thread reads it. Plain classes, since each request makes one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message


class Reply:
    """Send this message.

    The connection stays muted for `throttle_time_ms` after the response is sent (KIP-219). The API sets the message's
    own field of that name. `close_after` closes the connection once the response is sent. `encoded` is the message in
    the request's version, if the API has it cached.
    """

    __slots__ = ("close_after", "encoded", "message", "throttle_time_ms")

    def __init__(
        self, message: Message, throttle_time_ms: int = 0, close_after: bool = False, encoded: bytes | None = None
    ) -> None:
        self.message = message
        self.encoded = encoded
        self.throttle_time_ms = throttle_time_ms
        self.close_after = close_after


class NoReply:
    """Send nothing (a produce with acks=0); the connection continues with its next request."""

    __slots__ = ("throttle_time_ms",)

    def __init__(self, throttle_time_ms: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms


class Close:
    """Close the connection: the only way to report an error where no response may be sent.

    `level` is that of the log line (of `logging`). `error_codes` are those of the response that may not be sent.
    """

    __slots__ = ("error_codes", "level", "reason")

    def __init__(self, reason: str = "", level: int = logging.INFO, error_codes: list[int] | None = None) -> None:
        self.reason = reason
        self.level = level
        self.error_codes = error_codes


#: The end of a request.
Ending: TypeAlias = Reply | NoReply | Close

#: What a completed operation gives: an `Ending`, or the message of a plain `Reply`.
Outcome: TypeAlias = "Message | Reply | NoReply | Close"

NO_REPLY: Final = NoReply()


def ending(outcome: Outcome) -> Ending:
    """Return the outcome with a bare message wrapped in a `Reply`."""
    if isinstance(outcome, (Reply, NoReply, Close)):
        return outcome
    return Reply(outcome)
