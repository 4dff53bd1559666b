"""Whole stories of a cluster: failures, elections and restarts of the controller.

Covers `controller/event_loop.py`, `controller/decision.py`, `controller/controller_metrics.py` and
`controller/decisions/producer_ids.py`.
"""

from __future__ import annotations

import random

import pytest

from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.controller.decision import Decision
from barnabas.controller.decisions.producer_ids import allocate_producer_ids
from barnabas.controller.decisions.topics import create_topics, delete_topics
from barnabas.controller.image import NO_LEADER, Image
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k19_create_topics as create_wire
from barnabas.protocol.messages import k20_delete_topics as delete_wire
from barnabas.protocol.metadata_records import ConfigRecord, DelegationTokenRecord, RemoveTopicRecord
from tests.controller.push.test_push import set_config
from tests.controller.rig import Rig, manual_topic


def contents(image: Image) -> tuple[object, ...]:
    return image.brokers, image.topics, image.configs, image.features, image.next_producer_id


def allocate(rig: Rig, broker_id: int) -> tuple[int, int]:
    epoch = rig.image.brokers[broker_id].epoch
    block = rig.decide(lambda view: allocate_producer_ids(view, broker_id, epoch))
    return block.first_id, block.size


def test_a_restart_loses_nothing() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1], [1, 0]], retention_ms="7")
    rig.create("gone", [[0]])
    request = delete_wire.DeleteTopicsRequest(topic_names=["gone"])
    rig.decide(lambda view: delete_topics(view, request, 5))
    rig.heartbeat(1, want_fence=True)
    assert allocate(rig, 0) == (0, 1000)
    again = rig.restart()
    assert contents(again.image) == contents(rig.image)
    assert again.controller.epoch == rig.controller.epoch + 1
    assert allocate(again, 0) == (1000, 1000)
    third = again.restart()
    assert contents(third.image) == contents(again.image)


def test_a_restarted_controller_waits_for_brokers_a_whole_session() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    rig.clock.advance_ms(60_000)
    again = rig.restart()
    again.tick(8_000)
    assert again.image.is_active(0)
    again.heartbeat(0)
    again.tick(1_001)
    assert again.image.is_active(0)
    assert not again.image.is_active(1)


def test_a_leader_fails_returns_and_is_preferred_again() -> None:
    rig = Rig(leader_imbalance_check_interval_seconds="30")
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    rig.heartbeat(0, want_fence=True)
    assert rig.partition("t").leader == 1
    rig.heartbeat(0)
    for _ in range(7):
        rig.tick(5_000)
        rig.heartbeat(0)
        rig.heartbeat(1)
    assert rig.partition("t").leader == 1  # not in the ISR yet
    from tests.controller.decisions.test_alter_partition import propose

    propose(rig, [1, 0], broker=1)
    for _ in range(7):
        rig.tick(5_000)
        rig.heartbeat(0)
        rig.heartbeat(1)
    assert rig.partition("t").leader == 0


def test_leaders_stay_where_they_are_without_rebalancing() -> None:
    rig = Rig(auto_leader_rebalance_enable="false", leader_imbalance_check_interval_seconds="1")
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    rig.heartbeat(0, want_fence=True)
    rig.heartbeat(0)
    from tests.controller.decisions.test_alter_partition import propose

    propose(rig, [1, 0], broker=1)
    rig.tick(3_000)
    assert rig.partition("t").leader == 1


def test_unclean_elections_happen_where_a_topic_allows_them() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("safe", [[0, 1]])
    rig.create("risky", [[0, 1]], unclean_leader_election_enable="true")
    rig.heartbeat(1, want_fence=True)
    rig.heartbeat(0, want_fence=True)
    rig.heartbeat(1)
    assert rig.partition("safe").leader == NO_LEADER
    assert rig.partition("risky").leader == 1
    assert rig.partition("risky").isr == (1,)


def test_unclean_elections_follow_soon_after_they_are_allowed() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    for broker_id in (1, 0):
        rig.heartbeat(broker_id, want_fence=True)
    rig.heartbeat(1)
    rig.tick(1)
    assert rig.partition("t").leader == NO_LEADER
    set_config(rig, "t", "unclean.leader.election.enable", "true")
    rig.tick(1)
    assert rig.partition("t").leader == 1


