"""What an API returns: a value, up one stack.

Rules
1. An API never sends and never calls back. It returns an `Answer`; `handlers` acts on it, in one place.
2. `Reply` and `NoReply` end a request, `Close` ends its connection too, `Park` leaves it to a `DelayedOperation`.

Threads: values, made by one handler thread and read by the same; plain classes, since each request makes one.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from barnabas.broker.purgatory import DelayedOperation, Purgatory
    from barnabas.protocol.schema import Message


class Reply:
    """Send this message.

    The connection stays muted for `throttle_time_ms` after the answer was sent (KIP-219); the message's own field of
    that name is for the API to set. `close_after` closes the connection once the answer is out. `encoded` is the
    message in the request's version, if the API has it at hand.
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
    """Send nothing (a produce with acks=0); the connection goes on with its next request."""

    __slots__ = ("throttle_time_ms",)

    def __init__(self, throttle_time_ms: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms


class Close:
    """Close the connection: the only way to tell a client of an error where no answer may be sent.

    `level` is that of the line in the log (of `logging`).
    """

    __slots__ = ("level", "reason")

    def __init__(self, reason: str = "", level: int = logging.INFO) -> None:
        self.reason = reason
        self.level = level


class Park:
    """Answer later, when `operation` completes.

    With a purgatory the operation is tried, watched under `keys` and timed. `purgatory` None is for a `Deferred` that
    its owner completes.
    """

    __slots__ = ("keys", "operation", "purgatory")

    def __init__(
        self, operation: DelayedOperation, purgatory: Purgatory | None = None, keys: Sequence[Hashable] = ()
    ) -> None:
        self.operation = operation
        self.purgatory = purgatory
        self.keys = keys


Answer: TypeAlias = Reply | NoReply | Close | Park

NO_REPLY: Final = NoReply()
