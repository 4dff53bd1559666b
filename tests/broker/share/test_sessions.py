"""Share sessions: epochs, the bound of the cache, and what a response names."""

from __future__ import annotations

import pytest

from barnabas.broker.share.sessions import FINAL_EPOCH, FOREIGN_MAX, Member, Place, ShareSessions
from barnabas.common.clock import FakeClock
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode

M, N = Member("g", "m"), Member("g", "n")
A, B, C = (Place(bytes(16), partition) for partition in range(3))


@pytest.fixture
def registry() -> Registry:
    return Registry(FakeClock())


@pytest.fixture
def sessions(registry: Registry) -> ShareSessions:
    sessions = ShareSessions(registry, 2, lambda: 1)
    sessions.begin(M, [A, B], "1")
    return sessions


def refused(code: ErrorCode) -> pytest.RaisesExc[ApiError]:
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def test_each_request_has_the_next_epoch(sessions: ShareSessions) -> None:
    assert sessions.update(M, 1, [], []) == [A, B]
    sessions.step(M, 2)
    for epoch in (2, 4):
        with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            sessions.update(M, epoch, [], [])
        with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            sessions.step(M, epoch)
    assert sessions.update(M, 3, [], []) == [A, B]


def test_the_last_request_may_come_at_any_time(sessions: ShareSessions) -> None:
    sessions.step(M, FINAL_EPOCH)
    assert sessions.end(M) == [A, B]
    assert sessions.end(M) is None
    for epoch in (1, FINAL_EPOCH):
        with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
            sessions.step(M, epoch)


def test_partitions_are_added_and_forgotten(sessions: ShareSessions) -> None:
    assert sessions.update(M, 1, [C, A], [B]) == [A, C]
    assert sessions.places(M) == [A, C]
    assert sessions.places(N) == []


def test_a_full_cache_admits_no_new_member(sessions: ShareSessions) -> None:
    sessions.begin(N, [A], "2")
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        sessions.begin(Member("h", "o"), [A], "3")
    sessions.begin(M, [C], "1")
    assert sessions.places(M) == [C]


def test_the_partitions_of_all_sessions_are_bounded(sessions: ShareSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.share.sessions.PLACES_MAX", 3)
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        sessions.begin(N, [A, B], "2")
    sessions.begin(N, [A], "2")
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        sessions.update(M, 1, [C], [])
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        sessions.update(M, 2, [], [])


def test_a_session_names_few_partitions_that_are_not_here(sessions: ShareSessions) -> None:
    """An empty fetch of a session with 100,000 partitions that did not exist took a second, and returned 2 MB."""
    places = [Place(bytes(16), partition) for partition in range(FOREIGN_MAX + 2)]
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        sessions.begin(N, places, "2")
    sessions.begin(N, places[1:], "2")  # this broker hosts one
    assert sessions.update(N, 1, [*places[1:], places[1]], [places[1]]) == places[2:]
    sessions.update(N, 2, [places[0]], [])
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        sessions.update(N, 3, [places[1]], [])
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        sessions.update(N, 4, [], [])


def test_a_response_names_what_was_added_once(sessions: ShareSessions) -> None:
    sessions.update(M, 1, [C], [])
    assert sessions.answered(M, 1, [], []) == {C}
    sessions.update(M, 2, [], [])
    assert sessions.answered(M, 2, [], []) == set()


def test_a_response_names_an_error_and_its_end(sessions: ShareSessions) -> None:
    for epoch, failed, named in ((1, [A], {A}), (2, [], {A}), (3, [], set())):
        sessions.update(M, epoch, [], [])
        assert sessions.answered(M, epoch, [], failed) == named


def test_a_partition_with_records_comes_last_next_time(sessions: ShareSessions) -> None:
    sessions.update(M, 1, [], [])
    assert sessions.answered(M, 1, [A], []) == {A}
    assert sessions.update(M, 2, [], []) == [B, A]


def test_the_response_of_a_session_that_went_on_or_ended(sessions: ShareSessions) -> None:
    sessions.update(M, 1, [], [])
    sessions.update(M, 2, [], [])
    assert sessions.answered(M, 1, [], []) is None
    sessions.end(M)
    assert sessions.answered(M, 2, [], []) is None


def test_a_session_ends_with_its_connection_only(sessions: ShareSessions) -> None:
    assert sessions.disconnected(M, "another") is None
    assert sessions.has_group("g")
    assert sessions.disconnected(M, "1") == [A, B]
    assert not sessions.has_group("g")
    assert sessions.disconnected(M, "1") is None


def test_what_is_counted(sessions: ShareSessions, registry: Registry) -> None:
    def gauge(row: catalogue.Metric) -> float:
        ((_, instruments),) = [found for found in registry.collect() if found[0] is row]
        return instruments[0][1].read()  # type: ignore[union-attr]

    sessions.begin(N, [C], "2")
    assert (gauge(catalogue.SHARE_SESSIONS), gauge(catalogue.SHARE_SESSION_PARTITIONS)) == (2, 3)
    sessions.update(N, 1, [A], [C])
    sessions.disconnected(M, "1")
    assert (gauge(catalogue.SHARE_SESSIONS), gauge(catalogue.SHARE_SESSION_PARTITIONS)) == (1, 1)
    assert registry.meter(catalogue.SHARE_SESSION_EVICTIONS_PER_SEC).count == 1
