"""Acknowledgements of a request: what makes them valid, and waiting until they are written.

Source: Kafka's KafkaApis.validateAcknowledgementBatches, isMemberIdValid (4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.share.partition.values import Acknowledgement

if TYPE_CHECKING:
    from barnabas.broker.share.manager import Outcomes, SharePartitionManager
    from barnabas.broker.share.sessions import Member, Place
    from barnabas.common.pages.live_shape import Reason

MEMBER_ID_CHARACTERS_MAX: Final = 36  # of a UUID that people read
RENEW: Final = 4
RENEW_FROM: Final = 2  # the first version of ShareFetch and ShareAcknowledge


def is_member_id_valid(member_id: str | None) -> bool:
    """Whether a member may be called that."""
    return member_id is not None and 0 < len(member_id) <= MEMBER_ID_CHARACTERS_MAX


def are_valid(acknowledgements: Sequence[Acknowledgement], version: int, *, is_renew_ack: bool) -> bool:
    """Whether the acknowledgements of one partition can be meant: in order, with one type or one for each offset."""
    type_max = RENEW if version >= RENEW_FROM else RENEW - 1
    last = -1
    for each in acknowledgements:
        types = each.types
        if each.first > each.last or each.first < last or not types:
            return False
        if len(types) > 1 and each.last - each.first != len(types) - 1:
            return False
        if min(types) < 0 or max(types) > type_max or (RENEW in types and not is_renew_ack):
            return False
        last = each.last
    return True


class AcknowledgementWait(DelayedOperation):
    """Waits until the acknowledgements of a request are written; then `outcomes` has what became of each partition."""

    __slots__ = ("outcomes",)

    def __init__(self) -> None:
        super().__init__(None)
        self.outcomes: Outcomes = {}  # replaced before completion

    def begin(
        self,
        manager: SharePartitionManager,
        member: Member,
        acknowledgements: dict[Place, Sequence[Acknowledgement]],
    ) -> None:
        """Apply the acknowledgements."""
        manager.acknowledge(member, acknowledgements, self._done)

    def _done(self, outcomes: Outcomes) -> None:
        self.outcomes = outcomes
        self.force_complete()

    def try_complete(self) -> bool:
        """Return false: only the writes complete it."""
        return False

    def waits_for(self) -> list[Reason]:
        """Return what is missing: writes of share coordinators."""
        return [{"kind": "write", "text": "for its acknowledgements to be written by the share coordinators"}]
