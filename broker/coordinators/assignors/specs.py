"""The input of an assignor: the members and their subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from barnabas.broker.coordinators.consumer.values import Assignment


class MemberSpec(NamedTuple):
    """A member's subscription to existing topics, and its last target assignment.

    Target assignments come from the log. They may claim a partition twice, or one that does not exist.
    """

    topic_ids: frozenset[bytes]
    assignment: Assignment = {}
    instance_id: str | None = None


Specs: TypeAlias = Mapping[str, MemberSpec]  # by member id


def is_homogeneous(members: Specs) -> bool:
    """Return whether all members are subscribed to the same topics."""
    return len({member.topic_ids for member in members.values()}) <= 1
