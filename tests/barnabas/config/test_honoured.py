"""A key that is called honoured is read by somebody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, Key

ROOT = Path(__file__).resolve().parents[3]

#: Read inside `barnabas.config` itself, which makes of them something that the rest of the code reads.
READ_WITHIN = {
    "advertised.listeners",
    "controller.quorum.bootstrap.servers",
    "listener.security.protocol.map",
    "process.roles",
    "allow.everyone.if.no.acl.found",
    "authorizer.class.name",
    "controller.quorum.voters",
    "internal.segment.bytes",
    # The bounds of what groups may set: `check_group`.
    *(
        f"group.consumer.{bound}.{what}.ms"
        for bound in ("min", "max")
        for what in ("assignment.interval", "heartbeat.interval", "session.timeout")
    ),
}


def words() -> set[str]:
    found: set[str] = set()
    for package in ("barnabas", "broker", "controller"):
        for path in (ROOT / package).rglob("*.py"):
            if ROOT / "barnabas" / "config" not in path.parents:
                found |= set(re.findall(r"[a-z_0-9]+", path.read_text()))
    return found


WORDS = words()
THROUGH_TOPICS = {
    name
    for key in TOPIC_KEYS.values()
    for name, _ in key.synonyms
    if key.attribute in WORDS or key.name == "segment.ms"  # logs read the max_segment_ms that follows from it
}
THROUGH_GROUPS = {name for key in GROUP_KEYS.values() for name, _ in key.synonyms if key.attribute in WORDS}


@pytest.mark.parametrize("key", [key for key in BROKER_KEYS.values() if key.honoured], ids=lambda key: key.name)
def test_honoured_broker_keys_are_read(key: Key) -> None:
    assert key.attribute in WORDS or key.name in THROUGH_TOPICS | THROUGH_GROUPS | READ_WITHIN


@pytest.mark.parametrize("key", [key for key in TOPIC_KEYS.values() if key.honoured], ids=lambda key: key.name)
def test_honoured_topic_keys_are_read(key: Key) -> None:
    assert key.attribute in WORDS or key.name == "segment.ms"


@pytest.mark.parametrize("key", [key for key in GROUP_KEYS.values() if key.honoured], ids=lambda key: key.name)
def test_honoured_group_keys_are_read(key: Key) -> None:
    assert key.attribute in WORDS