def test_events_of_one_group_see_each_other_and_share_one_fsync() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), matches=lambda operation, _: operation == "fsync")
    rig = Rig(fs)
    rig.join(0)
    before = fs.operations
    answers: list[object] = []
    for name in ("a", "a", "b"):
        request = create_wire.CreateTopicsRequest(topics=[manual_topic(name, [[0]])])
        rig.controller.submit("create", lambda view, r=request: create_topics(view, r), answers.append, answers.append)
    assert answers == []
    rig.controller.loop.step()
    codes = [ErrorCode(answer.topics[0].error_code) for answer in answers]  # type: ignore[attr-defined]
    assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE]
    assert fs.operations == before + 1


def test_nothing_leaves_before_the_commit() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), matches=lambda operation, _: operation == "fsync")
    rig = Rig(fs)
    rig.join(0)
    rig.push()
    rig.brokers[0].take()
    fs.fail_at = fs.operations + 1
    answers: list[object] = []
    request = create_wire.CreateTopicsRequest(topics=[manual_topic("t", [[0]])])
    rig.controller.submit("create", lambda view: create_topics(view, request), answers.append, answers.append)
    with pytest.raises(ApiError):
        rig.controller.loop.step()
    assert answers == []
    rig.push()
    assert rig.brokers[0].take() == []


def run_until_it_dies(rig: Rig, acknowledged: list[str]) -> None:
    for number in range(5):
        name = f"t{number}"
        rig.create(name, [[0], [0]])
        acknowledged.append(name)


@pytest.mark.parametrize("power_cut", [False, True])
def test_any_failed_write_loses_nothing_acknowledged(power_cut: bool) -> None:
    """Fail each write, fsync and rename in turn; then the process dies, or the machine."""
    base = MemoryFileSystem()
    counting = FaultyFileSystem(base)
    rig = Rig(counting)
    rig.join(0)
    start = counting.operations
    run_until_it_dies(rig, [])
    total = counting.operations - start
    assert total >= 10
    for nth in range(1, total + 1):
        disk = MemoryFileSystem()
        faulty = FaultyFileSystem(disk)
        rig = Rig(faulty, FakeClock())
        rig.join(0)
        faulty.fail_at = faulty.operations + nth
        acknowledged: list[str] = []
        with pytest.raises((OSError, ApiError)):
            run_until_it_dies(rig, acknowledged)
        after = disk.crash(random.Random(nth)) if power_cut else disk.kill()
        again = Rig(after)
        again.image.invariants()
        assert set(acknowledged) <= set(again.image.topic_ids)
        assert all(len(topic.partitions) == 2 for topic in again.image.topics.values())
        again.heartbeat(0)
        again.create("more", [[0]])
        assert "more" in again.restart().image.topic_ids


def test_a_controller_stops_in_order_though_its_disk_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyFileSystem(MemoryFileSystem())
    rig = Rig(disk)
    rig.join(0)
    disk.fail_at = disk.operations + 1
    rig.controller.stop()
    assert [record.getMessage() for record in caplog.records if "could not be closed" in record.getMessage()]


def test_a_snapshot_that_cannot_be_written_is_tried_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryFileSystem()
    disk_is_full = [True]

    def is_refused(operation: str, path: str) -> bool:
        return disk_is_full[0] and operation == "write" and path.endswith(".checkpoint.tmp")

    faulty = FaultyFileSystem(disk, fail_at=1, matches=is_refused)
    rig = Rig(faulty, metadata_log_max_record_bytes_between_snapshots="1500")
    rig.join(0)
    for number in range(10):
        rig.create(f"t{number}", [[0]])
    assert faulty.operations == 1
    (line,) = [record.getMessage() for record in caplog.records if "No snapshot" in record.getMessage()]
    assert line.endswith(".checkpoint could not be written: injected fault: write")
    assert "attempt follows in 60 s" in line
    assert rig.metrics.errors == 1
    rig.clock.advance_ms(59_999)
    rig.heartbeat(0)
    assert faulty.operations == 1
    rig.clock.advance_ms(1)
    rig.heartbeat(0)
    assert faulty.operations == 2
    disk_is_full[0] = False
    rig.clock.advance_ms(60_000)
    rig.heartbeat(0)
    names = [entry.name for entry in disk.listdir("/meta/__cluster_metadata-0")]
    assert [name for name in names if ".checkpoint" in name] == [f"{rig.image.offset + 1:020d}-0000000001.checkpoint"]
    assert {f"t{number}" for number in range(10)} == set(rig.restart().image.topic_ids)


