"""Metadata images are numbered, and the topics that assignments depend on are hashed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.coordinators.consumer.metadata_watch import MetadataWatch, metadata_hash
from tests.broker.coordinators.fake_log import snapshot


def test_images_are_numbered() -> None:
    cache: Any = SimpleNamespace(snapshot=snapshot({"t": 1}), offset=40)
    watch = MetadataWatch(cache)
    first = watch.latest()
    assert (first.snapshot, first.number, first.creation) == (cache.snapshot, 40, 40)
    assert watch.latest() is first
    cache.snapshot = snapshot({"t": 2})
    assert watch.latest()[1:] == (41, 40), "no topic is new, and the number goes up even if the offset does not"
    cache.snapshot, cache.offset = snapshot({"t": 2, "u": 1}), 50
    assert watch.latest()[1:] == (50, 50)
    cache.snapshot, cache.offset = snapshot({"u": 1}), 51
    assert watch.latest()[1:] == (51, 50), "a topic that is gone is nothing new"


def test_the_hash_tells_what_assignments_depend_on() -> None:
    names = {"t", "u", "nothing"}
    hashes = [
        metadata_hash(wanted, snapshot(topics))
        for wanted, topics in (
            (names, {"t": 1, "u": 2}), (names, {"t": 1}), (names, {"t": 2, "u": 1}), ({"t"}, {"t": 2, "u": 1}),
        )
    ]  # fmt: skip
    assert len(set(hashes)) == 4
    assert metadata_hash(names, snapshot({"u": 2, "t": 1, "v": 1})) == hashes[0]
    assert metadata_hash(names, snapshot({"v": 1})) == metadata_hash((), snapshot()) == 0
