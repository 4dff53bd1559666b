"""Describes a group: its state, what it waits for, its members, its lag. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.cli.inside.partition_words import INDENT, waiting_lines
from barnabas.common.pages.live_shape import Group, Member, SharePartition, Waiting
from barnabas.common.pages.phrases import count, duration, listed
from barnabas.common.topic_partition import TopicPartition

SHOWN = 20
KINDS: Final = {
    "classic": "classic group",
    "consumer": "consumer group (KIP-848)",
    "share": "share group (KIP-932)",
    "streams": "streams group (KIP-1071)",
}
_SHARE_OFFSETS: Final = "The share coordinators have its offsets: barnabas group describe shows them."


class Position(NamedTuple):
    """A group's position in a partition."""

    tp: TopicPartition
    committed: int | None
    end: int
    owner: str | None  # member id

    @property
    def lag(self) -> int | None:
        """Records behind the end; None if nothing was committed."""
        return None if self.committed is None else max(0, self.end - self.committed)


def group_words(
    group: Group,
    coordinator: int,
    positions: Sequence[Position],
    waiting: Iterable[Waiting] = (),
    problem: str = "",
    shares: Sequence[SharePartition] = (),
) -> list[str]:
    """The lines about a group, from its coordinator's page; `problem`: why its positions are not known.

    `shares` are what the leaders' pages say of a share group.
    """
    members: list[Member] = group["members"]["items"]
    heading = [_heading(group, coordinator), f"It {group['sentence']}."]
    if group["type"] == "share":
        own = [_SHARE_OFFSETS, *_shares(shares)]
        return [*heading, *_members(group, members, None), *own, *waiting_lines(waiting)]
    # Why: a coordinator reports no assignments while a classic group rebalances.
    # A streams group assigns tasks, which the lines of its members have.
    are_owners_known = group["type"] == "consumer" or (
        group["type"] == "classic" and group["state"] in ("Stable", "Empty")
    )
    return [
        *heading,
        *_members(group, members, positions if are_owners_known and not problem else None),
        *([f"Its lag is unknown: {problem}."] if problem else _positions(positions, are_owners_known=are_owners_known)),
        *waiting_lines(waiting),
    ]


def _shares(shares: Sequence[SharePartition]) -> list[str]:
    if not shares:
        return ["No broker that answers delivers records to it now."]
    lines = [f"{count(len(shares), 'partition')} {'is' if len(shares) == 1 else 'are'} delivered to it:"]
    for share in sorted(shares, key=lambda it: (it["topic"], it["partition"]))[:SHOWN]:
        tp = TopicPartition(share["topic"], share["partition"])
        flight = f"from offset {share['start_offset']} on, {count(share['in_flight'], 'offset')} in flight"
        lines.append(f"{INDENT}{tp}: " + ("" if share["is_loading"] else f"{flight}; ") + share["sentence"])
        for held in share["held"]["items"][:SHOWN]:
            often = count(held["delivery_count"], "time")
            span = f"{held['first_offset']} to {held['last_offset']}, delivered {often}"
            lines.append(f"{INDENT}{INDENT}{held['member_id']} holds {span}")
        if share["held"]["total"] > SHOWN:
            lines.append(f"{INDENT}{INDENT}and {share['held']['total'] - SHOWN} more")
    if len(shares) > SHOWN:
        lines.append(f"{INDENT}and {len(shares) - SHOWN} more")
    return lines


def _heading(group: Group, coordinator: int) -> str:
    how = f"{group['group_id']} is a {KINDS[group['type']]}, {group['state']}"
    if group["since_ms"] >= 0:
        how += f" for {duration(group['since_ms'])}"
    counter = "generation" if group["type"] == "classic" else "group epoch"
    how += f", in {counter} {group['generation']}"
    if "topology_epoch" in group:
        how += f", topology epoch {group['topology_epoch']}" if group["topology_epoch"] >= 0 else ", without a topology"
    if group["protocol"]:
        how += f", assignor {group['protocol']}"
    return f"{how}. Broker {coordinator} coordinates it (__consumer_offsets-{group['coordinator_partition']})."


def _members(group: Group, members: Sequence[Member], positions: Sequence[Position] | None) -> list[str]:
    total = group["members"]["total"]
    if not total:
        return []  # the group's sentence says so
    owned: dict[str, list[str]] = {}
    for position in positions or ():
        if position.owner is not None:
            owned.setdefault(position.owner, []).append(str(position.tp))
    lines = [f"{count(total, 'member')}:"]
    for member in members[:SHOWN]:
        text = f"{INDENT}{member['member_id']} (client {member['client_id']}, {member['host']}"
        if member["instance_id"]:
            text += f", instance {member['instance_id']}"
        text += "), the leader" if group["leader"] == member["member_id"] else ")"
        text += f": {_member_state(group, member)}"
        if "tasks" in member:
            text += f"; its tasks: {member['tasks']}"
        if positions is not None:
            text += f"; it owns {listed(owned.get(member['member_id'], []), at_most=4) or 'nothing'}"
        lines.append(text)
    if total > SHOWN:
        lines.append(f"{INDENT}and {total - SHOWN} more")
    return lines


def _member_state(group: Group, member: Member) -> str:
    """A member's state, and whether the group waits for it."""
    if group["type"] == "classic":
        return {
            "joining": "it waits in JoinGroup for the other members",
            "syncing": "it waits in SyncGroup for the leader's assignment",
        }.get(member["state"], "the group waits for it to join" if _is_joining(group) else "it has joined")
    late = group["generation"] - member["epoch"]
    if member["epoch"] >= 0 and late > 0:
        return f"{member['state']}, at epoch {member['epoch']}, {late} behind the group"
    return f"{member['state']}, at epoch {member['epoch']}"


def _is_joining(group: Group) -> bool:
    return group["state"] == "PreparingRebalance"


def _positions(positions: Sequence[Position], *, are_owners_known: bool) -> list[str]:
    if not positions:
        return ["It has committed nothing" + (" and owns no partition." if are_owners_known else ".")]
    known = [position.lag for position in positions if position.lag is not None]
    uncommitted = len(positions) - len(known)
    lines = [
        f"It is {count(sum(known), 'record')} behind in {count(len(known), 'partition')}"
        + (f"; in {uncommitted} more it has committed nothing:" if uncommitted else ":")
    ]
    worst_first = sorted(positions, key=lambda position: (-(position.lag or 0), position.tp))
    for position in worst_first[:SHOWN]:
        owner = ", which no member owns" if are_owners_known else ""
        if position.owner is not None:
            owner = f", of {position.owner}"
        if position.committed is None:
            lines.append(f"{INDENT}{position.tp}: nothing committed, its end is {position.end}{owner}")
        else:
            lines.append(
                f"{INDENT}{position.tp}: committed {position.committed}, its end is {position.end}: "
                f"{count(position.lag or 0, 'record')} behind{owner}"
            )
    if len(positions) > SHOWN:
        lines.append(f"{INDENT}and {len(positions) - SHOWN} more")
    return lines


def by_partition(
    committed: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int],
    owners: Mapping[tuple[str, int], str],
) -> list[Position]:
    """The positions by partition, from an admin client's results."""
    return [Position(TopicPartition(*key), committed.get(key), ends[key], owners.get(key)) for key in sorted(ends)]
