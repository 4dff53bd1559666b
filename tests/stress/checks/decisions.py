"""Decisions: what an administrator asked of the controllers, and whether they kept it.

A value is asked for a name: "there" or "gone" for a topic or an ACL, a number for a setting. The rules:

1. lost         What was acknowledged is so in the end, and what was acknowledged as gone stays gone.
2. taken back   A topic has the same id each time that it is seen, and the epochs of its leaders do not go back.
3. given twice  No producer id is given twice.
4. done twice   A request that was sent once is not answered as if it had been carried out before.

A request without a clear answer may or may not have an effect, also later. So its name has two possible values, and is
not used again.

*Threads*: none; the owner's thread alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

THERE, GONE = "there", "gone"


class Seen(NamedTuple):
    """A topic according to a broker."""

    topic_id: bytes
    leader_epochs: tuple[int, ...]


class Decisions:
    """See the module."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self._possible: dict[Hashable, set[object]] = {}
        self._topics: dict[str, Seen] = {}
        self._producer_ids: set[int] = set()
        self._problems: list[str] = []

    @property
    def producer_ids(self) -> int:
        """How many producer ids were given."""
        return len(self._producer_ids)

    def acknowledge(self, name: Hashable, value: object) -> None:
        """A value was acknowledged."""
        self._possible[name] = {value}
        self.acknowledged += 1

    def doubt(self, name: Hashable, value: object, before: object = GONE) -> None:
        """A value was asked for, and the answer is not clear."""
        self._possible.setdefault(name, {before}).add(value)

    def repeat(self, name: Hashable, error: str) -> None:
        """A request that was sent once was answered with an error that says that its effect was there already."""
        self._problems.append(f"done twice: {name} was answered with {error}")

    def is_usable(self, name: Hashable) -> bool:
        """Whether a value of a name may be asked for: no earlier answer about it was unclear."""
        return len(self._possible.get(name, ())) < 2

    def is_clear(self, name: Hashable) -> bool:
        """Whether the value of a name is known."""
        return len(self._possible.get(name, ())) == 1

    def see_topic(self, name: str, seen: Seen, broker: str) -> None:
        """A broker describes a topic. Brokers may lag, so an epoch counts only in the end."""
        known = self._topics.get(name, seen)
        if known.topic_id != seen.topic_id:
            self._problems.append(f"taken back: {name} had id {known.topic_id.hex()}, {broker}: {seen.topic_id.hex()}")
        highest = tuple(map(max, known.leader_epochs, seen.leader_epochs))
        self._topics[name] = Seen(known.topic_id, highest)

    def give(self, producer_id: int, broker: str) -> None:
        """A broker gave a producer id."""
        if producer_id in self._producer_ids:
            self._problems.append(f"given twice: producer id {producer_id}, the second time by {broker}")
        self._producer_ids.add(producer_id)

    def check(self, final: Mapping[Hashable, object], topics: Mapping[str, Seen]) -> list[str]:
        """All problems, given the values and topics of a healed cluster; a name that it does not have is gone."""
        return [*self._problems, *self._lost(final), *self._taken_back(topics)]

    def _lost(self, final: Mapping[Hashable, object]) -> Iterable[str]:
        for name, possible in self._possible.items():
            value = final.get(name, GONE)
            if value not in possible:
                yield f"lost: {name} is {value}, and should be {' or '.join(sorted(map(str, possible)))}"

    def _taken_back(self, topics: Mapping[str, Seen]) -> Iterable[str]:
        for name, now in topics.items():
            known = self._topics.get(name, now)
            if known.topic_id != now.topic_id:
                yield f"taken back: {name} had id {known.topic_id.hex()}, and has {now.topic_id.hex()} in the end"
            if any(after < before for before, after in zip(known.leader_epochs, now.leader_epochs, strict=False)):
                yield f"taken back: {name} had leader epochs {known.leader_epochs}, and has {now.leader_epochs}"
