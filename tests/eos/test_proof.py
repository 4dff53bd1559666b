"""The checks of an output find every kind of problem."""

from __future__ import annotations

import pytest

from tests.eos.proof import Record, Topic, copy_problems, count_problems, prefix_problems


def topic(*partitions: str) -> Topic:
    """Partitions as words of key=value."""
    return {
        number: [Record(*word.split("=")) for word in partition.split()] for number, partition in enumerate(partitions)
    }


GIVEN = topic("a=1 b=2 a=3", "c=4")
COPIES = {
    "a b=2": (topic("a=1 b=2 a=3", "c=4"), []),
    "missing": (topic("a=1 a=3", "c=4"), ["partition 0: 1 missing, such as [Record(key='b', value='2')]"]),
    "twice": (
        topic("a=1 b=2 b=2 a=3", "c=4"),
        ["partition 0: 1 duplicated or unknown, such as [Record(key='b', value='2')]"],
    ),
    "order": (topic("b=2 a=1 a=3", "c=4"), ["partition 0: the order differs"]),
    "elsewhere": (
        topic("a=1 b=2", "c=4 a=3"),
        [
            "partition 0: 1 missing, such as [Record(key='a', value='3')]",
            "partition 1: 1 duplicated or unknown, such as [Record(key='a', value='3')]",
        ],
    ),
}
COUNTS = {
    "right": (topic("c=4#1", "a=1#1 b=2#1 a=3#2"), []),
    "a count that was kept though its record was not": (
        topic("c=4#1", "a=1#1 b=2#1 a=3#3"),
        ["key a: 1 missing, such as ['3#2']", "key a: 1 duplicated or unknown, such as ['3#3']"],
    ),
    "a record twice": (
        topic("c=4#1 c=4#2", "a=1#1 b=2#1 a=3#2"),
        ["key c: 1 duplicated or unknown, such as ['4#2']"],
    ),
    "a key missing": (topic("", "a=1#1 b=2#1 a=3#2"), ["key c: 1 missing, such as ['4#1']"]),
}


@pytest.mark.parametrize("what", COPIES)
def test_copies(what: str) -> None:
    made, problems = COPIES[what]
    assert copy_problems(GIVEN, made) == problems


@pytest.mark.parametrize("what", COUNTS)
def test_counts(what: str) -> None:
    made, problems = COUNTS[what]
    assert count_problems(GIVEN, made) == problems


def test_records_read_during_the_run_are_a_prefix() -> None:
    assert prefix_problems(topic("a=1", ""), GIVEN) == []
    rolled_back = ["partition 0: the records read during the run are not in the log"]
    assert prefix_problems(topic("b=2", "c=4"), GIVEN) == rolled_back
    assert prefix_problems(topic("a=1 b=2 a=3 a=5", "c=4"), GIVEN) == rolled_back
