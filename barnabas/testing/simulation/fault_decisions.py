"""What happens to a simulated cluster, as a list of decisions that can be stored, cut and repeated.

A decision has all its randomness in `choice`, so it means the same in a list that lacks others.

Threads: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

#: Kind -> how often it comes, compared with the others. Each is a method of `Faults`.
KINDS: Final = {
    "kill": 3,
    "kill_amid": 1,
    "pause": 2,
    "stop": 2,
    "lose_power": 3,
    "isolate": 2,
    "part": 1,
    "depose": 4,
    "orphan": 2,
    "cut_one_way": 2,
    "slow_link": 2,
    "break_connections": 2,
    "jump": 1,
    "fill_disk": 1,
    "break_disk": 1,
    "slow_disk": 2,
    "replace_disk": 1,
    "empty_files": 1,
    "kill_peers": 1,
    "strand": 1,
    "relay": 1,
}
#: Comes as well where brokers flush each batch.
FLUSHED_KINDS: Final = {**KINDS, "lose_all_power": 1}
#: Come only where they are favoured: they were made to show one mistake each, and take much of a life.
TOLD_KINDS: Final = {"overtake": 1, "deafen": 1}
ALL_KINDS: Final = (*FLUSHED_KINDS, *TOLD_KINDS)
#: How often nothing happens for a while after a fault. Without it, brisk faults leave a cluster nothing to lose.
LULLS: Final = 0.1
LULL_MS_MAX: Final = 12_000
#: How much more often a favoured kind comes.
FAVOURED: Final = 6


@dataclass(frozen=True, slots=True)
class FaultPace:
    """How often faults come, how long they last, and which."""

    gap_ms_max: int = 8_000  # between the beginnings of two faults
    length_ms_max: int = 15_000
    is_flushed: bool = False  # brokers flush each batch, so that they may lose power at any time
    left_out: frozenset[str] = frozenset()  # kinds that do not happen
    favoured: frozenset[str] = frozenset()  # kinds that happen often


class DecisionError(Exception):
    """A stored decision is wrong; the message is one line."""


class Decision(NamedTuple):
    """A fault of a node; one that cannot happen when its time comes is left out."""

    at_ms: int  # after the first moment of the faults
    kind: str
    node_id: int
    length_ms: int  # until its end
    choice: int  # the seed of whatever else it needs

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return self._asdict()

    @classmethod
    def from_json(cls, value: Any) -> Decision:
        """Return a stored decision. Raises DecisionError."""
        try:
            found = cls(**value)
        except TypeError:
            raise DecisionError(f"no decision: {value!r}; it has {', '.join(cls._fields)}") from None
        numbers = (found.at_ms, found.node_id, found.length_ms, found.choice)
        if found.kind not in ALL_KINDS or not all(type(number) is int and number >= 0 for number in numbers):
            raise DecisionError(f"no decision: {value!r}; the kinds are {', '.join(ALL_KINDS)}")
        return found


def draw_decisions(
    rng: random.Random, node_ids: Sequence[int], length_ms: int, pace: FaultPace | None = None
) -> list[Decision]:
    """Return random decisions for a time, in their order."""
    pace = pace or FaultPace()
    weights = dict(FLUSHED_KINDS if pace.is_flushed else KINDS)
    weights |= {kind: weight for kind, weight in TOLD_KINDS.items() if kind in pace.favoured}
    kinds = [kind for kind in weights if kind not in pace.left_out]
    chances = [weights[kind] * (FAVOURED if kind in pace.favoured else 1) for kind in kinds]
    drawn: list[Decision] = []
    at_ms = 0
    while True:
        at_ms += _short(rng, pace.gap_ms_max)
        if rng.random() < LULLS:
            at_ms += int(rng.random() * LULL_MS_MAX)
        if at_ms >= length_ms:
            return drawn
        kind = rng.choices(kinds, chances)[0]
        drawn.append(Decision(at_ms, kind, rng.choice(node_ids), _short(rng, pace.length_ms_max), rng.getrandbits(32)))


def in_order(decisions: Iterable[Decision]) -> list[Decision]:
    """Return decisions in the order of their times."""
    return sorted(decisions, key=lambda decision: decision.at_ms)


def _short(rng: random.Random, ms_max: int) -> int:
    # Why the square: most times are short, as the interesting ones are.
    return int(rng.random() ** 2 * ms_max)
