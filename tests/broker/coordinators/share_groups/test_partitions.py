"""Share partitions: every state with every event."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.coordinators.share_groups import partitions as parts
from barnabas.broker.coordinators.share_groups.values import NO_PARTITIONS, SharePartitions, TopicPart

T, U = b"t" * 16, b"u" * 16
ONE = {T: TopicPart("t", frozenset({0}))}
OTHER = {U: TopicPart("u", frozenset({3}))}

# The state of partition t0; partition u3 of another topic is in each state, too, and must stay as it is.
STATES: dict[str, SharePartitions] = {
    "unknown": SharePartitions(OTHER, OTHER),
    "initializing": SharePartitions({**ONE, **OTHER}, OTHER),
    "initialized": SharePartitions(OTHER, {**ONE, **OTHER}),
    "again": SharePartitions({**ONE, **OTHER}, {**ONE, **OTHER}),
    "deleting": SharePartitions(OTHER, OTHER, {T: "t"}),
}
EVENTS: dict[str, Callable[[SharePartitions], SharePartitions]] = {
    "is to be initialised": lambda known: parts.begin_initializing(known, ONE),
    "was initialised": lambda known: parts.end_initializing(known, {T: {0}}, {}),
    "could not be initialised": lambda known: parts.end_initializing(known, {}, {T: {0}}),
    "is to be deleted": lambda known: parts.begin_deleting(known, [T]),
    "was deleted": lambda known: parts.end_deleting(known, [T]),
    "its topic was deleted": lambda known: parts.forget(known, [T]),
}
TABLE: dict[str, dict[str, str]] = {
    "is to be initialised": {
        "unknown": "initializing", "initializing": "initializing", "initialized": "again", "again": "again",
        "deleting": "initializing",
    },
    "was initialised": {
        "unknown": "unknown", "initializing": "initialized", "initialized": "initialized", "again": "initialized",
        "deleting": "deleting",
    },
    "could not be initialised": {
        "unknown": "unknown", "initializing": "unknown", "initialized": "initialized", "again": "initialized",
        "deleting": "deleting",
    },
    "is to be deleted": {
        "unknown": "unknown", "initializing": "deleting", "initialized": "deleting", "again": "deleting",
        "deleting": "deleting",
    },
    "was deleted": {
        "unknown": "unknown", "initializing": "initializing", "initialized": "initialized", "again": "again",
        "deleting": "unknown",
    },
    "its topic was deleted": dict.fromkeys(STATES, "unknown"),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_state_and_event(event: str, state: str) -> None:
    assert EVENTS[event](STATES[state]) == STATES[TABLE[event][state]]


def test_the_table_is_whole() -> None:
    assert TABLE.keys() == EVENTS.keys()
    assert all(row.keys() == STATES.keys() for row in TABLE.values())


def test_partitions_of_a_topic_are_apart() -> None:
    known = parts.begin_initializing(NO_PARTITIONS, {T: TopicPart("t", frozenset(range(4)))})
    known = parts.end_initializing(known, {T: {0, 1, 9}}, {T: {2}})
    assert known == SharePartitions(
        {T: TopicPart("t", frozenset({3}))}, {T: TopicPart("t", frozenset({0, 1}))}
    )  # fmt: skip
    assert parts.all_partitions(known, [T, U]) == {T: {0, 1, 3}, U: set()}


def test_what_is_left_to_be_initialised() -> None:
    known = SharePartitions(
        initializing={T: TopicPart("t", frozenset({1}))}, initialized={T: TopicPart("t", frozenset({0, 7}))}
    )
    assert parts.uninitialized(known, set(), {T: 4, U: 1}) == {T: {1, 2, 3}, U: {0}}
    assert parts.uninitialized(known, {(T, 1), (T, 2), (U, 0)}, {T: 4, U: 1}) == {T: {3}}
    assert parts.uninitialized(known, set(), {T: 1, U: 0}) == {}
