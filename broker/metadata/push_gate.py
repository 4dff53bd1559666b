"""PushGate: the checks that every push must pass before any part of it is carried out.

Rules
1. A push must name this cluster, this broker and this process (push_tags.py, tag 10002). Otherwise it comes from a
   stranger, or is meant for another process. It is refused, and nothing in it is noted.
2. A push for an older registration is refused. So is a push with a controller epoch below the highest obeyed one. An
   epoch out of reach is refused too: the epoch rises by one with each election, and no election follows the last epoch.
3. A push below the highest obeyed offset is late: it was on a connection that broke, and later pushes carried the same
   or newer values. It gets an ordinary response and has no effect. The requests of one push have the same offset, and
   a push may repeat the offset of the one before. So an equal offset is not late.
4. A controller writes a record when it starts. So the first push of a new epoch is above all obeyed offsets. Otherwise
   the controller's log is an old copy that lacks metadata which this broker has obeyed. The push is refused.
5. A large push is refused undecoded if its end does not name this process. Decoding 100 MB takes many seconds and GBs.
6. Pushes are checked and carried out one at a time, so no push overtakes another.
7. The first push often overtakes the response to the first registration, and waits for it: only then do the broker's
   other requests have an epoch. Only the controller that was sent the registration can make a push wait (rule 1).

Threads: the handlers that run LeaderAndIsr, StopReplica and UpdateMetadata. `_lock` comes before every other lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from barnabas.common import digests
from barnabas.common.logs import LogLimit
from barnabas.protocol.errors import ErrorCode, MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.push_tags import Receiver, offset_of, receiver_bytes, receiver_of

if TYPE_CHECKING:
    from barnabas.broker.metadata.push_state import PushState
    from barnabas.common.clock import Clock
    from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
    from barnabas.protocol.messages.k05_stop_replica import StopReplicaRequest
    from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
    from barnabas.protocol.schema import Response

log = logging.getLogger("barnabas.state-change")

R = TypeVar("R", bound="Response")
Push: TypeAlias = "LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest"

NOT_REGISTERED: Final = -1
REGISTRATION_WAIT_S: Final = 1.0
#: Tag 10002 is within the last bytes of a push; only a few small tags may follow it.
TAIL_BYTES: Final = 256


class PushGate:
    """See the module."""

    def __init__(self, receiver: Receiver, state: PushState, clock: Clock) -> None:
        self._receiver = receiver  # fixed before start: this process
        self.state = state  # fixed before start
        self._lines = LogLimit(log, clock.monotonic_ns)  # fixed before start
        self._lock = threading.Lock()  # one push at a time
        self.broker_epoch = NOT_REGISTERED  # set by the lifecycle thread at each registration
        self._is_registered = threading.Event()  # set by the lifecycle thread at the first registration
        self.late_count = 0  # guarded by: _lock; any thread reads it

    def registered(self, broker_epoch: int) -> None:
        """Note a registration; called by the lifecycle thread."""
        self.broker_epoch = broker_epoch
        self._is_registered.set()

    def admits(self, frame: memoryview) -> bool:
        """Whether an undecoded push names this process (rule 5). Tagged fields are at the end of a frame."""
        expected, tail = receiver_bytes(self._receiver), bytes(frame[-TAIL_BYTES:])
        starts = range(max(0, len(tail) - len(expected) + 1))
        return any(digests.is_equal(tail[start : start + len(expected)], expected) for start in starts)

    def obey(self, message: Push, carry_out: Callable[[], R], response: Callable[..., R]) -> R:
        """Check a push and carry it out; returns its response.

        For a refused or late push the response is built by `response(error_code=...)` or `response()`.
        """
        name = type(message).__name__
        with self._lock:
            try:
                error, offset = self._check(message)
                if error:
                    if self._lines.admits(logging.WARNING, f"{name}s refused: {error.name}"):
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
                if self._lines.admits(logging.WARNING, f"{name}s refused, which cannot be decoded"):
                    log.warning("%s refused: %s", name, mistake)
                return response(error_code=ErrorCode.INVALID_REQUEST)
            except OSError as failure:
                log.error("%s failed because of the disk: %s", name, failure)
                return response(error_code=ErrorCode.KAFKA_STORAGE_ERROR)

    def _check(self, message: Push) -> tuple[ErrorCode, int]:
        """Return the error of a push (NONE if rules 1, 2 and 4 admit it) and its metadata offset."""
        receiver = receiver_of(message)
        if receiver is None:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_REGISTERED
        if receiver.cluster_id != self._receiver.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID, NOT_REGISTERED
        is_this_process = digests.is_equal(receiver.incarnation_id, self._receiver.incarnation_id)
        if not is_this_process or receiver.broker_id != self._receiver.broker_id:
            return ErrorCode.STALE_BROKER_EPOCH, NOT_REGISTERED
        # Why a higher broker epoch passes: the push may overtake the response to our registration.
        if not self._is_registered.wait(REGISTRATION_WAIT_S) or message.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH, NOT_REGISTERED
        known, epoch, offset = self.state.controller_epoch, message.controller_epoch, offset_of(message)
        if offset is None or offset < 0 or epoch < 0 or self.state.is_leap(epoch):
            return ErrorCode.INVALID_REQUEST, NOT_REGISTERED
        if epoch > known and offset <= self.state.metadata_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE, NOT_REGISTERED  # rule 4
        return ErrorCode.STALE_CONTROLLER_EPOCH if epoch < known else ErrorCode.NONE, offset
