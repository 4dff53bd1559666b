"""What is told to the controller of directories, when, and what is told again."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.dir_assignments import PARTITIONS_MAX, PAUSE_MS, DirAssignments
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k73_assign_replicas_to_dirs as wire

A, B = b"\x0a" * 16, b"\x0b" * 16
TOPIC, OTHER = b"\x01" * 16, b"\x02" * 16


class Room:
    """Assignments, with a channel and a scheduler that the test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.scheduler = ManualScheduler(self.clock)
        self.sent: list[tuple[Any, Any]] = []
        channel: Any = self
        self.assignments = DirAssignments(1, lambda: 7, channel, self.scheduler)

    def send(self, message: Any, on_done: Any) -> None:
        self.sent.append((message, on_done))

    def told(self) -> dict[tuple[bytes, int], bytes]:
        """What the newest request says."""
        message = self.sent[-1][0]
        assert (message.broker_id, message.broker_epoch) == (1, 7)
        return {
            (topic.topic_id, p.partition_index): directory.id
            for directory in message.directories
            for topic in directory.topics
            for p in topic.partitions
        }

    def answer(self, error: ErrorCode = ErrorCode.NONE, **refused: ErrorCode) -> None:
        message, on_done = self.sent[-1]
        response = wire.AssignReplicasToDirsResponse(error_code=error)
        for directory in message.directories:
            topics = [
                wire.ResponseTopicData(
                    topic_id=topic.topic_id,
                    partitions=[
                        wire.ResponsePartitionData(
                            partition_index=p.partition_index,
                            error_code=refused.get(f"p{p.partition_index}", ErrorCode.NONE),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in directory.topics
            ]
            response.directories.append(wire.ResponseDirectoryData(id=directory.id, topics=topics))
        on_done(response)


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_new_registration_has_everything_told_again(room: Room) -> None:
    """The controller may have lost its log, and rebuilt it from reports: these do not say where replicas lie."""
    room.assignments.assign(TOPIC, 0, A)
    room.assignments.assign(TOPIC, 1, A)
    room.scheduler.run_due()
    room.answer()
    room.assignments.assign(TOPIC, 1, B)
    room.assignments.tell_again()
    room.scheduler.run_due()
    assert room.told() == {(TOPIC, 0): A, (TOPIC, 1): B}
    room.answer()
    room.assignments.forget(TOPIC, 0)
    room.assignments.tell_again()
    room.scheduler.run_due()
    assert room.told() == {(TOPIC, 1): B}


def test_an_answer_from_before_a_new_registration_does_not_count(room: Room) -> None:
    room.assignments.assign(TOPIC, 0, A)
    room.scheduler.run_due()
    room.assignments.tell_again()
    room.answer()
    room.scheduler.run_due()
    assert len(room.sent) == 2
    room.answer()
    room.scheduler.run_due()
    assert len(room.sent) == 2


def test_what_comes_together_goes_together(room: Room) -> None:
    room.assignments.assign(TOPIC, 0, A)
    room.assignments.assign(TOPIC, 1, B)
    room.assignments.assign(OTHER, 0, A)
    assert room.sent == []
    room.scheduler.run_due()
    assert room.told() == {(TOPIC, 0): A, (TOPIC, 1): B, (OTHER, 0): A}
    room.answer()
    room.assignments.assign(TOPIC, 0, A)
    room.scheduler.run_due()
    assert len(room.sent) == 1, "the controller knows"
    room.assignments.assign(TOPIC, 0, B)
    room.scheduler.run_due()
    assert room.told() == {(TOPIC, 0): B}


def test_one_request_at_a_time(room: Room) -> None:
    room.assignments.assign(TOPIC, 0, A)
    room.scheduler.run_due()
    room.assignments.assign(TOPIC, 0, B)
    room.assignments.assign(TOPIC, 1, B)
    room.scheduler.run_due()
    assert len(room.sent) == 1
    room.answer()
    room.scheduler.run_due()
    assert room.told() == {(TOPIC, 0): B, (TOPIC, 1): B}, "it has moved while the old place was told"


@pytest.mark.parametrize("answered", [True, False])
def test_a_failed_request_is_repeated(room: Room, answered: bool) -> None:
    room.assignments.assign(TOPIC, 0, A)
    room.scheduler.run_due()
    if answered:
        room.answer(ErrorCode.STALE_BROKER_EPOCH)
    else:
        room.sent[-1][1](None)
    room.scheduler.run_due()
    assert len(room.sent) == 1
    room.clock.advance_ms(PAUSE_MS)
    room.scheduler.run_due()
    assert len(room.sent) == 2
    assert room.told() == {(TOPIC, 0): A}


def test_what_is_refused_is_not_told_again(room: Room) -> None:
    room.assignments.assign(TOPIC, 0, A)
    room.assignments.assign(TOPIC, 1, A)
    room.scheduler.run_due()
    room.answer(p0=ErrorCode.UNKNOWN_TOPIC_ID)
    room.scheduler.run_due()
    assert len(room.sent) == 1
    room.assignments.assign(TOPIC, 0, A)
    room.scheduler.run_due()
    assert room.told() == {(TOPIC, 0): A}


def test_requests_are_bounded(room: Room) -> None:
    for index in range(PARTITIONS_MAX + 5):
        room.assignments.assign(TOPIC, index, A)
    room.scheduler.run_due()
    assert len(room.told()) == PARTITIONS_MAX
    room.answer()
    room.scheduler.run_due()
    assert len(room.told()) == 5


def test_a_replica_that_is_gone(room: Room) -> None:
    room.assignments.assign(TOPIC, 0, A)
    room.assignments.forget(TOPIC, 0)
    room.scheduler.run_due()
    assert room.sent == []


def test_who_asked_hears_what_the_controller_did(room: Room) -> None:
    heard: list[tuple[str, bool]] = []

    def hear(name: str) -> Any:
        return lambda is_accepted: heard.append((name, is_accepted))

    room.assignments.assign(TOPIC, 0, A, hear("accepted"))
    room.assignments.assign(TOPIC, 1, A, hear("refused"))
    room.scheduler.run_due()
    room.answer(ErrorCode.STALE_BROKER_EPOCH)
    assert heard == [], "it is told again"
    room.clock.advance_ms(PAUSE_MS)
    room.scheduler.run_due()
    room.answer(p1=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert heard == [("accepted", True), ("refused", False)]
    room.assignments.assign(TOPIC, 0, A, hear("known"))
    assert heard[2:] == [("known", True)]


def test_who_asked_hears_that_it_was_overtaken(room: Room) -> None:
    heard: list[tuple[str, bool]] = []
    room.assignments.assign(TOPIC, 0, B, lambda is_accepted: heard.append(("B", is_accepted)))
    room.scheduler.run_due()
    room.assignments.assign(TOPIC, 0, A, lambda is_accepted: heard.append(("A", is_accepted)))
    assert heard == [("B", False)]
    room.answer()
    assert heard == [("B", False)], "that was the answer about B"
    room.scheduler.run_due()
    room.answer()
    assert heard == [("B", False), ("A", True)]
    room.assignments.assign(TOPIC, 0, B, lambda is_accepted: heard.append(("gone", is_accepted)))
    room.scheduler.run_due()
    room.assignments.forget(TOPIC, 0)
    room.answer()
    assert len(heard) == 2
