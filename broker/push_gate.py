"""Whom this broker obeys: what is checked before anything of a push is carried out.

Rules
1. A push that does not name this cluster, this broker and this process (push_tags.py, tag 10002) is a stranger's, or
   meant for another. It is refused before anything in it is noted.
2. A push for an older registration, or of a controller older than one that was obeyed, is refused whole. So is an epoch
   far above the one known: the controller epoch rises by one with each start of a controller.
3. A push that is older than what was obeyed came too late, on a connection that broke: whatever followed it says the
   same or newer things. It is answered like any other, and has no effect. The requests of one push have one offset, and
   a push may repeat the offset of the one before: equal is not late.
4. A controller writes a record when it starts. So the first push of a new epoch is above all that was obeyed. If it is
   not, the controller's log is an old copy: it lacks what this broker has obeyed. Its push is refused.
5. A large push is refused unexamined if its end does not name this process: to decode 100 MB takes many seconds and GB.
6. Pushes are checked and carried out one at a time, whichever thread runs them: none is overtaken in between.

Threads: the handlers that run LeaderAndIsr, StopReplica and UpdateMetadata. `_lock` comes before every other lock.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.protocol.errors import ErrorCode, MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.push_tags import Receiver, offset_of, receiver_bytes, receiver_of

if TYPE_CHECKING:
    from barnabas.broker.push_state import PushState

log = logging.getLogger("barnabas.state-change")

EPOCH_LEAP_MAX: Final = 1_000_000  # starts of controllers that a broker can have missed
NOT_REGISTERED: Final = -1
#: Tag 10002 is among the last bytes of a push; behind it there is room for a few small tags.
TAIL_BYTES: Final = 256


class PushGate:
    """See the module."""

    def __init__(self, receiver: Receiver, state: PushState) -> None:
        self._receiver = receiver  # fixed before start: this process
        self.state = state  # fixed before start
        self._lock = threading.Lock()  # one push at a time
        self.broker_epoch = NOT_REGISTERED  # set by the lifecycle thread at each registration
        self.late_count = 0  # guarded by: _lock; read by anybody

    def admits(self, frame: memoryview) -> bool:
        """Whether a push that is not decoded yet names this process (rule 5); tagged fields are the last of a frame."""
        expected, tail = receiver_bytes(self._receiver), bytes(frame[-TAIL_BYTES:])
        starts = range(max(0, len(tail) - len(expected) + 1))
        return any(hmac.compare_digest(tail[start : start + len(expected)], expected) for start in starts)

    def obey(self, message: Any, carry_out: Callable[[], Any], response: Callable[..., Any]) -> Any:
        """Carry a push out unless it must not be; returns its response, made by `response(error_code=...)` if not."""
        name = type(message).__name__
        with self._lock:
            try:
                error, offset = self._check(message)
                if error:
                    log.warning("%s of controller %d refused: %s", name, message.controller_id, error.name)
                    return response(error_code=error)
                if offset < self.state.metadata_offset:
                    self.late_count += 1
                    log.warning(
                        "%s of metadata offset %d came too late and is ignored: this broker has obeyed %d",
                        name, offset, self.state.metadata_offset,
                    )  # fmt: skip
                    return response()
                self.state.note(message.controller_epoch, offset)
                return carry_out()
            except (MalformedMessageError, UnsupportedVersionError) as mistake:
                log.warning("%s refused: %s", name, mistake)
                return response(error_code=ErrorCode.INVALID_REQUEST)
            except OSError as failure:
                log.error("%s failed, since the disk did: %s", name, failure)
                return response(error_code=ErrorCode.KAFKA_STORAGE_ERROR)

    def _check(self, message: Any) -> tuple[ErrorCode, int]:
        """Return why a push is refused (rules 1, 2 and 4), and its metadata offset."""
        receiver = receiver_of(message)
        if receiver is None:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_REGISTERED
        if receiver.cluster_id != self._receiver.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID, NOT_REGISTERED
        is_this_process = hmac.compare_digest(receiver.incarnation_id, self._receiver.incarnation_id)
        if not is_this_process or receiver.broker_id != self._receiver.broker_id:
            return ErrorCode.STALE_BROKER_EPOCH, NOT_REGISTERED
        # A broker epoch above ours is right: the controller knows of our registration before its answer reaches us.
        if self.broker_epoch == NOT_REGISTERED or message.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH, NOT_REGISTERED
        known, epoch, offset = self.state.controller_epoch, message.controller_epoch, offset_of(message)
        if offset is None or offset < 0 or epoch < 0 or (known >= 0 and epoch > known + EPOCH_LEAP_MAX):
            return ErrorCode.INVALID_REQUEST, NOT_REGISTERED
        if epoch > known and offset <= self.state.metadata_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE, NOT_REGISTERED  # rule 4
        return ErrorCode.STALE_CONTROLLER_EPOCH if epoch < known else ErrorCode.NONE, offset