def test_a_torn_tail_is_truncated() -> None:
    rig = Rig()
    rig.join(0)
    rig.create("t", [[0]])
    assert isinstance(rig.fs, MemoryFileSystem)
    path = "/meta/__cluster_metadata-0/00000000000000000000.log"
    size = rig.fs.size(path)
    durable = rig.fs.read_bytes("/meta/recovery-point-offset-checkpoint")
    rig.create("torn", [[0]])
    for cut in range(size + 1, rig.fs.size(path), 7):
        disk = rig.fs.kill()
        disk.open(path).truncate(cut)
        disk.write_bytes("/meta/recovery-point-offset-checkpoint", durable, sync=True)
        again = Rig(disk)
        assert set(again.image.topic_ids) == {"t"}
        assert again.create("torn", [[0]])


def test_an_exception_of_a_decision_is_an_error_response_and_a_count() -> None:
    rig = Rig()

    def broken(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ApiError) as caught:
        rig.decide(broken)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.controller._metrics.errors == 1


def test_an_event_that_waited_too_long_times_out() -> None:
    rig = Rig()
    answers: list[ApiError] = []
    rig.controller.submit("late", lambda _: pytest.fail("decided"), answers.append, answers.append, 100)
    rig.clock.advance_ms(101)
    rig.controller.loop.step()
    assert [answer.code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_an_event_without_time_is_never_decided(timeout_ms: int) -> None:
    rig = Rig()
    answers: list[ApiError] = []
    rig.controller.submit("now", lambda _: pytest.fail("decided"), answers.append, answers.append, timeout_ms)
    rig.controller.loop.step()
    assert [answer.code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]


def test_producer_ids_need_a_current_epoch() -> None:
    rig = Rig()
    rig.join(0)
    with pytest.raises(ApiError) as caught:
        rig.decide(lambda view: allocate_producer_ids(view, 0, 0))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert [allocate(rig, 0)[0] for _ in range(3)] == [0, 1000, 2000]


def test_too_many_records_are_refused_and_the_next_request_served() -> None:
    rig = Rig()
    rig.join(0)
    before = rig.image
    records = [ConfigRecord(resource_type=4, resource_name="0", name=f"k{n}", value="v" * 32_000) for n in range(300)]
    with pytest.raises(ApiError, match="take more than 8388608 bytes") as refused:
        rig.decide(lambda view: Decision(records, None))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    with pytest.raises(ApiError) as refused:
        rig.decide(lambda view: Decision([ConfigRecord(name="n", value="v" * 32_768)], None))
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(ApiError) as refused:  # cannot be applied: there is no such topic
        rig.decide(lambda view: Decision([RemoveTopicRecord(topic_id=bytes(16))], None))
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.image is before
    rig.create("t", [[0]])
    assert contents(rig.restart().image) == contents(rig.image)


def test_a_callback_that_raises_does_not_end_the_loop() -> None:
    rig = Rig()

    def fail(_: object) -> None:
        raise OSError("the client's processor is gone")

    rig.controller.submit("test", lambda view: Decision([], None), fail, fail)
    assert rig.controller.loop.step()
    rig.join(0)


def test_all_tokens_that_a_moved_clock_has_let_expire_are_removed() -> None:
    """However many they are; those that live on, and a controller without tokens, end it too."""
    rig, done = Rig(delegation_token_secret_key="s3cret"), []
    rig.controller.expire_tokens(done.append)
    assert done == [None]
    tokens = [
        DelegationTokenRecord(
            owner="User:a", requester="User:a", issue_timestamp=0, max_timestamp=1 << 50,
            expiration_timestamp=expires_ms, token_id=str(number),
        )
        for number, expires_ms in enumerate([1] * 2500 + [1 << 50])
    ]  # fmt: skip
    rig.decide(lambda _: Decision(tokens, None))
    rig.controller.expire_tokens(done.append)
    for _ in range(4):
        rig.controller.loop.step()
    assert list(rig.image.security.tokens) == ["2500"]
    assert done == [None, None]
