"""The lists of topics and partitions in each API's messages, derived from the message tables.

`SHAPES` has, for each API, the lists of its request that name topics (maybe with partitions inside), each with the list
of the response that answers it element by element. Most come from `barnabas.protocol.error_responses`. `MORE` adds the
lists that an error response for a whole request does not need.

The attribute in the *response's* element decides what a level names: `name`, `topic` … a topic; `index`,
`partition_index` … a partition; all others (a group, a producer) neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.error_responses import ROWS, Items
from barnabas.protocol.fields import parse_versions

TOPIC_NAMES: Final = frozenset({"name", "topic", "topic_name"})
TOPIC_ID: Final = "topic_id"
PARTITIONS: Final = frozenset({"index", "partition", "partition_index", "partition_id"})

_NAME = {"name": "name"}
_NAME_AND_ID = {"name": "name", "topic_id": "topic_id"}
_NO_OFFSET = {"committed_offset": -1}
_COMMITTED = Items("partition_indexes", "partitions", {"": "partition_index"}, fixed=_NO_OFFSET)
_FETCHED = Items("partitions", "partitions", {"partition": "partition_index"})

#: Lists that `error_responses` does not need. They replace its lists for the API.
MORE: Final[dict[int, tuple[Items, ...]]] = {
    ApiKey.FETCH: (Items("topics", "responses", {"topic": "topic", "topic_id": "topic_id"}, inner=_FETCHED),),
    ApiKey.OFFSET_FETCH: (
        Items("topics", "topics", _NAME, versions="0-7", inner=_COMMITTED),
        Items(
            "groups",
            "groups",
            {"group_id": "group_id"},
            versions="8+",
            inner=Items("topics", "topics", _NAME_AND_ID, inner=_COMMITTED),
        ),
    ),
    ApiKey.OFFSET_DELETE: (
        Items(
            "topics",
            "topics",
            _NAME,
            inner=Items("partitions", "partitions", {"partition_index": "partition_index"}),
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        *ROWS[ApiKey.ADD_PARTITIONS_TO_TXN].items,
        Items(
            "transactions",
            "results_by_transaction",
            {"transactional_id": "transactional_id"},
            versions="4+",
            inner=Items(
                "topics",
                "topic_results",
                _NAME,
                inner=Items(
                    "partitions",
                    "results_by_partition",
                    {"": "partition_index"},
                    code_field="partition_error_code",
                ),
            ),
        ),
    ),
}

#: APIs whose lists this module cannot walk, or whose responses have no errors.
_LEFT_OUT: Final = frozenset(
    {ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.LEADER_AND_ISR, ApiKey.LIST_PARTITION_REASSIGNMENTS}
)


def names_topics(items: Items) -> bool:
    """Whether a level of the list names topics."""
    targets = set(items.copies.values())
    if targets & TOPIC_NAMES or TOPIC_ID in targets:
        return True
    return items.inner is not None and names_topics(items.inner)


def names_partitions(items: Items) -> bool:
    """Whether a level of the list names partitions."""
    if set(items.copies.values()) & PARTITIONS:
        return True
    return items.inner is not None and names_partitions(items.inner)


SHAPES: Final[dict[int, tuple[Items, ...]]] = {
    int(key): items
    for key, row_items in {**{key: row.items for key, row in ROWS.items()}, **MORE}.items()
    if key not in _LEFT_OUT and (items := tuple(item for item in row_items if names_topics(item)))
}


def shapes_of(api_key: int, version: int) -> tuple[Items, ...]:
    """Return the lists of an API's messages in this version; none if they name no topics."""
    return tuple(items for items in SHAPES.get(api_key, ()) if _includes(items.versions, version))


def can_name(api_key: int, *, partition: bool) -> bool:
    """Whether requests of an API name topics in any version; with `partition`, partitions too."""
    shapes = SHAPES.get(api_key, ())
    return any(map(names_partitions, shapes)) if partition else bool(shapes)


class Place(NamedTuple):
    """The topic and partition that an element and the elements around it name; None if they do not."""

    topic: str | None = None
    topic_id: bytes | None = None
    partition: int | None = None


def place_of(items: Items, element: Any, around: Place) -> Place:
    """Return the place that an element of `items.source` names."""
    for source, target in items.copies.items():
        value = getattr(element, source) if source else element
        around = _with(around, target, value)
    return around


def place_of_answer(items: Items, answer: Any, around: Place) -> Place:
    """Return the place that an element of `items.target` names."""
    for target in items.copies.values():
        around = _with(around, target, getattr(answer, target))
    return around


def _with(place: Place, target: str, value: Any) -> Place:
    if target in TOPIC_NAMES:
        return place._replace(topic=value)
    if target == TOPIC_ID:
        return place._replace(topic_id=value)
    if target in PARTITIONS:
        return place._replace(partition=value)
    return place


def places_asked(items: Items, parent: Any, around: Place | None = None) -> Iterator[Place]:
    """Yield the places that the innermost elements of a request's list name."""
    for element in getattr(parent, items.source) or ():
        place = place_of(items, element, around or Place())
        if items.inner is None:
            yield place
        else:
            yield from places_asked(items.inner, element, place)


def _includes(versions: str, version: int) -> bool:
    low, high = parse_versions(versions)
    return low <= version <= high
