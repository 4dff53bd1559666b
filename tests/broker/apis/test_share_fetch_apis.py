"""ShareFetch and ShareAcknowledge on a broker without sockets: sessions, deliveries, acknowledgements, waiting.

Tests `apis/k78_share_fetch.py`, `apis/k79_share_acknowledge.py` and `apis/share_requests.py`.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.row import Row
from barnabas.broker.metadata.metadata_cache import SHARE_GROUP_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.page.exposition import Exposition
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import ControlType
from barnabas.security.values import AclOperation, ResourceType
from tests.broker.authorization.kit import acl, denied, lacking
from tests.broker.share.share_rig import (
    ACCEPT,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    ShareRig,
    ack_errors,
    acquired,
    batches,
    errors,
)
from tests.support.broker.broker_rig import state
from tests.support.broker.parked import Waiting

HOUR_MS = 3_600_000


@pytest.fixture
def rig() -> ShareRig:
    return ShareRig()


def refused(code: ErrorCode) -> pytest.RaisesExc[ApiError]:
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def counts(rig: ShareRig) -> dict[str, float]:
    """Return the counts of share fetches on the page: of the broker, and of topics."""
    lines = Exposition(rig.registry).render().decode().splitlines()
    found = [line.split(" ") for line in lines if "sharefetchrequestspersec_total" in line and not line.startswith("#")]
    names = [name for name, _ in found]
    assert len(names) == len(set(names)), "no series is there twice"
    return {name.removeprefix("kafka_server_brokertopicmetrics_"): float(count) for name, count in found}


@pytest.mark.parametrize(
    ("topic", "partition", "error"),
    [
        ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_share_fetch_of_what_metadata_does_not_know_is_counted_nowhere(
    rig: ShareRig, topic: str, partition: int, error: ErrorCode
) -> None:
    before = counts(rig)
    response = rig.member("m").fetch(partition, topic=topic)
    assert [p.error_code for t in response.responses for p in t.partitions] == [error]
    assert counts(rig) == before


def test_a_share_fetch_from_another_leader_is_counted_once_for_its_topic(rig: ShareRig) -> None:
    rig.push({"t": [state(2, (1, 2), leader_epoch=1), state(2, (1, 2), leader_epoch=1)]})
    response = rig.member("m").fetch(0, 1)
    assert {p.error_code for t in response.responses for p in t.partitions} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert {name: count for name, count in counts(rig).items() if count} == {
        f"{kind}sharefetchrequestspersec_total{labels}": 1
        for kind in ("total", "failed")
        for labels in ("", '{topic="t"}')
    }


def test_a_member_gets_records_and_the_duration_of_their_locks(rig: ShareRig) -> None:
    rig.append(3)
    response = rig.member("m").fetch()
    assert acquired(response) == [(0, 2, 1)]
    assert batches(response) == [(0, 2)]
    assert response.acquisition_lock_timeout_ms == LOCK_MS


def test_members_get_different_records(rig: ShareRig) -> None:
    for _ in range(4):
        rig.append(5)
    m, n = rig.member("m"), rig.member("n")
    assert m.acquire(most=6) == [(0, 9, 1)]
    assert n.acquire(most=6) == [(10, 19, 1)]


def test_only_the_acquired_record_batches_are_sent(rig: ShareRig) -> None:
    for _ in range(4):
        rig.append(5)
    m, n = rig.member("m"), rig.member("n")
    assert batches(m.fetch(most=5)) == [(0, 4)]
    assert batches(n.fetch(most=5)) == [(5, 9)]
    m.acknowledge((0, 4, RELEASE))
    response = n.fetch(most=10)
    assert acquired(response) == [(0, 4, 2), (10, 14, 1)]
    assert batches(response) == [(0, 4), (5, 9), (10, 14)]


def test_a_record_limit(rig: ShareRig) -> None:
    rig.append(5)
    assert rig.member("m").acquire(most=2, share_acquire_mode=1) == [(0, 1, 1)]
    assert rig.member("n").acquire(most=2, share_acquire_mode=1) == [(2, 3, 1)]


def test_a_fetch_waits_for_records(rig: ShareRig) -> None:
    waiting = rig.member("m").fetch(wait_ms=500)
    assert isinstance(waiting, Waiting)
    assert waiting.response is None
    rig.append()
    assert acquired(waiting.response) == [(0, 0, 1)]


def test_a_fetch_waits_for_enough_bytes(rig: ShareRig) -> None:
    waiting = rig.member("m").fetch(wait_ms=500, min_bytes=100)
    rig.append()
    assert waiting.response is None
    rig.append()
    assert acquired(waiting.response) == [(0, 1, 1)]


def test_a_fetch_that_wants_no_bytes_does_not_wait(rig: ShareRig) -> None:
    assert acquired(rig.member("m").fetch(wait_ms=500, min_bytes=0)) == []


def test_after_its_time_a_fetch_takes_what_there_is(rig: ShareRig) -> None:
    waiting = rig.member("m").fetch(wait_ms=500, min_bytes=1000)
    rig.append()
    rig.advance_ms(500)
    assert acquired(waiting.response) == [(0, 0, 1)]
    waiting = rig.member("n").fetch(wait_ms=500)
    rig.advance_ms(500)
    assert acquired(waiting.response) == []
    assert rig.registry.meter(catalogue.DELAYED_SHARE_FETCH_EXPIRES_PER_SEC).count == 2


def test_of_two_waiting_members_each_gets_its_records(rig: ShareRig) -> None:
    waiting = [rig.member(name).fetch(wait_ms=500, most=1) for name in "mn"]
    rig.append()
    rig.append()
    assert sorted(acquired(each.response) for each in waiting) == [[(0, 0, 1)], [(1, 1, 1)]]


def test_many_waiting_members_are_woken_without_recursion(rig: ShareRig) -> None:
    waiting = [rig.member(f"m{n}").fetch(wait_ms=500, most=1) for n in range(300)]
    m = rig.member("m")
    for _ in range(300):
        rig.append()
    assert all(each.response is not None for each in waiting)
    assert m.acquire() == []


def test_released_records_wake_a_waiting_member(rig: ShareRig) -> None:
    rig.append(2)
    m = rig.member("m")
    m.fetch()
    waiting = rig.member("n").fetch(wait_ms=500)
    m.acknowledge((0, 1, RELEASE))
    assert acquired(waiting.response) == [(0, 1, 2)]


def test_a_lock_that_ran_out_wakes_a_waiting_member(rig: ShareRig) -> None:
    rig.append(2)
    m = rig.member("m")
    m.fetch()
    waiting = rig.member("n").fetch(wait_ms=LOCK_MS + 1)
    rig.advance_ms(LOCK_MS)
    assert acquired(waiting.response) == [(0, 1, 2)]
    assert errors(m.acknowledge((0, 1, ACCEPT))) == {0: ErrorCode.INVALID_RECORD_STATE}


def test_accepted_records_are_not_delivered_again(rig: ShareRig) -> None:
    rig.append(3)
    m = rig.member("m")
    m.fetch()
    response = m.acknowledge((0, 2, ACCEPT))
    assert errors(response) == {0: 0}
    assert response.acquisition_lock_timeout_ms == LOCK_MS
    assert rig.led().offsets == (3, 3)
    rig.append()
    assert m.acquire() == [(3, 3, 1)]


def test_acknowledgements_come_with_a_fetch(rig: ShareRig) -> None:
    rig.append(3)
    m = rig.member("m")
    m.fetch()
    response = m.fetch(acks=[(0, 2, ACCEPT, REJECT, RELEASE)])
    assert ack_errors(response) == {0: 0}
    assert acquired(response) == [(2, 2, 2)]
    assert rig.registry.meter(catalogue.SHARE_ACKNOWLEDGEMENTS_PER_SEC, ackType="Reject").count == 1


def test_refused_acknowledgements_do_not_hinder_the_fetch(rig: ShareRig) -> None:
    rig.append(3)
    m = rig.member("m")
    m.fetch()
    rig.append(3)
    response = m.fetch(acks=[(5, 5, ACCEPT)])
    assert ack_errors(response) == {0: ErrorCode.INVALID_REQUEST}
    assert acquired(response) == [(3, 5, 1)]


@pytest.mark.parametrize(
    "acks",
    [
        [(2, 1, ACCEPT)],
        [(0, 1)],
        [(0, 2, ACCEPT, ACCEPT)],
        [(0, 2, 5)],
        [(0, 2, -1)],
        [(0, 2, RENEW)],
        [(1, 2, ACCEPT), (0, 0, ACCEPT)],
    ],
)
def test_acknowledgements_that_cannot_be_meant_are_refused(rig: ShareRig, acks: list[tuple[int, ...]]) -> None:
    rig.append(3)
    m = rig.member("m")
    m.fetch()
    assert errors(m.acknowledge(*acks)) == {0: ErrorCode.INVALID_REQUEST}
    assert errors(m.acknowledge((0, 2, ACCEPT))) == {0: 0}


def test_a_renewal_fetches_nothing(rig: ShareRig) -> None:
    rig.append(3)
    m = rig.member("m")
    m.fetch()
    rig.append(3)
    with refused(ErrorCode.INVALID_REQUEST):
        m.fetch(acks=[(0, 2, RENEW)], is_renew_ack=True)
    rig.advance_ms(LOCK_MS - 1)
    response = m.fetch(acks=[(0, 2, RENEW)], is_renew_ack=True, most=0, min_bytes=0, max_bytes=0)
    assert ack_errors(response) == {0: 0}
    assert acquired(response) == []
    rig.advance_ms(LOCK_MS - 1)
    assert errors(m.acknowledge((0, 2, ACCEPT))) == {0: 0}


def test_the_settings_of_the_group_hold(rig: ShareRig) -> None:
    rig.set_group(share_delivery_count_limit="2", share_record_lock_duration_ms="15000")
    rig.append()
    m = rig.member("m")
    assert m.fetch().acquisition_lock_timeout_ms == 15_000
    rig.advance_ms(15_000)
    assert m.acquire() == [(0, 0, 2)]
    rig.advance_ms(15_000)
    assert m.acquire() == []
    assert rig.led().offsets == (1, 1)


def test_read_committed_members_do_not_get_open_transactions(rig: ShareRig) -> None:
    rig.set_group(share_isolation_level="read_committed")
    rig.append(2)
    rig.append_in_transaction(7, 2)
    m = rig.member("m")
    assert m.acquire() == [(0, 1, 1)]
    waiting = m.fetch(wait_ms=500)
    assert waiting.response is None
    rig.end_transaction(7, ControlType.COMMIT)
    assert acquired(waiting.response) == [(2, 4, 1)]


def test_read_committed_members_do_not_get_aborted_records(rig: ShareRig) -> None:
    rig.set_group(share_isolation_level="read_committed")
    rig.append_in_transaction(7, 2)
    rig.append_in_transaction(8, 3)
    rig.end_transaction(7, ControlType.ABORT)
    rig.end_transaction(8, ControlType.COMMIT)
    m = rig.member("m")
    assert m.acquire() == [(2, 6, 1)]
    assert rig.led().offsets == (2, 6)


def test_read_uncommitted_members_get_everything(rig: ShareRig) -> None:
    rig.append_in_transaction(7, 2)
    assert rig.member("m").acquire() == [(0, 1, 1)]


def test_a_response_names_only_partitions_with_news(rig: ShareRig) -> None:
    m = rig.member("m")
    m.fetch(0, 1)
    assert errors(m.fetch()) == {}
    rig.append(partition=1)
    assert list(errors(m.fetch())) == [1]
    assert errors(m.fetch(forget=[1])) == {}
    rig.append(partition=1)
    assert errors(m.fetch()) == {}
    assert list(errors(m.fetch(1))) == [1]


def test_requests_have_to_follow_each_other(rig: ShareRig) -> None:
    m = rig.member("m")
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        m.fetch(epoch=1)
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        m.acknowledge(epoch=-1)
    with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        m.acknowledge(epoch=0)
    with refused(ErrorCode.INVALID_REQUEST):
        m.fetch(epoch=0, acks=[(0, 0, ACCEPT)])
    m.fetch()
    for epoch in (2, 5):
        with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            m.fetch(epoch=epoch)
        with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            m.acknowledge(epoch=epoch)
    assert m.fetch(epoch=1).error_code == 0


def test_without_the_feature_nothing_is_served(rig: ShareRig) -> None:
    rig.services.share_groups = SimpleNamespace(is_enabled=False)  # type: ignore[assignment]
    with refused(ErrorCode.UNSUPPORTED_VERSION):
        rig.member("m").fetch()
    with refused(ErrorCode.UNSUPPORTED_VERSION):
        rig.member("m").acknowledge(epoch=1)


@pytest.mark.parametrize("name", ["", "m" * 37])
def test_a_member_needs_a_name(rig: ShareRig, name: str) -> None:
    with refused(ErrorCode.INVALID_REQUEST):
        rig.member(name).fetch()


def test_an_unknown_acquire_mode_is_refused(rig: ShareRig) -> None:
    with refused(ErrorCode.INVALID_REQUEST):
        rig.member("m").fetch(share_acquire_mode=2)


def test_without_room_for_a_session_the_member_waits(rig: ShareRig) -> None:
    rig = ShareRig(group_share_max_share_sessions="1", group_share_max_size="1")
    rig.member("m").fetch()
    waiting = rig.member("n").fetch(wait_ms=500)
    assert waiting.response is None
    rig.advance_ms(500)
    assert waiting.response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_the_last_request_acknowledges_and_releases_the_rest(rig: ShareRig) -> None:
    rig.append(4)
    m = rig.member("m")
    m.fetch()
    assert errors(m.acknowledge((0, 1, ACCEPT), epoch=-1)) == {0: 0}
    assert rig.member("n").acquire() == [(2, 3, 2)]
    with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
        m.fetch(epoch=2)


def test_the_last_fetch_delivers_nothing(rig: ShareRig) -> None:
    rig.append(4)
    m = rig.member("m")
    m.fetch(most=1, share_acquire_mode=1)
    response = m.fetch(epoch=-1, acks=[(0, 0, ACCEPT)])
    assert ack_errors(response) == {0: 0}
    assert acquired(response) == []


def test_a_closed_connection_releases_what_its_member_holds(rig: ShareRig) -> None:
    rig.append(4)
    m, n = rig.member("m"), rig.member("n")
    m.fetch()
    n.fetch()
    m.close()
    assert n.acquire() == [(0, 3, 2)]


def test_a_group_without_sessions_is_forgotten_and_goes_on_later(rig: ShareRig) -> None:
    rig.append(4)
    m = rig.member("m")
    m.fetch()
    m.acknowledge((0, 1, ACCEPT))
    m.close()
    assert rig.share_partitions.led() == []
    assert rig.member("n").acquire() == [(2, 3, 2)]


def test_unknown_topics_and_partitions(rig: ShareRig) -> None:
    m = rig.member("m")
    assert errors(m.fetch(7)) == {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_partition_that_another_broker_leads(rig: ShareRig) -> None:
    rig.push({"t": [state(2, (1, 2), leader_epoch=1), state(1)]})
    response = rig.member("m").fetch()
    assert errors(response) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert response.responses[0].partitions[0].current_leader.leader_id == 2
    assert [node.node_id for node in response.node_endpoints] == [2]


def test_a_waiting_member_learns_that_the_leader_moved(rig: ShareRig) -> None:
    waiting = rig.member("m").fetch(wait_ms=500)
    rig.push({"t": [state(2, (1, 2), leader_epoch=1), state(1)]})
    assert errors(waiting.response) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_after_the_leader_moved_acknowledgements_come_too_late(rig: ShareRig) -> None:
    rig.append()
    m = rig.member("m")
    m.fetch()
    rig.push({"t": [state(2, (1, 2), leader_epoch=1), state(1)]})
    assert errors(m.acknowledge((0, 0, ACCEPT))) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_acknowledgements_wait_until_they_are_written(rig: ShareRig) -> None:
    rig.push({SHARE_GROUP_STATE_TOPIC: [state(1, (1, 2), leader_epoch=1)]})
    rig.share_coordinator.run_pending_jobs()
    rig.append()
    m = rig.member("m")
    m.fetch()
    waiting = m.acknowledge((0, 0, ACCEPT))
    assert isinstance(waiting, Waiting)
    assert m.rig.led().offsets == (0, 0)


def test_state_that_was_never_initialized(rig: ShareRig) -> None:
    m = rig.member("m", group="other")
    assert errors(m.fetch()) == {0: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert rig.share_partitions.led() == []


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 2), ("by_duration:PT1H", 2)])
def test_where_a_group_starts(rig: ShareRig, reset: str, first: int) -> None:
    rig.set_group(share_auto_offset_reset=reset)
    rig.initialize(0, start_offset=-1, state_epoch=2)
    rig.append(2, timestamp_ms=rig.clock.wall_ms() - 2 * HOUR_MS)
    m = rig.member("m")
    found = m.acquire()
    rig.append(1)
    assert [*found, *m.acquire()][0][0] == first
    assert rig.led().offsets == (first, 2)


def test_records_that_retention_removed_are_passed(rig: ShareRig) -> None:
    for _ in range(3):
        rig.append(2)
    log = rig.manager.partition(TopicPartition("t", 0)).leader_log()
    m = rig.member("m")
    m.fetch(most=2)
    m.acknowledge((0, 1, RELEASE))
    log.maybe_increment_log_start_offset(3, "test")
    assert m.acquire() == [(3, 5, 1)]
    assert rig.led().offsets == (3, 5)


def test_the_group_has_to_be_readable(rig: ShareRig) -> None:
    rig.by = lacking(rights.SHARE_FETCH_GROUP, name="g")
    with refused(ErrorCode.GROUP_AUTHORIZATION_FAILED):
        rig.member("m").fetch()
    with refused(ErrorCode.GROUP_AUTHORIZATION_FAILED):
        rig.member("m").acknowledge(epoch=1)


def test_the_topic_has_to_be_readable(rig: ShareRig) -> None:
    rig.append(2)
    m = rig.member("m")
    m.fetch()
    rig.by = lacking(rights.SHARE_FETCH_TOPIC, name="t")
    assert errors(m.acknowledge((0, 1, ACCEPT))) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    response = m.fetch(acks=[(0, 1, ACCEPT)])
    assert errors(response) == ack_errors(response) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    rig.by = None
    assert errors(m.acknowledge((0, 1, ACCEPT))) == {0: 0}


def test_a_topic_that_may_not_be_read_any_more_is_not_in_the_response(rig: ShareRig) -> None:
    waiting = waiting_without(rig, rights.SHARE_FETCH_TOPIC, "t")
    assert errors(waiting.response) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert acquired(waiting.response) == []


def test_a_group_that_may_not_be_read_any_more_gets_nothing(rig: ShareRig) -> None:
    waiting = waiting_without(rig, rights.SHARE_FETCH_GROUP, "g")
    assert waiting.response.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def waiting_without(rig: ShareRig, row: Row, name: str) -> Waiting:
    """Let a fetch wait, take a right away, and append a record."""
    rig.by = lacking()
    waiting = rig.member("m").fetch(wait_ms=500)
    kept = [acl(AclOperation.ALL, resource) for resource in (ResourceType.TOPIC, ResourceType.GROUP)]
    rig.by.take({entry.id: entry for entry in (*kept, denied(row, name))})
    rig.append()
    return waiting
