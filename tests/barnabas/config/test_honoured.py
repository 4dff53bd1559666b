"""A key is marked honoured if, and only if, the sources read it (`reads.py` finds where)."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import pytest

from barnabas.config.listeners import LISTENER_KEYS
from barnabas.config.resources.group import bounds_of
from barnabas.config.table.keys import BROKER_KEYS, DYNAMIC_KEYS, GROUP_KEYS, TABLE, TOPIC_KEYS, Key
from tests.barnabas.config.reads import all_reads, reads


class Read(NamedTuple):
    """What the sources read: attributes, names and patterns."""

    texts: frozenset[str]
    patterns: list[re.Pattern[str]]


@cache  # Why not at import: every process of a test run imports this file, and one or two run its tests
def read() -> Read:
    """Look through the sources."""
    texts = all_reads()
    return Read(texts, [re.compile(found) for found in texts if ".*" in found])


#: Keys that are read under another name than their own.
ELSEWHERE = {
    # logs read `compact` and `delete`, which are derived from it
    "cleanup.policy": "delete",
    # logs read `max_segment_ms`, which is derived from it
    "segment.ms": "max_segment_ms",
    # logs read `segment_bytes`, which has its value
    "internal.segment.bytes": "segment_bytes",
    # `listeners_parsed` and other attributes are derived from these
    "listeners": "listeners_parsed",
    "advertised.listeners": "advertised_listeners_parsed",
    "broker.id": "node_id",
    "log.dir": "log_dirs",
}
#: Keys that only decide whether a process may start, or what is read then.
CHECKED_AT_START = {"config.providers", "group.share.assignors", "process.roles"}


def is_read(key: Key) -> bool:
    """Whether the sources read a key, or a topic or group key that it gives a default to."""
    if {key.attribute, key.name, ELSEWHERE.get(key.name)} & read().texts or key.name in LISTENER_KEYS:
        return True
    if any(pattern.fullmatch(key.attribute) for pattern in read().patterns):
        return True
    return BROKER_KEYS.get(key.name) is key and any(_is_behind(key, other) for other in OVERRIDABLE)


OVERRIDABLE = [*TOPIC_KEYS.values(), *GROUP_KEYS.values()]


def _is_behind(key: Key, other: Key) -> bool:
    """Whether the broker key gives a read topic or group key its default, or bounds it."""
    is_default = any(name == key.name for name, _ in other.synonyms)
    return (is_default or key.name in bounds_of(other.name)) and is_read(other)


@pytest.mark.parametrize("key", [*TABLE, *DYNAMIC_KEYS.values()], ids=lambda key: f"{key.scope.value}:{key.name}")
def test_a_key_is_honoured_if_and_only_if_it_is_read(key: Key) -> None:
    assert key.honoured == (key.name in CHECKED_AT_START or is_read(key))


def test_only_honoured_keys_are_applied_at_run_time() -> None:
    assert [key.name for key in [*BROKER_KEYS.values(), *DYNAMIC_KEYS.values()] if key.live and not key.honoured] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("config.num_io_threads", {"num_io_threads"}),
        ("self._config.num_io_threads", {"num_io_threads"}),
        ("services.dynamic.topic_config(name).retention_ms", {"retention_ms"}),
        ("config.num_io_threads = 3", set()),
        ("record.broker_id", set()),
        ("config.value('log.dirs')", {"value", "log.dirs"}),
        ("KEY: Final = 'log.dirs'\ndynamic.broker_value(KEY)", {"log.dirs"}),
        ("self.values['log.dirs']", {"log.dirs"}),
        ("self.values['log.dirs'] = 1", set()),
        ("'log.dirs'", set()),
        ("# config.num_io_threads", set()),
        ("getattr(config, f'compression_{kind}_level')", {"compression_.*_level"}),
    ],
)
def test_reads_are_found(source: str, expected: set[str]) -> None:
    assert set(reads(source)) == expected
