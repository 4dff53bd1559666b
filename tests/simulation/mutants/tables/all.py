"""Every mistake, by area and name."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.tables.cleaning import CLEANING
from tests.simulation.mutants.tables.election import ELECTION
from tests.simulation.mutants.tables.groups import GROUPS
from tests.simulation.mutants.tables.quorum import QUORUM
from tests.simulation.mutants.tables.recovery import RECOVERY
from tests.simulation.mutants.tables.replication import REPLICATION
from tests.simulation.mutants.tables.shares import SHARES
from tests.simulation.mutants.tables.transactions import TRANSACTIONS
from tests.simulation.mutants.tables.waiting import WAITING

AREAS: Final[dict[str, dict[str, Mutant]]] = {
    "replication": REPLICATION,
    "election": ELECTION,
    "recovery": RECOVERY,
    "waiting": WAITING,
    "transactions": TRANSACTIONS,
    "groups": GROUPS,
    "cleaning": CLEANING,
    "quorum": QUORUM,
    "shares": SHARES,
}


def _story(**given: int) -> str:
    kinds = (
        *("producers", "pipelining", "readers", "plain", "silent", "transactional", "copiers", "classic", "consumers"),
        *("keyed", "trimmed", "meddlers", "deciders", "sharers"),
    )
    counts = {"brokers": 3, "controllers": 1, **dict.fromkeys(kinds, 0), **given}
    return ",".join(f"{name}={count}" for name, count in counts.items())


#: The cast of the lives of an area (load/story.py): few clients, so that a life is short, and those that may notice.
#: What it does not name, the seed draws.
STORIES: Final[dict[str, str]] = {
    "replication": _story(seconds=40, producers=1, pipelining=1, readers=1, plain=1),
    "election": _story(seconds=40, producers=2, readers=1, transactional=1),
    "recovery": _story(seconds=40, producers=1, pipelining=1, readers=1, plain=1, transactional=1),
    "waiting": _story(seconds=40, producers=1, pipelining=1, readers=2, plain=1),
    "transactions": _story(producers=1, transactional=2, copiers=1),
    "groups": _story(producers=1, classic=2, consumers=2),
    "cleaning": _story(seconds=40, keyed=2, trimmed=1),
    "quorum": _story(seconds=40, controllers=3, deciders=1, producers=1),
    "shares": _story(seconds=40, producers=1, sharers=3),
}
MUTANTS: Final = {name: mutant for mutants in AREAS.values() for name, mutant in mutants.items()}
#: What was replaced since it had no effect that anybody could see.
REPLACED: Final = (
    "the-older-value-stays was `flags[number] = DEAD` alone, which a later line undoes: nothing was removed at all.",
    "the-last-handler-sleeps let the last handler sleep that was awake: a processor wakes one within 0.5 ms.",
    "old-isr-proposals-count took proposals for an older state: those of another leader epoch, with a fenced member or"
    " with an earlier process of a member are refused by other checks, and no other proposal differs from the state.",
    "last-sequences-are-cleaned dropped the last, empty batch of a producer: only one sees it that repeats its last"
    " batch after others have overwritten its keys, to a leader that has copied the log anew.",
    "snapshots-of-producers-are-not-flushed (3f45d27) costs the next start time: without a snapshot, or with a torn one"
    ", it reads more of the log, and finds the same producers.",
    "append-from-a-former-leader let a follower append what it fetched in an earlier epoch: the next fetch finds a gap"
    " or the divergence, and mends it.",
    "truncates-to-the-own-watermark did so where logs diverge: what a follower has beyond its leader came after the"
    " answer that told it the high watermark, but for batches that were appended within milliseconds.",
    "a-former-leader-acknowledges let the request wait on for the high watermark: a follower knows no ISR, so it"
    " answers NOT_ENOUGH_REPLICAS_AFTER_APPEND then.",
    "isr-changes-wake-nobody: a leader takes a smaller ISR from the push only, which wakes all. A larger one moves no"
    " high watermark.",
    "truncation-does-not-stop-the-cleaner: it cleans below the high watermark, which nobody truncates without unclean"
    " elections, and these lives have none.",
    "fetches-of-other-epochs-count: a log of an earlier epoch has nothing of the leader's own, without which it commits"
    " nothing.",
    "guards-are-not-renewed left out `query.renew()` before a further query (verification.py): after the answer the"
    " guards are drawn anew as well, and the coordinator is asked a second time if one was dropped (verified.py), by"
    " when no marker can come. It costs a query.",
    "isr-becomes-empty was right once eligible leader replicas were on: the last member of an ISR may leave it.",
)
AREA_OF: Final = {name: area for area, mutants in AREAS.items() for name in mutants}


def story_of(name: str) -> str:
    """Return the story of the lives of a mutant: that of its area, as the mutant changes it."""
    return ",".join(filter(None, (STORIES[AREA_OF[name]], MUTANTS[name].life)))
