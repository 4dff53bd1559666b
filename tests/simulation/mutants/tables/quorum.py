"""Mistakes of several controllers: votes, commits, the lead, what survives a power failure."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

QUORUM: Final = {
    "votes-for-older-logs": Mutant(
        "controller.raft.handlers.elections",
        "is_up_to_date = log_end.is_up_to_date_with(q.outline.end)",
        "is_up_to_date = q.outline.end.is_up_to_date_with(log_end)",
        "a vote needs a log that is as new",
    ),
    "votes-twice": Mutant(
        "controller.raft.roles",
        "return role.voted.matches(candidate)",
        "return True",
        "a vote is given once in an epoch",
        life="amid=2",
    ),
    "votes-are-not-stored": Mutant(
        "controller.raft.quorum",
        "role.deadline_ms = now_ms + self._election_timeout()\n            self._persist()",
        "role.deadline_ms = now_ms + self._election_timeout()",
        "a vote is on the disk before the candidate hears of it",
        life="haste=1",
    ),
    "votes-are-not-durable": Mutant(
        "controller.raft.election_state",
        "self._fs.atomic_write(self._path, content)",
        "self._fs.write_bytes(self._path, content, sync=False)",
        "a vote survives a power failure",
    ),
    "one-vote-elects": Mutant(
        "controller.raft.roles",
        "return len(self.granted) >= self._majority",
        "return len(self.granted) >= 1",
        "a majority elects a leader",
    ),
    "one-log-commits": Mutant(
        "controller.raft.leader_state",
        "candidate = ends[len(ends) // 2]",
        "candidate = ends[0]",
        "what a majority has is committed",
    ),
    "earlier-epochs-are-committed": Mutant(
        "controller.raft.leader_state",
        "if candidate <= self.epoch_start_offset or candidate <= self.high_watermark:",
        "if candidate <= self.high_watermark:",
        "a leader commits records of earlier epochs with one of its own only (figure 8 of the Raft paper)",
        life="haste=1",
    ),
    "fetches-before-the-flush": Mutant(
        "controller.raft.client.driver",
        "if must_flush:\n            self._log.flush()",
        "if must_flush and False:\n            self._log.flush()",
        "a replica has flushed what it says it has",
    ),
    "fetches-of-another-history-count": Mutant(
        "controller.raft.handlers.fetching",
        "q.outline.validate(offset, partition.last_fetched_epoch)",
        "q.outline.validate(offset, q.outline.last_epoch)",
        "a fetch counts if the log before it is the leader's",
        life="amid=2",
    ),
    "divergence-of-controllers-stays": Mutant(
        "controller.raft.handlers.fetching",
        "q.effects.append(Truncate(offset))",
        "pass",
        "a replica removes from its disk what its leader does not have",
    ),
    "active-before-it-has-replayed": Mutant(
        "controller.raft.client.driver",
        "self._leading = leader if leader.leader_id == self._node_id else None",
        "self._leading = None",
        "a new active controller has replayed everything before it acts",
    ),
    "decisions-of-a-lost-lead-stay": Mutant(
        "controller.quorum_controller",
        "self._uncommitted.drop()",
        "self._uncommitted",
        "what was not committed when the lead was lost is forgotten",
        life="haste=1",
    ),
    "answered-before-the-quorum-has-it": Mutant(
        "controller.quorum_controller",
        "return self.committed_image.offset",
        "return self.image.offset",
        "a decision is answered once the quorum has it",
    ),
}
