"""200,000 steps of the simulator without a violation, and mistakes that it finds. Tests replica.py, quorum.py,
leader_state.py, messages.py, effects.py, raft_config.py, handlers/common.py, handlers/polling.py, handlers/fetching.py,
handlers/snapshots.py and handlers/elections.py together.

`make compiled` takes a million steps, and `make raft STEPS=1000000000` goes on for longer.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.controller.raft.simulator.mutants import MUTANTS, mistake
from tests.controller.raft.simulator.world import live

STEPS = 10_000
SEEDS_OF_A_TEST = 10
#: Where the search for a mistake begins that few worlds show: those before it find nothing, which takes 15 s.
FIRST = {"compares logs by length alone": 55, "takes back no voters with a truncation": 66}
#: An exception of the simulator, such as an offset that no log has, is a mistake that was found, too.
FOUND = (AssertionError, LookupError, ValueError)


@pytest.mark.parametrize("first", range(1, 21, SEEDS_OF_A_TEST))
def test_no_rule_is_broken(first: int) -> None:
    counts: Counter[str] = Counter()
    steps = elections = committed = voter_changes = 0
    for seed in range(first, first + SEEDS_OF_A_TEST):
        world = live(seed, STEPS)
        steps += world.steps
        counts += world.counts
        elections += world.invariants.elections
        committed += world.invariants.committed_end
        voter_changes += world.invariants.voter_changes
    assert steps >= SEEDS_OF_A_TEST * STEPS
    # Why: a world in which nothing happens keeps every rule.
    assert min(elections, committed, voter_changes) > 10
    assert not {"crash", "crash between effects", "truncation", "snapshot", "log replaced"} - counts.keys()


def test_static_voters_are_upgraded_and_controllers_join_by_themselves() -> None:
    counts: Counter[str] = Counter()
    for seed in range(101, 121):
        counts += live(seed, 5_000).counts
    assert not {"upgrade", "upgrade: INVALID_UPDATE_VERSION", "join: NONE", "join: REQUEST_TIMED_OUT"} - counts.keys()


def test_a_new_disk_takes_a_snapshot_from_before_the_upgrade() -> None:
    """Its configuration names no voters, and the others' does: their snapshots have none, and are the same."""
    assert live(1614, 4_000).is_static


def test_the_same_seed_is_the_same_history() -> None:
    one, other = live(7, 3_000), live(7, 3_000)
    assert (one.now_us, one.counts, one.steps) == (other.now_us, other.counts, other.steps)


def lives(name: str) -> None:
    """Worlds with a mistake, until one breaks a rule."""
    with mistake(MUTANTS[name]):
        for seed in range(FIRST.get(name, 1), 200):
            live(seed, STEPS)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_found(name: str) -> None:
    with pytest.raises(FOUND):
        lives(name)
