"""What a broker says with its registration and its heartbeats, a controller with a refusal, in our own tagged fields
(push_tags.py).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.push_tags import TAG_OBEYED_EPOCH, TAG_OBEYED_OFFSET, TAG_REASON, set_tag, tag_of

UNKNOWN_EPOCH: Final = -1

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")


class Applied(NamedTuple):
    """How far a broker has come: everything up to `offset`, inclusive, as the controller of `epoch` told it."""

    offset: int
    epoch: int = UNKNOWN_EPOCH


def set_applied(request: BrokerRegistrationRequest | BrokerHeartbeatRequest, applied: Applied) -> None:
    """Have a request say how far the broker has come."""
    set_tag(request, TAG_OBEYED_OFFSET, _INT64.pack(applied.offset))
    set_tag(request, TAG_OBEYED_EPOCH, _INT32.pack(applied.epoch))


def applied_of(request: BrokerRegistrationRequest | BrokerHeartbeatRequest) -> Applied | None:
    """Return how far a broker says that it has come; None if nowhere. Raises INVALID_REGISTRATION."""
    try:
        offset_tag, epoch_tag = tag_of(request, TAG_OBEYED_OFFSET), tag_of(request, TAG_OBEYED_EPOCH)
        if offset_tag is None:
            return None
        epoch = UNKNOWN_EPOCH if epoch_tag is None else _INT32.unpack(epoch_tag)[0]
        applied = Applied(_INT64.unpack(offset_tag)[0], epoch)
    except struct.error:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "A tagged field has a wrong size") from None
    return applied if applied.offset >= 0 else None


def set_reason(response: BrokerRegistrationResponse, reason: str) -> None:
    """Have a refusal say why."""
    set_tag(response, TAG_REASON, reason.encode())


def reason_of(response: BrokerRegistrationResponse) -> str | None:
    """Return why a registration is refused, in one line; None if the controller does not say."""
    tag = tag_of(response, TAG_REASON)
    return None if tag is None else " ".join(tag.decode(errors="replace").split())
