"""Checks an output against its input. Pure; partitions are numbered from 0, records are in the order of offsets.

Rules
1. Each partition of a copier's output has the records of the input's partition: each once, in the same order.
2. The counter's output has each record of the input once, and the records of a key in their order, numbered from 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

SHOWN = 3


class Record(NamedTuple):
    """A consumed record."""

    key: str
    value: str


Topic = Mapping[int, Sequence[Record]]


def copy_problems(given: Topic, made: Topic) -> list[str]:
    """The problems of a copier's output (`made`) for this input (`given`)."""
    problems: list[str] = []
    for partition in sorted(given.keys() | made.keys()):
        wanted, found = given.get(partition, ()), made.get(partition, ())
        if list(wanted) != list(found):
            problems += [f"partition {partition}: {what}" for what in differences(wanted, found)]
    return problems


def count_problems(given: Topic, made: Topic) -> list[str]:
    """The problems of the counter's output (`made`) for this input (`given`)."""
    wanted = {key: [f"{value}#{n}" for n, value in enumerate(values, 1)] for key, values in by_key(given).items()}
    found = by_key(made)
    problems: list[str] = []
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            problems += [f"key {key}: {what}" for what in differences(wanted.get(key, []), found.get(key, []))]
    return problems


def by_key(topic: Topic) -> dict[str, list[str]]:
    """The values of each key; all records of a key are in one partition."""
    values: dict[str, list[str]] = {}
    for partition in sorted(topic):
        for record in topic[partition]:
            values.setdefault(record.key, []).append(record.value)
    return values


def differences(wanted: Sequence[object], found: Sequence[object]) -> list[str]:
    """Describe the difference of two sequences."""
    missing, extra = _without(wanted, found), _without(found, wanted)
    words = [f"{len(missing)} missing, such as {missing[:SHOWN]}"] * bool(missing)
    words += [f"{len(extra)} duplicated or unknown, such as {extra[:SHOWN]}"] * bool(extra)
    return words or ["the order differs"]


def _without(some: Sequence[object], others: Sequence[object]) -> list[object]:
    """The items that `some` contains more often than `others`."""
    left: dict[object, int] = {}
    for each in others:
        left[each] = left.get(each, 0) + 1
    rest: list[object] = []
    for each in some:
        if left.get(each, 0):
            left[each] -= 1
        else:
            rest.append(each)
    return rest


def prefix_problems(seen: Topic, final: Topic) -> list[str]:
    """The records read during the run must be the beginning of the log: no record that was read may be rolled back."""
    return [
        f"partition {partition}: the records read during the run are not in the log"
        for partition, records in seen.items()
        if list(records) != list(final.get(partition, ()))[: len(records)]
    ]
