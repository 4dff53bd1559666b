"""EpochBound: which epochs of others are credible.

An epoch begins with an election, so epochs grow by ones. A replica enters the epoch that a message names if it is above
its own. So one message with the last epoch, 2^31 - 1, would end all elections for ever: no epoch follows it.

Rules
1. A request (Vote, BeginQuorumEpoch, EndQuorumEpoch) may name an epoch up to `JUMP_MAX` above ours. The used part grows
   back by `EPOCHS_PER_S`, up to `JUMP_MAX` and no further. So requests need months to reach the last epoch, also those
   to a process that has run for months.
2. A response may name any epoch up to `LEARNED_MAX`: this replica has asked a node that its configuration or the voters
   name. So a replica that was away for long comes back, whatever happened meanwhile. From there, rule 1 counts again.
   A response with a later one lets rule 1 count from `LEARNED_MAX`: the others may have come there by a response, and
   have elected since.

Different from Apache Kafka, which enters every epoch and ends with an error after the last one.

Threads: none; see quorum.py.
"""

from __future__ import annotations

from typing import Final

JUMP_MAX: Final = 1 << 16
EPOCHS_PER_S: Final = 100
LEARNED_MAX: Final = 1 << 30


class EpochBound:
    """The highest epoch that a replica enters because a request names it."""

    def __init__(self) -> None:
        self._highest = JUMP_MAX
        self._since_ms = 0

    def start(self, epoch: int, now_ms: int) -> None:
        """Begin with the epoch on disk."""
        self._highest, self._since_ms = epoch + JUMP_MAX, now_ms

    def admits(self, epoch: int, own: int, now_ms: int) -> bool:
        """Return whether a request may name this epoch (rule 1); `own` is ours."""
        more = (now_ms - self._since_ms) * EPOCHS_PER_S // 1000
        self._highest = max(min(self._highest + more, own + JUMP_MAX), own)
        self._since_ms += more * 1000 // EPOCHS_PER_S
        return epoch <= self._highest

    def learns(self, epoch: int, own: int, now_ms: int) -> bool:
        """Return whether a response may name this epoch, and count from there (rule 2)."""
        if self.admits(epoch, own, now_ms):
            return True
        if own < LEARNED_MAX:
            self.start(min(epoch, LEARNED_MAX), now_ms)
        return epoch <= self._highest
