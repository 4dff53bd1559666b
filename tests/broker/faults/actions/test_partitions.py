"""Errors for some partitions: every API that names topics, in every version.

Tests partitions.py, and barnabas/faults/shapes.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.faults.actions import partitions
from barnabas.faults.shapes import SHAPES, Place, place_of_answer, places_asked, shapes_of
from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.error_responses import Items
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema import Struct

TOPICS = ("a", "b")
IDS = {name: name.encode() * 16 for name in TOPICS}
NAMES = {id_: name for name, id_ in IDS.items()}
INDEXES = (0, 1)

CASES = [
    (key, version)
    for key in SHAPES
    for version in range(ROWS[key].min_version, ROWS[key].max_version + 1)
    if shapes_of(key, version)
]


def elements(items: Items, parent: type[Struct], topic: str | None = None) -> list[Any]:
    """Return two topics or partitions, as an element of the request names them."""
    (field,) = [field for field in parent.FIELDS if field.name == items.source]
    targets = set(items.copies.values())
    if targets & {"name", "topic", "topic_name", "topic_id"}:
        return [element(items, field.element, name, None) for name in TOPICS]
    if targets & {"index", "partition", "partition_index", "partition_id"}:
        return [element(items, field.element, topic, index) for index in INDEXES]
    return [element(items, field.element, topic, None)]


def element(items: Items, kind: Any, topic: str | None, index: int | None) -> Any:
    values = {"index": index, "partition": index, "partition_index": index, "partition_id": index}
    values.update({"name": topic, "topic": topic, "topic_name": topic, "topic_id": IDS.get(topic or "")})
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        return values[items.copies[""]]
    made = kind()
    for source, target in items.copies.items():
        if values.get(target) is not None:
            setattr(made, source, values[target])
    if items.inner is not None:
        setattr(made, items.inner.source, elements(items.inner, kind, topic))
    return made


def request_for(key: int, version: int) -> Any:
    message = request_class(key)()
    for items in shapes_of(key, version):
        setattr(message, items.source, elements(items, type(message)))
    return message


def name_of(place: Place) -> str:
    return place.topic or NAMES.get(place.topic_id or b"", "")


def asked(key: int, version: int, message: Any) -> list[tuple[str, int | None]]:
    return [
        (name_of(place), place.partition) for items in shapes_of(key, version) for place in places_asked(items, message)
    ]


def told(key: int, version: int, message: Any) -> dict[tuple[str, int | None], int]:
    def walk(items: Items, parent: Any, around: Place) -> Iterator[tuple[tuple[str, int | None], int]]:
        for answer in getattr(parent, items.target):
            place = place_of_answer(items, answer, around)
            if items.inner is None:
                yield (name_of(place), place.partition), getattr(answer, items.code_field)
            else:
                yield from walk(items.inner, answer, place)

    found = [one for items in shapes_of(key, version) for one in walk(items, message, Place())]
    assert len(dict(found)) == len(found), "nothing is told twice"
    return dict(found)


@pytest.mark.parametrize(("key", "version"), CASES, ids=lambda value: str(int(value)))
def test_a_request_is_divided_and_its_answers_are_merged(key: int, version: int) -> None:
    message, shapes = request_for(key, version), shapes_of(key, version)
    every = asked(key, version, message)
    assert {topic for topic, _ in every} == set(TOPICS)
    faulted, rest = partitions.divide(
        shapes, message, lambda place: name_of(place) == "a" and place.partition in (None, 1)
    )
    assert rest is not None
    chosen = asked(key, version, faulted)
    assert chosen == [place for place in every if place in (("a", 1), ("a", None))]
    assert asked(key, version, rest) == [place for place in every if place not in chosen]
    assert asked(key, version, message) == every, "the request itself is as it was"

    refused = partitions.refuse(key, version, shapes, faulted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    real = partitions.refuse(key, version, shapes, rest, ErrorCode.NONE)
    for items in shapes:
        partitions.merge(items, real, refused)
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert told(key, version, real) == {place: code if place in chosen else 0 for place in every}
    again = response_class(key).decode(real.encode(version), version)
    assert told(key, version, again) == told(key, version, real)
    for items in shapes:
        targets = [getattr(topic, name, None) for topic in getattr(again, items.target) for name in ("name", "topic")]
        named = [name for name in targets if name]
        assert len(named) == len(set(named)), "a topic is told of once"


@pytest.mark.parametrize(("key", "version"), CASES, ids=lambda value: str(int(value)))
def test_no_rest_of_a_request_that_fails_as_a_whole(key: int, version: int) -> None:
    message = request_for(key, version)
    faulted, rest = partitions.divide(shapes_of(key, version), message, lambda _place: True)
    assert rest is None
    assert asked(key, version, faulted) == asked(key, version, message)
    same, rest = partitions.divide(shapes_of(key, version), message, lambda _place: False)
    assert asked(key, version, rest) == asked(key, version, message)
    assert asked(key, version, same) == []


def test_all_client_apis_with_partitions_are_covered() -> None:
    assert {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
    } <= SHAPES.keys()
