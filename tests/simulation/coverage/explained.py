"""Why cells and packages are never reached, or little.

Threads: none.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from tests.simulation.coverage.cells import Cell

UNEXPLAINED: Final = "not explained"

_LATE_FETCH: Final = "a fetcher ends before the role changes; only an answer that it handles at that moment is late"
_LATE_LEADER: Final = "a leader that was deposed is asked no more; only what is handled at that moment is late"
_NO_LEADER: Final = "nobody leads, so nothing is appended, copied or asked, unless it is handled at that moment"
_NOT_ALLOWED: Final = "no such transition (TRANSITIONS)"
_PREPARED: Final = "an assertion of the machine: only a decided transaction gets markers and ends"

#: (machine, state, event), each a pattern -> the reason. The first one that fits counts.
EXPLAINED: Final[tuple[tuple[Cell, str], ...]] = (
    (("partition", "*", "replace_log"), "no client moves replicas between log directories"),
    (("partition", "leads*", "append_as_follower"), _LATE_FETCH),
    (("partition", "leads*", "update_follower_watermarks"), _LATE_FETCH),
    (("partition", "leads*", "truncate*"), _LATE_FETCH),
    (("partition", "follows", "delete_records_on_leader"), "an admin asks the leader, by metadata that is seldom old"),
    (("partition", "follows", "*"), _LATE_LEADER),
    (("partition", "no leader", "*"), _NO_LEADER),
    (("transaction", "*", "expire"), "an id expires after a week (transactional.id.expiration.ms)"),
    (("transaction", "*", "give_up"), "only the removal of an expired id is given up"),
    (("transaction", "EMPTY", "finish"), _PREPARED),
    (("transaction", "ONGOING", "finish"), _PREPARED),
    (("transaction", "COMPLETE_*", "finish"), _PREPARED),
    (("transaction", "EMPTY", "marked"), _PREPARED),
    (("transaction", "ONGOING", "marked"), _PREPARED),
    (("transaction", "COMPLETE_*", "marked"), _PREPARED),
    (("transaction", "EMPTY", "fence"), "only an open transaction is fenced"),
    (("transaction", "PREPARE_*", "fence"), "only an open transaction is fenced"),
    (("transaction", "COMPLETE_*", "fence"), "only an open transaction is fenced"),
    (("transaction", "*", "verify"), "a client adds the partition before it writes; a write that comes later is late"),
    (("consumer group", "*", "PartitionMetadata"), "a record of older releases, which is only removed"),
    (("consumer group", "*", "RegexTopics"), "no member of the load subscribes by a pattern"),
    (("consumer group", "Dead", "*"), "a group is dead when its last record has been removed"),
    (("consumer group", "Empty", "CurrentAssignment"), "a group without members assigns nothing"),
    (("consumer group", "Empty", "Target*"), "a group without members assigns nothing"),
    (("consumer group", "Reconciling", "TargetEpoch"), "it follows a new group epoch, which makes the group Assigning"),
    (("consumer group", "Stable", "Target*"), "it follows a new group epoch, which makes the group Assigning"),
    (("classic group", "Empty", "Empty"), _NOT_ALLOWED),
    (("classic group", "Empty", "CompletingRebalance"), _NOT_ALLOWED),
    (("classic group", "Empty", "Stable"), _NOT_ALLOWED),
    (("classic group", "Empty", "Dead"), "a group is empty only at the beginning, when its coordinator seldom moves"),
    (("classic group", "PreparingRebalance", "PreparingRebalance"), _NOT_ALLOWED),
    (("classic group", "PreparingRebalance", "Stable"), _NOT_ALLOWED),
    (("classic group", "CompletingRebalance", "Empty"), _NOT_ALLOWED),
    (("classic group", "CompletingRebalance", "CompletingRebalance"), _NOT_ALLOWED),
    (("classic group", "CompletingRebalance", "Dead"), "a coordinator seldom moves between a join and its assignment"),
    (("classic group", "Stable", "Empty"), _NOT_ALLOWED),
    (("classic group", "Stable", "CompletingRebalance"), _NOT_ALLOWED),
    (("classic group", "Stable", "Stable"), _NOT_ALLOWED),
    (("classic group", "Dead", "*"), "a dead group is removed at once"),
    (("purgatory", "Deferred", "safe_try_complete"), "its owner answers; nothing is tried"),
    (("purgatory", "Deferred", "force_complete"), "its owner answers, without a limit of time"),
    (("purgatory", "Deferred", "run"), "its owner answers, without a limit of time"),
)

#: Package, a pattern -> why lives leave most of it out. What lives do not enter has tests of its own.
PACKAGES: Final[tuple[tuple[str, str], ...]] = (
    ("broker/clock", "the clock in the hand: lives have virtual time"),
    ("broker/coordinators/streams_groups*", "no member of a streams group takes part"),
    ("broker/coordinators/persister", "share groups: in three of ten lives"),
    ("broker/coordinators/share_*", "share groups: in three of ten lives"),
    ("broker/share*", "share groups: in three of ten lives"),
    ("broker/coordinators/assignors", "each group has one assignor"),
    ("broker/faults*", "faults on purpose: lives have their own"),
    ("broker/live", "pages: `--live` looks at them in a fork"),
    ("broker/monitoring", "nobody asks for metrics"),
    ("broker/network/sasl", "no life has logins"),
    ("broker/network/secure", "TLS is not simulated"),
    ("broker/network/unauthenticated", "no life has logins"),
    ("broker/quotas", "no client has a quota"),
    ("broker/telemetry", "no client sends its metrics"),
    ("controller/decisions/security", "no life has credentials, tokens or quotas; ACLs are decided"),
)


def reason_of(cell: Cell) -> str:
    """Return why a cell is not reached."""
    for patterns, reason in EXPLAINED:
        if all(fnmatchcase(part, pattern) for part, pattern in zip(cell, patterns, strict=True)):
            return reason
    return UNEXPLAINED


def reason_of_package(package: str) -> str:
    """Return why lives leave most of a package out; empty if they do not."""
    return next((reason for pattern, reason in PACKAGES if fnmatchcase(package, pattern)), "")
