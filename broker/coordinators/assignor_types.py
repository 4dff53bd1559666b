"""What an assignor is told of the members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from barnabas.broker.coordinators.consumer_group_types import Assignment


class MemberSpec(NamedTuple):
    """A member's subscription, by topics that exist, and its last target assignment.

    Targets come from the log: two members may claim one partition there, or one that does not exist.
    """

    topic_ids: frozenset[bytes]
    assignment: Assignment = {}
    instance_id: str | None = None


Specs: TypeAlias = Mapping[str, MemberSpec]  # by member id


def is_homogeneous(members: Specs) -> bool:
    """Whether all are subscribed to the same topics."""
    return len({member.topic_ids for member in members.values()}) <= 1
