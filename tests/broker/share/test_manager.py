"""SharePartitionManager: which share partitions are in memory, and whose sessions end when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.coordinators.share_state.values import NO_START_OFFSET, StateRead
from barnabas.broker.share.led_partition import LedSharePartition, Outcome
from barnabas.broker.share.manager import IDLE_MS, UNKNOWN
from barnabas.broker.share.partition.values import Acknowledgement
from barnabas.broker.share.sessions import Member, Place
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.share.share_rig import ACCEPT, GROUP, ShareRig
from tests.support.broker.broker_rig import state, topic_id

T0 = Place(topic_id("t"), 0)


def refused(code: ErrorCode) -> pytest.RaisesExc[ApiError]:
    return pytest.raises(ApiError, check=lambda error: error.code == code)


@pytest.fixture
def rig() -> ShareRig:
    return ShareRig()


def test_a_share_partition_is_made_once(rig: ShareRig) -> None:
    manager = rig.share_partitions
    led = manager.get(GROUP, "t", T0)
    assert manager.get(GROUP, "t", T0) is led
    assert manager.find(GROUP, T0) is led
    assert manager.find("other", T0) is None
    assert manager.led() == [led]


def test_only_the_leader_has_a_share_partition(rig: ShareRig) -> None:
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        rig.share_partitions.get(GROUP, "no", Place(topic_id("no"), 0))
    with refused(ErrorCode.INCONSISTENT_TOPIC_ID):
        rig.share_partitions.get(GROUP, "t", Place(topic_id("t", 1), 0))
    rig.push({"t": [state(2, (1, 2), leader_epoch=1), state(1)]})
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        rig.share_partitions.get(GROUP, "t", T0)
    assert rig.share_partitions.led() == []


def test_a_resigned_leader_forgets_its_share_partitions(rig: ShareRig) -> None:
    rig.initialize(0, group="h")
    of_both = [rig.share_partitions.get(group, "t", T0) for group in (GROUP, "h")]
    other = rig.share_partitions.get(GROUP, "t", Place(topic_id("t"), 1))
    rig.push({"t": [state(2, (1, 2), leader_epoch=1), state(1)]})
    assert rig.share_partitions.led() == [other]
    assert {led.error for led in of_both} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_the_next_leader_epoch_of_the_same_leader_goes_on(rig: ShareRig) -> None:
    rig.append(3)
    m = rig.member("m")
    m.fetch()
    rig.push({"t": [state(1, leader_epoch=1), state(1)]})
    assert m.acknowledge((0, 2, ACCEPT)).responses[0].partitions[0].error_code == 0


def test_the_next_leader_goes_on_where_a_group_began_that_has_acknowledged_nothing(rig: ShareRig) -> None:
    rig.append(3)
    rig.initialize(0, NO_START_OFFSET, state_epoch=2)
    assert rig.member("m").acquire() == []  # it begins at the end
    rig.push({"t": [state(2, (1, 2), leader_epoch=1), state(1)]})
    rig.push({"t": [state(1, leader_epoch=2), state(1)]})
    rig.append(2)
    assert rig.member("n").acquire() == [(3, 4, 1)]


def test_acknowledgements_of_several_partitions(rig: ShareRig) -> None:
    rig.append(3)
    rig.member("m").fetch()
    replies: list[dict[Place, Outcome]] = []
    wanted = {place: [Acknowledgement(0, 2, [ACCEPT])] for place in (T0, Place(topic_id("t"), 1))}
    rig.share_partitions.acknowledge(Member(GROUP, "m"), wanted, replies.append)
    assert replies == [{T0: Outcome(ErrorCode.NONE, ""), Place(topic_id("t"), 1): UNKNOWN}]
    rig.share_partitions.acknowledge(Member(GROUP, "m"), {}, replies.append)
    assert replies[1] == {}


def test_a_session_that_goes_over_to_another_connection_outlives_the_first(rig: ShareRig) -> None:
    m = rig.member("m")
    m.fetch()
    first, sessions = m.connection, rig.share_partitions.sessions
    sessions.begin(Member(GROUP, "m"), [T0], "second")
    for follow in first.on_closed.values():
        follow()
    assert sessions.places(Member(GROUP, "m")) == [T0]


def test_a_connection_has_one_session(rig: ShareRig) -> None:
    manager = rig.share_partitions
    connection = SimpleNamespace(on_closed={}, is_closed=False)
    for name in ("m", "n"):
        manager.sessions.begin(Member(GROUP, name), [T0], "1")
        manager.follow_connection(Member(GROUP, name), connection, "1")  # type: ignore[arg-type]
    assert manager.sessions.places(Member(GROUP, "m")) == []
    assert manager.sessions.places(Member(GROUP, "n")) == [T0]
    assert list(connection.on_closed) == ["share"]


def test_what_a_closed_connection_leaves_behind_is_no_work_of_its_network_thread(rig: ShareRig) -> None:
    rig.append(3)
    m = rig.member("m")
    m.fetch()
    for follow in m.connection.on_closed.values():
        follow()
    assert rig.share_partitions.sessions.places(Member(GROUP, "m")) == []
    assert len(rig.led().holdings()) == 1
    rig.advance_ms(1)
    assert rig.share_partitions.led() == []


def test_a_connection_that_closed_meanwhile_ends_the_session(rig: ShareRig) -> None:
    manager = rig.share_partitions
    connection = SimpleNamespace(on_closed={}, is_closed=True)
    manager.sessions.begin(Member(GROUP, "m"), [T0], "1")
    manager.follow_connection(Member(GROUP, "m"), connection, "1")  # type: ignore[arg-type]
    assert not manager.sessions.has_group(GROUP)


def test_groups_that_do_not_exist_take_no_endless_memory(
    rig: ShareRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = rig.share_partitions
    monkeypatch.setattr("barnabas.broker.share.manager.LED_MAX", 2)
    monkeypatch.setattr(rig.persister, "read", lambda *_: None)  # no coordinator answers
    one, _ = [manager.get(group, "t", T0) for group in ("g1", "g2")]
    for group in ("g3", "g4"):
        with refused(ErrorCode.UNKNOWN_SERVER_ERROR):
            manager.get(group, "t", T0)
    assert [record.message for record in caplog.records] == ["no more share partitions are delivered: 2 are in memory"]
    assert manager.get("g1", "t", T0) is one
    rig.push({"t": [state(2, (1, 2), leader_epoch=1), state(1)]})
    assert manager.get("g3", "t", Place(topic_id("t"), 1)) in manager.led()


def test_the_share_partitions_of_a_group_stay_while_it_has_a_session(rig: ShareRig) -> None:
    m, n = rig.member("m"), rig.member("n")
    m.fetch()
    n.fetch()
    m.close()
    assert len(rig.share_partitions.led()) == 1
    n.close()
    assert rig.share_partitions.led() == []


def test_a_share_partition_that_was_being_loaded_when_its_last_session_ended_goes(
    rig: ShareRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    monkeypatch.setattr(rig.persister, "read", lambda _key, _epoch, reply: reads.append(reply))
    m = rig.member("m")
    m.fetch(wait_ms=500)
    m.close()
    rig.advance_ms(10 * IDLE_MS)
    assert len(rig.share_partitions.led()) == 1  # its state is still being read
    reads[0](StateRead(ErrorCode.NONE, 1, 0, ()))
    rig.advance_ms(IDLE_MS)
    assert rig.share_partitions.led() == []
    assert rig.share_partitions._idle == set()


def test_a_share_partition_that_is_made_after_its_last_session_ended_goes(
    rig: ShareRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, manager = rig.member("m"), rig.share_partitions
    get = manager.get

    def late(*about: Any) -> LedSharePartition:
        m.close()  # while the handler is at its request
        return get(*about)

    monkeypatch.setattr(manager, "get", late)
    m.fetch()
    rig.advance_ms(IDLE_MS)
    assert manager.led() == []


def test_a_share_partition_that_has_a_session_again_stays(rig: ShareRig, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    monkeypatch.setattr(rig.persister, "read", lambda _key, _epoch, reply: reads.append(reply))
    m = rig.member("m")
    m.fetch()
    m.close()
    rig.member("n").fetch()
    reads[0](StateRead(ErrorCode.NONE, 1, 0, ()))
    rig.advance_ms(2 * IDLE_MS)
    assert len(rig.share_partitions.led()) == 1


def test_each_share_partition_has_its_series(rig: ShareRig) -> None:
    rig.append(3)
    rig.member("m").fetch()
    found = dict(rig.registry.collect())
    ((labels, gauge),) = found[catalogue.SHARE_IN_FLIGHT_MESSAGES]
    assert labels == (GROUP, "t", "0")
    assert gauge.read() == 3  # type: ignore[union-attr]
    ((_, gauge),) = found[catalogue.SHARE_IN_FLIGHT_BATCHES]
    assert gauge.read() == 1  # type: ignore[union-attr]
    for row in (catalogue.SHARE_BATCH_MESSAGES, catalogue.SHARE_FETCH_RATIO, catalogue.SHARE_ACQUIRE_TIME_MS):
        ((of_group, histogram),) = found[row]
        assert (of_group, histogram.count) == ((GROUP,), 1)  # type: ignore[union-attr]


def test_the_series_end_with_the_share_partitions(rig: ShareRig) -> None:
    rig.append(3)
    m = rig.member("m")
    m.fetch()
    m.close()
    rows = {row.type for row, _ in rig.registry.collect()}
    assert "SharePartitionMetrics" not in rows
    assert catalogue.SHARE_FETCH_RATIO not in dict(rig.registry.collect())
