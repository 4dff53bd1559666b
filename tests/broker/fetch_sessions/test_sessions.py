"""Incremental fetch sessions (KIP-227)."""

from __future__ import annotations

import pytest

from barnabas.broker.fetch_sessions.sessions import FetchSessions, next_epoch
from barnabas.broker.replication.reading import FetchItem, ReadResult
from barnabas.broker.replication.role import EpochEnd
from barnabas.broker.storage.log.log_types import FetchData
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import ErrorCode

IDS = {name: name.encode() * 16 for name in "abc"}
NAMES = {topic_id: name for name, topic_id in IDS.items()}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sessions(clock):
    return FetchSessions(clock, Registry(clock), slots=2, eviction_ms=1000)


def item(name, offset=0, **epochs):
    return FetchItem(TopicPartition(name, 0), IDS.get(name, b"?" * 16), offset, 100, **epochs)


def data(high_watermark=0, size=0, error=ErrorCode.NONE, diverging=None):
    records = FetchData(0, None, size, 0, high_watermark, high_watermark, high_watermark)
    return ReadResult(error, records, high_watermark, high_watermark, 0, diverging)


def context(sessions, session_id, epoch, *names, forgotten=(), version=12, follower=False):
    keys = [(name, 0) if version < 13 else (IDS[name], 0) for name in forgotten]
    return sessions.context(
        version, session_id, epoch, [item(name) for name in names], keys, NAMES.get, is_follower=follower
    )


def open_session(sessions, *names, **about):
    made = context(sessions, 0, 0, *names, **about)
    return made.finish([(i, data()) for i in made.items])[1]


def test_an_incremental_response_names_only_changed_partitions(sessions):
    session_id = open_session(sessions, "a", "b", "c")
    made = context(sessions, session_id, 1)
    assert [i.tp.topic for i in made.items] == ["a", "b", "c"]
    results = [(made.items[0], data(size=2)), (made.items[1], data()), (made.items[2], data(high_watermark=5))]
    error, named_id, named = made.finish(results)
    assert (error, named_id, [i.tp.topic for i, _ in named]) == (ErrorCode.NONE, session_id, ["a", "c"])
    again = context(sessions, session_id, 2, forgotten=["c"])
    assert [i.tp.topic for i in again.items] == ["b", "a"]  # a partition with records goes to the end


def test_an_error_and_its_end_are_each_named_once(sessions):
    session_id = open_session(sessions, "a")
    for epoch, result, is_named in (
        (1, data(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), True),
        (2, data(), True),
        (3, data(), False),
    ):
        made = context(sessions, session_id, epoch)
        assert bool(made.finish([(made.items[0], result)])[2]) is is_named


def test_the_watermark_of_a_divergence_is_sent_again(sessions):
    # The follower truncates, and takes nothing else from that answer; nothing but the watermark may be new afterwards.
    session_id = open_session(sessions, "a")
    diverging = data(high_watermark=7, diverging=EpochEnd(2, 7))
    for epoch, result, is_named in (
        (1, diverging, True),
        (2, data(high_watermark=7), True),
        (3, data(high_watermark=7), False),
    ):
        made = context(sessions, session_id, epoch)
        assert bool(made.finish([(made.items[0], result)])[2]) is is_named


def test_the_watermark_is_sent_again_after_a_change_of_the_leader_epoch(sessions):
    # A fetcher drops the answer that a push with a new leader epoch overtakes.
    session_id = open_session(sessions, "a")
    for epoch, changed, is_named in (
        (1, item("a", 3, current_leader_epoch=1), True),
        (2, item("a", 4, current_leader_epoch=1), False),
        (3, item("a", 4, current_leader_epoch=2), True),
    ):
        made = sessions.context(12, session_id, epoch, [changed], [], NAMES.get, is_follower=True)
        assert bool(made.finish([(made.items[0], data())])[2]) is is_named


def test_wrong_ids_and_epochs_are_refused(sessions):
    session_id = open_session(sessions, "a")
    assert context(sessions, session_id + 1, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert context(sessions, session_id, 2).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert context(sessions, session_id, 1, version=13).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_late_response_is_an_invalid_epoch_if_the_session_has_moved_on(sessions):
    session_id = open_session(sessions, "a")
    late = context(sessions, session_id, 1)
    context(sessions, session_id, 2)
    assert late.finish([(late.items[0], data())])[0] is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_final_epoch_closes_the_session(sessions):
    session_id = open_session(sessions, "a")
    made = context(sessions, session_id, -1, "b")
    assert made.finish([(made.items[0], data())])[1] == 0
    assert len(sessions) == 0


def test_a_session_that_forgets_everything_ends(sessions):
    session_id = open_session(sessions, "a")
    assert context(sessions, session_id, 1, forgotten=["a"]).items == ()
    assert len(sessions) == 0


def test_an_inconsistent_topic_id_fails_the_whole_request(sessions):
    made = context(sessions, 0, 0, "a", version=13)
    bad = [(made.items[0], data(error=ErrorCode.INCONSISTENT_TOPIC_ID))]
    assert made.finish(bad) == (ErrorCode.INCONSISTENT_TOPIC_ID, 0, [])


def test_unknown_ids_are_looked_up_again(sessions):
    unknown = FetchItem(TopicPartition("", 0), IDS["a"], 0, 100)
    made = sessions.context(13, 0, 0, [unknown], [], NAMES.get, is_follower=False)
    session_id = made.finish([(unknown, data(error=ErrorCode.UNKNOWN_TOPIC_ID))])[1]
    assert context(sessions, session_id, 1, version=13).items[0].tp.topic == "a"


def test_a_full_cache_evicts_idle_smaller_and_consumer_sessions(sessions, clock):
    first = open_session(sessions, "a")
    open_session(sessions, "a", "b")
    assert open_session(sessions, "c") == 0  # all are young and in use
    follower = open_session(sessions, "a", "b", follower=True)
    assert follower
    assert context(sessions, first, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    clock.advance_ms(1001)
    assert open_session(sessions, "c")  # no session was used for a while
    assert sessions.partition_count() == 3


@pytest.mark.parametrize(("topics", "is_opened"), [(["a"], False), (["a", "b"], True)])
def test_only_a_larger_session_replaces_one_in_use(sessions, clock, topics, is_opened):
    """Clients with as many partitions each would take the sessions from each other for ever."""
    old = [open_session(sessions, "a"), open_session(sessions, "b")]
    clock.advance_ms(1001)
    for session_id in old:
        context(sessions, session_id, 1)
    assert bool(open_session(sessions, *topics)) is is_opened


def test_epochs_wrap_to_one():
    assert (next_epoch(1), next_epoch(2**31 - 1), next_epoch(-1)) == (2, 1, -1)
