"""Several controllers: what is committed, what is taken back, and how the next one takes over.

Covers `controller/metadata/uncommitted.py` too.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decision import Decision, View
from barnabas.controller.decisions.topics import create_topics
from barnabas.controller.image import Image
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.controller.metadata.snapshot import image_records
from barnabas.controller.raft.client.interface import CommittedBatch
from barnabas.controller.raft.log_outline import OffsetAndEpoch
from barnabas.metrics.meters import Gauge
from barnabas.metrics.table import catalogue as rows
from barnabas.metrics.table.row import Metric
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k19_create_topics as create_wire
from barnabas.protocol.metadata_records import FeatureLevelRecord, RemoveTopicRecord, encode_record
from barnabas.protocol.push_tags import records_of
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.controller.fake_quorum import QuorumRig, Snapshot
from tests.controller.rig import Rig, manual_topic


def contents(image: Image) -> tuple[object, ...]:
    return image.brokers, image.topics, image.configs, image.features, image.next_producer_id, image.offset


def submit(rig: Rig, name: str) -> list[Any]:
    """Ask a controller for a topic; returns the list that its answer will be in."""
    answers: list[Any] = []
    request = create_wire.CreateTopicsRequest(topics=[manual_topic(name, [[0]])])
    rig.controller.submit("create", lambda view: create_topics(view, request), answers.append, answers.append)
    rig.controller.loop.step()
    return answers


def codes(answers: list[Any]) -> list[ErrorCode]:
    """The errors of answers: of whole requests, or of their topics."""
    return [a.code if isinstance(a, ApiError) else ErrorCode(a.topics[0].error_code) for a in answers]


@pytest.fixture
def quorum() -> QuorumRig:
    return QuorumRig()


def test_standby_controllers_know_what_is_committed(quorum: QuorumRig) -> None:
    quorum[100].join(0, 1)
    quorum[100].create("t", [[0, 1]], retention_ms="7")
    quorum.step()
    assert contents(quorum[101].image) == contents(quorum[102].image) == contents(quorum[100].image)
    assert [rig.controller.is_active for rig in quorum.rigs.values()] == [True, False, False]


def test_a_standby_controller_decides_nothing_and_names_the_active_one(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.step()
    (answer,) = submit(quorum[101], "t")
    assert answer.code is ErrorCode.NOT_CONTROLLER
    assert str(answer) == "The active controller appears to be node 100."
    quorum[101].tick(60_000)
    assert quorum[101].image.is_active(0)
    assert quorum[101].controller.channels is None


def test_a_decision_is_answered_and_pushed_once_the_quorum_has_it(quorum: QuorumRig) -> None:
    active = quorum[100]
    active.join(0)
    active.push()
    quorum.brokers[0].take()
    quorum.quorum.is_automatic = False
    answers = [submit(active, name) for name in ("a", "a", "b")]
    active.push()
    assert (answers, quorum.brokers[0].take()) == ([[], [], []], [])
    assert set(active.controller.image.topic_ids) == {"a", "b"}
    quorum.commit(1)
    assert [codes(each) for each in answers] == [[ErrorCode.NONE], [ErrorCode.TOPIC_ALREADY_EXISTS], []]
    assert set(active.image.topic_ids) == {"a"}
    active.push()
    leader_and_isr, _ = quorum.brokers[0].take()
    assert [topic.topic_name for topic in leader_and_isr.topic_states] == ["a"]
    quorum.commit()
    assert codes(answers[2]) == [ErrorCode.NONE]
    assert active.controller.image is active.image


def test_what_is_not_committed_is_taken_back_when_the_lead_is_lost(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum[100].create("kept", [[0]])
    quorum.quorum.is_automatic = False
    answers = submit(quorum[100], "lost")
    repeated = submit(quorum[100], "lost")  # its error rests on what is taken back
    quorum.elect(101)
    assert codes(answers + repeated) == [ErrorCode.NOT_CONTROLLER] * 2
    assert quorum[100].controller.channels is None
    assert contents(quorum[100].image) == contents(quorum[101].image)
    assert quorum[100].controller.image is quorum[100].image
    quorum.quorum.is_automatic = True
    quorum[101].create("lost", [[0]])
    quorum.step()
    assert set(quorum[100].image.topic_ids) == {"kept", "lost"}


def test_what_the_next_leader_has_is_kept_by_all(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.quorum.is_automatic = False
    answers = [submit(quorum[100], name) for name in ("a", "b")]
    quorum.elect(101, keeps=1)
    assert [codes(each) for each in answers] == [[ErrorCode.NOT_CONTROLLER]] * 2
    assert [set(rig.image.topic_ids) for rig in quorum.rigs.values()] == [{"a"}] * 3
    assert codes(submit(quorum[101], "a")) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert contents(quorum[100].image) == contents(quorum[101].image)


def test_a_commit_before_the_loss_is_answered_as_committed(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.quorum.is_automatic = False
    answers = submit(quorum[100], "a")
    quorum.quorum.commit()
    quorum.quorum.lose()
    quorum.step()
    assert codes(answers) == [ErrorCode.NONE]
    assert not quorum[100].controller.is_active


def test_an_append_that_is_refused_is_answered_with_not_controller(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.quorum.epoch += 1  # the client has lost the lead; its news has not come yet
    quorum.quorum.members[100].is_cut_off = True
    assert codes(submit(quorum[100], "a")) == [ErrorCode.NOT_CONTROLLER]
    assert "a" not in quorum[100].controller.image.topic_ids


def test_batches_of_another_epoch_end_the_lead(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.quorum.is_automatic = False
    answers = submit(quorum[100], "a")
    quorum.quorum.pending.clear()
    quorum.quorum.epoch += 1
    quorum.quorum.add_control()
    quorum.commit()
    assert codes(answers) == [ErrorCode.NOT_CONTROLLER]
    assert not quorum[100].controller.is_active
    assert quorum[100].image.offset == quorum.quorum.end_offset - 1


def test_control_records_take_offsets_between_decisions(quorum: QuorumRig) -> None:
    active = quorum[100]
    active.join(0)
    quorum.quorum.is_automatic = False
    quorum.quorum.add_control()
    answers = submit(active, "a")
    quorum.quorum.add_control()
    more = submit(active, "b")
    quorum.commit()
    assert codes(answers + more) == [ErrorCode.NONE] * 2
    quorum.quorum.add_control()
    quorum.commit()
    for rig in quorum.rigs.values():
        assert rig.image.offset == rig.controller.image.offset == quorum.quorum.end_offset - 1
        assert contents(rig.image) == contents(active.image)


def test_the_next_controller_pushes_everything_in_its_epoch(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum[100].create("t", [[0]])
    quorum[100].push()
    before = quorum.brokers[0].take()[-1]
    quorum.elect(101)
    quorum[101].push()
    pushed = quorum.brokers[0].take()
    assert {(message.controller_id, message.controller_epoch) for message in pushed} == {(101, 2)}
    assert before.controller_epoch == 1
    assert quorum[101].image.offset > 0
    (topic,) = pushed[0].topic_states
    assert (topic.topic_name, pushed[0].type) == ("t", 2)


def test_no_broker_is_fenced_because_a_controller_is_new(quorum: QuorumRig) -> None:
    quorum[100].join(0, 1)
    quorum.clock.advance_ms(8_000)
    quorum.elect(101)
    quorum[101].tick(8_000)
    epoch = quorum[100].image.brokers[0].epoch
    assert not quorum[101].heartbeat(0, epoch=epoch).state.is_fenced  # its registration goes on
    quorum[101].tick(1_001)
    assert (quorum[101].image.is_active(0), quorum[101].image.is_active(1)) == (True, False)


def test_a_controller_that_leads_again_begins_with_new_sessions(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.elect(101)
    for _ in range(5):
        quorum[101].tick(5_000)
        quorum[101].heartbeat(0)
    quorum.elect(100)
    quorum[100].tick(8_000)
    assert quorum[100].image.is_active(0)
    assert quorum[100].controller.epoch == 3


def test_producer_ids_go_on_behind_an_uncommitted_block(quorum: QuorumRig) -> None:
    from tests.controller.test_quorum_controller import allocate

    quorum[100].join(0)
    assert allocate(quorum[100], 0) == (0, 1000)
    quorum.elect(102)
    assert allocate(quorum[102], 0) == (1000, 1000)


def test_a_standby_controller_writes_snapshots_and_begins_with_one(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum[100].create("t", [[0]])
    quorum.step()
    standby = quorum[101].controller
    standby._snapshot_bytes = 1
    standby.loop.step()
    (snapshot,) = quorum.quorum.snapshots
    assert snapshot.id == OffsetAndEpoch(quorum.quorum.end_offset, 1)
    assert standby.loop.step()
    assert len(quorum.quorum.snapshots) == 1
    fresh = QuorumRig(1)[100]
    fresh.controller.load(snapshot)
    assert not fresh.controller.is_active
    assert contents(fresh.image) == contents(quorum[101].image)


def test_a_snapshot_is_written_at_the_latest_after_the_interval(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum[100].create("t", [[0]])
    quorum.step()
    standby = quorum[101].controller
    interval_ms = int(standby.config.metadata_log_max_snapshot_interval_ms)
    quorum[101].tick(interval_ms - 1)
    assert not quorum.quorum.snapshots
    for _ in range(2):
        quorum[101].tick(1)
        assert len(quorum.quorum.snapshots) == 1
    quorum[101].tick(interval_ms)
    assert len(quorum.quorum.snapshots) == 1, "there is nothing new"
    standby._snapshot_interval_ms = 0
    quorum[100].create("u", [[0]])
    quorum.step()
    written = len(quorum.quorum.snapshots)  # the others have written theirs, too
    quorum[101].tick(2 * interval_ms)
    assert len(quorum.quorum.snapshots) == written


def test_a_record_that_cannot_be_replayed_ends_the_process(quorum: QuorumRig) -> None:
    standby = quorum[101].controller
    value = encode_record(RemoveTopicRecord(topic_id=b"x" * 16))
    data = build_batch([SimpleRecord(0, None, value)])
    at = quorum.quorum.end_offset
    with pytest.raises(DirectoryError, match=f"cannot be understood at offset {at}"):
        standby.take_committed([CommittedBatch(at, at, 1, is_control=False, data=data)])
    wrong = Snapshot(OffsetAndEpoch(9, 1), [RemoveTopicRecord(topic_id=b"x" * 16)])
    with pytest.raises(DirectoryError, match=r"a\.checkpoint cannot be understood"):
        standby.load(wrong)
    right = Snapshot(OffsetAndEpoch(9, 1), list(image_records(quorum[101].image)))
    standby.load(right)
    assert quorum[101].image.offset == 8


def test_events_that_wait_at_the_end_are_answered(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.quorum.is_automatic = False
    answers = submit(quorum[100], "a")
    late: list[Any] = []
    quorum[100].controller.submit("late", lambda _view: Decision([], None), late.append, late.append)
    quorum[100].controller.loop._fail_rest()
    assert codes(answers + late) == [ErrorCode.NOT_CONTROLLER] * 2


def test_a_failed_decision_waits_like_any_other(quorum: QuorumRig) -> None:
    active = quorum[100]
    active.join(0)
    quorum.quorum.is_automatic = False
    submit(active, "a")
    answers: list[ApiError] = []

    def refuse(view: View) -> Decision[None]:
        assert "a" in view.image.topic_ids
        raise ApiError(ErrorCode.INVALID_REQUEST, "because of a")

    active.controller.submit("refuse", refuse, answers.append, answers.append)
    active.controller.loop.step()
    assert answers == []
    quorum.commit()
    assert codes(answers) == [ErrorCode.INVALID_REQUEST]


def gauge(rig: Rig, row: Metric) -> float:
    """Read a gauge as a scrape does."""
    ((_, instrument),) = next(found for known, found in rig.registry.collect() if known is row)
    assert isinstance(instrument, Gauge)
    return instrument.read()


def test_a_commit_takes_as_long_as_the_quorum_needs(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.step()
    quorum.quorum.is_automatic = False
    latency = quorum[100].registry.avg_max(rows.RAFT_COMMIT_LATENCY)
    submit(quorum[100], "a")
    quorum.clock.advance_ms(70)
    submit(quorum[100], "b")
    quorum.clock.advance_ms(5)
    quorum.commit()
    assert latency.snapshot()[1] == 75
    submit(quorum[100], "lost")
    quorum.elect(101)
    quorum.clock.advance_ms(1_000)
    quorum.elect(100)
    assert latency.snapshot()[1] == 75, "what is taken back is no commit"


def test_each_change_of_the_active_controller_is_counted(quorum: QuorumRig) -> None:
    quorum.elect(101)
    quorum.elect(100)
    assert [gauge(rig, rows.NEW_ACTIVE_CONTROLLERS_COUNT) for rig in quorum.rigs.values()] == [3, 3, 3]
    assert [gauge(rig, rows.ACTIVE_CONTROLLER_COUNT) for rig in quorum.rigs.values()] == [1, 0, 0]


def test_a_standby_controller_has_a_lag_only_while_it_lacks_something(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.step()
    quorum.clock.advance_ms(60_000)
    assert gauge(quorum[101], rows.LAST_APPLIED_RECORD_LAG_MS) == 0
    quorum[100].create("t", [[0]])
    quorum.clock.advance_ms(50)
    assert gauge(quorum[101], rows.LAST_APPLIED_RECORD_LAG_MS) == 60_050
    assert gauge(quorum[100], rows.LAST_APPLIED_RECORD_LAG_MS) == 0
    quorum.step()
    assert gauge(quorum[101], rows.LAST_APPLIED_RECORD_LAG_MS) == 0


def test_static_voters_without_an_effect_are_shown() -> None:
    static = QuorumRig(controller_quorum_voters="100@a:1,101@b:1,102@c:1")
    assert gauge(static[100], rows.IGNORED_STATIC_VOTERS) == 1  # the fake quorum has kraft.version 1
    assert gauge(QuorumRig()[100], rows.IGNORED_STATIC_VOTERS) == 0


def test_brokers_get_the_kraft_version_of_the_quorum(quorum: QuorumRig) -> None:
    """Not from the metadata: it is in control records, and so it is in no snapshot."""
    quorum[100].join(0)
    quorum.step()
    quorum[100].push()
    quorum[100].brokers[0].take()
    quorum.quorum.add_control()
    quorum.quorum.commit()
    quorum.step()
    quorum[100].push()
    records = [record for push in quorum[100].brokers[0].take() for record in records_of(push)]
    levels = {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}
    assert levels == {**quorum[100].image.features, "kraft.version": 1}
    assert "kraft.version" not in quorum[100].image.features


def test_an_idle_quorum_writes_a_record_that_changes_nothing(quorum: QuorumRig) -> None:
    quorum[100].join(0)
    quorum.step()
    quorum[100].push()
    quorum[100].brokers[0].take()
    active = quorum[100].controller
    end, pushed = quorum[100].image.offset, active.pushed_offset
    for number in range(1, 4):
        quorum[100].tick(499)
        assert quorum[100].image.offset == end + number - 1
        quorum[100].tick(1)
        assert quorum[100].image.offset == end + number
    quorum.step()
    assert quorum[101].image.offset == end + 3
    quorum[100].push()
    assert not quorum[100].brokers[0].take(), "brokers are not bothered"
    assert active.pushed_offset == pushed
    quorum[100].create("t", [[0]])
    end = quorum[100].image.offset
    quorum[100].tick(499)
    assert quorum[100].image.offset == end, "it is idle since the last record"
    quorum[101].tick(5_000)
    assert quorum[101].image.offset == end, "a standby controller writes nothing"
