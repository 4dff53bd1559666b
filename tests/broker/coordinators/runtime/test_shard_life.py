"""The life of a shard, whichever coordinator it belongs to."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.coordinators.runtime.shard_life import ShardLife, ShardState
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

log = logging.getLogger("barnabas.test")


def make_life(releases: list[str]) -> ShardLife:
    return ShardLife(TopicPartition("topic", 0), "things", log, lambda: releases.append("released"))


def test_a_loading_shard_becomes_active_and_is_closed_once() -> None:
    releases: list[str] = []
    life = make_life(releases)
    with life.lock:
        assert life.gate_locked() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert life.activate_locked()
        assert life.gate_locked() == ErrorCode.NONE
    life.close()
    life.close()
    with life.lock:
        assert life.gate_locked() == ErrorCode.NOT_COORDINATOR
        assert not life.activate_locked()
    assert releases == ["released"]


def test_the_contents_of_a_loading_shard_belong_to_the_loader() -> None:
    releases: list[str] = []
    life = make_life(releases)
    with life.isolate_failures():
        raise ValueError("it cannot be read")
    assert life.state is ShardState.FAILED
    assert releases == []


def test_a_failing_event_fails_the_shard(caplog: pytest.LogCaptureFixture) -> None:
    releases: list[str] = []
    life = make_life(releases)
    with life.lock:
        life.activate_locked()

    def fail() -> None:
        raise ValueError("odd")

    life.lock.post(fail)
    assert (life.state, releases) == (ShardState.FAILED, ["released"])
    assert "The things of topic-0 are offline until it has a new leader: topic-0: ValueError: odd" in caplog.text


def test_a_closed_shard_does_not_fail() -> None:
    life = make_life([])
    life.close()
    with life.isolate_failures():
        raise ValueError("too late")
    assert life.state is ShardState.CLOSED
