"""Mistakes on purpose: each changes one part of a function of the core, and the simulator must notice.

A mutant names a function, a part of its source that is there exactly once, and what that becomes. The code of the
function is replaced where it is, so every importer runs the mistake.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import NamedTuple

from barnabas.controller.raft import leader_state, log_outline, quorum, roles
from barnabas.controller.raft.handlers import common, elections, fetching, voter_changes


class Mutant(NamedTuple):
    """A mistake, and the rule of invariants.py that breaks."""

    function: FunctionType
    part: str
    becomes: str


MUTANTS = {
    "votes twice in an epoch": Mutant(
        roles.can_grant_vote,
        "return role.voted.matches(candidate)",
        "return is_up_to_date",
    ),
    "compares logs by length alone": Mutant(
        log_outline.OffsetAndEpoch.is_up_to_date_with,
        "return (self.epoch, self.offset) >= (other.epoch, other.offset)",
        "return self.offset >= other.offset",
    ),
    "votes for a shorter log": Mutant(
        elections.handle_vote, "is_up_to_date = log_end.is_up_to_date_with(q.outline.end)", "is_up_to_date = True"
    ),
    "counts a new disk as the voter's": Mutant(
        leader_state.Leader.replica, "if state is None or not state.key.matches(key):", "if state is None:"
    ),
    "forgets the vote at a restart": Mutant(quorum.Quorum.vote_for, "self._persist()", "pass"),
    "is elected by a minority": Mutant(
        roles.Votes.is_granted.fget, "len(self.granted) >= self._majority", "len(self.granted) >= self._majority - 1"
    ),
    "leads again in the epoch after a restart": Mutant(
        quorum.Quorum.start,
        "self.role = Resigned(epoch, deadline, leader_id)",
        "self.role = Candidate(epoch, deadline, Votes(self.outline.voters, self.key.id), self.key)",
    ),
    "commits what one replica has": Mutant(
        leader_state.Leader.advance_high_watermark, "ends[len(ends) // 2]", "ends[(len(ends) - 1) // 3]"
    ),
    "commits records of an earlier epoch (figure 8)": Mutant(
        leader_state.Leader.advance_high_watermark, "candidate <= self.epoch_start_offset or ", ""
    ),
    "acknowledges before it flushes": Mutant(
        fetching._append, "(Append(tuple(accepted)), Flush())", "(Append(tuple(accepted)),)"
    ),
    "commits before it flushes": Mutant(quorum.Quorum.append, "(Append((batch,)), Flush())", "(Append((batch,)),)"),
    "does not truncate": Mutant(
        log_outline.LogOutline.validate, "if end.epoch != epoch or end.offset < offset:", "if end.offset < offset:"
    ),
    "counts a fetch beyond what it checked": Mutant(
        fetching._answer_replica, "if validity is Validity.DIVERGING:", "if False:"
    ),
    "changes voters while a change is not committed": Mutant(
        voter_changes._refused_change,
        "if membership.offset >= leader.high_watermark:",
        "if False:",
    ),
    "takes back no voters with a truncation": Mutant(
        log_outline.LogOutline.truncate, "self._history[-1].offset >= offset", "False"
    ),
    "votes with a new disk for the old one": Mutant(
        common.is_for_this_replica, "directory_id in (ZERO_UUID, q.key.directory_id)", "len(directory_id) > 0"
    ),
    "upgrades with voters that have no directories": Mutant(
        quorum.Quorum.upgrade_kraft_version, "voters.to_record())", "self.outline.voters.to_record())"
    ),
    "forgets its vote when it loses a pre-vote": Mutant(
        quorum.Quorum.become_unattached, "voted = role.voted if epoch == role.epoch else None", "voted = None"
    ),
}


class MutantError(Exception):
    """A mutant does not fit the source."""


@contextmanager
def mistake(mutant: Mutant) -> Iterator[None]:
    """Run with the mistake; raises MutantError unless its part is there once."""
    source = textwrap.dedent(inspect.getsource(mutant.function))
    if source.count(mutant.part) != 1:
        raise MutantError(f"{mutant.function.__qualname__} has {source.count(mutant.part)} times: {mutant.part}")
    scope: dict[str, object] = {}
    lines = "from __future__ import annotations\n" + source.replace(mutant.part, mutant.becomes)
    exec(compile(lines, "<mutant>", "exec", dont_inherit=True), dict(mutant.function.__globals__), scope)
    made = scope[mutant.function.__name__]
    if isinstance(made, property):
        made = made.fget
    assert isinstance(made, FunctionType)
    before = mutant.function.__code__
    mutant.function.__code__ = made.__code__
    try:
        yield
    finally:
        mutant.function.__code__ = before
