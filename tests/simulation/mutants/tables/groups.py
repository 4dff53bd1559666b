"""Mistakes of group coordinators: generations, offsets, assignments."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

GROUPS: Final = {
    "old-generations-may-commit": Mutant(
        "broker.coordinators.classic.steps",
        "if event.generation_id != group.generation_id:\n            return ErrorCode.ILLEGAL_GENERATION\n    elif",
        "if event.generation_id > group.generation_id:\n            return ErrorCode.ILLEGAL_GENERATION\n    elif",
        "a member of an older generation commits nothing",
    ),
    "strangers-may-commit": Mutant(
        "broker.coordinators.classic.group",
        "return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID",
        "return ErrorCode.NONE",
        "a member that was removed commits nothing",
    ),
    "offsets-before-they-are-committed": Mutant(
        "broker.coordinators.groups.core",
        "if self.writes.has_loaded and (group_id is None",
        "if self.writes.has_loaded and error and (group_id is None",
        "the next coordinator serves no offset that a failover may take back",
        "481d872",
        life="haste=1,relays=2,classic=0,consumers=4,pause_ms=50",
    ),
    "groups-before-they-are-committed": Mutant(
        "broker.coordinators.groups.shard",
        "if not is_committed:\n"
        "                self._core.writes.add_loaded(record_offset, lambda: None, record.group_id)",
        "assert record_offset >= 0",
        "the next coordinator serves no consumer group that a failover may take back",
        "8636d2b",
        life="haste=1,relays=2,classic=0,consumers=4,pause_ms=50",
    ),
    "loaded-offsets-are-forgotten": Mutant(
        "broker.coordinators.runtime.committed_writes",
        "del self._loaded[owner]\n            on_commit()",
        "del self._loaded[owner]",
        "an offset that was committed as its coordinator moved is kept",
    ),
    "the-join-does-not-wait": Mutant(
        "broker.coordinators.classic.members",
        "return len(self.by_id) == self.awaiting_join_count and not self.pending_join",
        "return self.awaiting_join_count > 0 and not self.pending_join",
        "a generation begins when every member has joined or ran out of time",
    ),
    "silent-members-stay": Mutant(
        "broker.coordinators.classic.steps",
        "if member is not None and member.is_waiting:\n        return",
        "if member is not None and not member.is_waiting:\n        return",
        "a member that is silent for its session timeout is removed",
        life="faults=0",
    ),
    "taken-partitions-are-given": Mutant(
        "broker.coordinators.consumer.reconcile",
        "free = [partition for partition in missing if aim.is_free(topic_id, partition)]",
        "free = list(missing)",
        "a partition has one owner: it is given after it was given up (KIP-848)",
    ),
    "revocation-is-not-awaited": Mutant(
        "broker.coordinators.consumer.reconcile",
        "if to_revoke and _still_owns(to_revoke, aim):",
        "if to_revoke and aim.target_epoch < 0:",
        "a member owns its partitions until it has given them up (KIP-848)",
    ),
    "fenced-members-return": Mutant(
        "broker.coordinators.consumer.heartbeats",
        "if epoch in (v.JOIN_EPOCH, member.epoch):",
        "if epoch <= member.epoch:",
        "a member with an old epoch abandons its partitions (KIP-848)",
    ),
    "offsets-of-former-topics-stay": Mutant(
        "broker.coordinators.groups.group_offsets",
        "is_former = current_id not in topic_ids and (former_id != ZERO_UUID or ZERO_UUID not in topic_ids)",
        "is_former = False",
        "a topic that is made anew has none of its predecessor's offsets (issue 15, A7)",
        life="faults=0,classic=0,consumers=0,deciders=2,renewers=2,seconds=20",
    ),
    "old-epochs-may-commit": Mutant(
        "broker.coordinators.consumer.group",
        "if assigned_in is None or epoch < assigned_in:",
        "if epoch < 0:",
        "a member commits only for partitions that it has (KIP-1251)",
    ),
}
