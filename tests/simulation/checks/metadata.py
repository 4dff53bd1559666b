"""Metadata: what each node knows of partitions, as parts of one history. Pure.

A view has a `Version` of each partition that a node knows. Rules:

1. two states      A partition epoch of a partition has one leader, leader epoch and ISR, for every node.
2. epoch back      What one process knows of a partition never goes back, and its epochs only rise.
3. no prefix       Of two views, one is older in nothing that the other is older in: each is a beginning of one history.
4. came back       A process that has lost a topic (it was deleted) does not know it again.

*Threads*: none. No clock, no client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: A topic id and a partition.
Key = tuple[bytes, int]


class Version(NamedTuple):
    """The state of a partition."""

    partition_epoch: int
    leader_epoch: int
    leader: int
    isr: tuple[int, ...]


View = Mapping[Key, Version]


class MetadataJournal:
    """What processes were seen to know."""

    def __init__(self) -> None:
        self._states: dict[tuple[Key, int], tuple[Version, str]] = {}  # (partition, its epoch) -> state, who had it
        self._last: dict[str, dict[Key, Version]] = {}  # process -> its last view
        self._gone: dict[str, set[bytes]] = {}  # process -> ids of topics that it has lost
        self._known: set[bytes] = set()  # ids of topics that any process has known
        self._dead: set[bytes] = set()  # ids of topics that any process has lost, or that are deleted
        self._offset = -1  # the highest that a controller has committed

    def seen(self, views: Mapping[str, View], controller: str = "", offset: int = -1) -> list[str]:
        """Note the views of one moment, by process; return what is wrong with them, one line each.

        `controller` is the process that has committed all of its view, up to `offset`.
        """
        found: list[str] = []
        for view in views.values():
            self._known |= {key[0] for key in view}
        if controller and offset >= self._offset:
            # Why: a topic is committed before others learn of it, so one that the controller lacks is deleted, also if
            # the process that deleted it was killed before it was seen without it. A controller below the highest
            # offset shows nothing: it has not read its log yet, or has lost records.
            self._offset = offset
            self._dead |= self._known - {key[0] for key in views[controller]}
        for process, view in views.items():
            found += self._check_states(process, view)
            found += self._check_progress(process, view)
            self._last[process] = dict(view)
        names = list(views)
        for index, name in enumerate(names):
            for other in names[index + 1 :]:
                found += self._check_prefix(name, views[name], other, views[other])
        return found

    def _check_states(self, process: str, view: View) -> list[str]:
        found = []
        for key, version in view.items():
            known, witness = self._states.setdefault((key, version.partition_epoch), (version, process))
            if known != version:
                found.append(f"two states: partition {_name(key)}: {known} for {witness}, {version} for {process}")
        return found

    def _check_progress(self, process: str, view: View) -> list[str]:
        found = []
        before = self._last.get(process, {})
        gone = self._gone.setdefault(process, set())
        for key, version in view.items():
            known = before.get(key)
            if known is not None and (
                version.partition_epoch < known.partition_epoch or version.leader_epoch < known.leader_epoch
            ):
                found.append(f"epoch back: {process} knew {known} of {_name(key)}, and knows {version}")
            if key[0] in gone:
                found.append(f"came back: {process} knows {_name(key)} again")
        now = {key[0] for key in view}
        lost = {key[0] for key in before} - now
        gone |= lost
        self._dead |= lost
        return found

    def _check_prefix(self, name: str, view: View, other_name: str, other: View) -> list[str]:
        older: list[Key] = []
        newer: list[Key] = []
        for key in sorted(view.keys() | other.keys()):
            mine, its = self._age(key, name, view), self._age(key, other_name, other)
            if mine is None or its is None:
                continue
            if mine < its:
                older.append(key)
            elif mine > its:
                newer.append(key)
        if older and newer:
            return [
                f"no prefix: {name} is behind {other_name} in {_name(older[0])} "
                f"({view.get(older[0])}, {other.get(older[0])}), and ahead in {_name(newer[0])} "
                f"({view.get(newer[0])}, {other.get(newer[0])})"
            ]
        return []

    def _age(self, key: Key, process: str, view: View) -> float | None:
        """Return how new the knowledge of a process is, None if that cannot be told.

        A process without a topic that was deleted may know that, or not even know that there was one.
        """
        version = view.get(key)
        if version is not None:
            return version.partition_epoch
        if key[0] in self._gone.get(process, ()):
            return float("inf")
        return None if key[0] in self._dead else -1


def _name(key: Key) -> str:
    return f"{key[0].hex()[:8]}-{key[1]}"
