"""DirAssignments: which directories are reported to the controller, when, and which again."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.channels.dir_assignments import PARTITIONS_MAX, PAUSE_MS, DirAssignments
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k73_assign_replicas_to_dirs as wire

A, B = b"\x0a" * 16, b"\x0b" * 16
TOPIC, OTHER = b"\x01" * 16, b"\x02" * 16


class AssignmentsRig:
    """DirAssignments with a fake channel and a scheduler that the test drives."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.scheduler = ManualScheduler(self.clock)
        self.sent: list[tuple[Any, Any]] = []
        channel: Any = self
        self.assignments = DirAssignments(1, lambda: 7, channel, self.scheduler)

    def send(self, message: Any, on_done: Any) -> None:
        """Keep a request, in place of a channel."""
        self.sent.append((message, on_done))

    def reported(self) -> dict[tuple[bytes, int], bytes]:
        """Return the assignments of the newest request: (topic id, partition) -> directory id."""
        message = self.sent[-1][0]
        assert (message.broker_id, message.broker_epoch) == (1, 7)
        return {
            (topic.topic_id, p.partition_index): directory.id
            for directory in message.directories
            for topic in directory.topics
            for p in topic.partitions
        }

    def respond(self, error: ErrorCode = ErrorCode.NONE, **refused: ErrorCode) -> None:
        """Respond to the newest request; `p0=...` refuses partition 0."""
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
def rig() -> AssignmentsRig:
    return AssignmentsRig()


def test_after_a_new_registration_everything_is_reported_again(rig: AssignmentsRig) -> None:
    """A controller that rebuilt its log from reports does not know the directories of replicas."""
    rig.assignments.assign(TOPIC, 0, A)
    rig.assignments.assign(TOPIC, 1, A)
    rig.scheduler.run_due()
    rig.respond()
    rig.assignments.assign(TOPIC, 1, B)
    rig.assignments.report_again()
    rig.scheduler.run_due()
    assert rig.reported() == {(TOPIC, 0): A, (TOPIC, 1): B}
    rig.respond()
    rig.assignments.forget(TOPIC, 0)
    rig.assignments.report_again()
    rig.scheduler.run_due()
    assert rig.reported() == {(TOPIC, 1): B}


def test_a_response_from_before_a_new_registration_does_not_count(rig: AssignmentsRig) -> None:
    rig.assignments.assign(TOPIC, 0, A)
    rig.scheduler.run_due()
    rig.assignments.report_again()
    rig.respond()
    rig.scheduler.run_due()
    assert len(rig.sent) == 2
    rig.respond()
    rig.scheduler.run_due()
    assert len(rig.sent) == 2


def test_assignments_of_one_moment_go_in_one_request(rig: AssignmentsRig) -> None:
    rig.assignments.assign(TOPIC, 0, A)
    rig.assignments.assign(TOPIC, 1, B)
    rig.assignments.assign(OTHER, 0, A)
    assert rig.sent == []
    rig.scheduler.run_due()
    assert rig.reported() == {(TOPIC, 0): A, (TOPIC, 1): B, (OTHER, 0): A}
    rig.respond()
    rig.assignments.assign(TOPIC, 0, A)
    rig.scheduler.run_due()
    assert len(rig.sent) == 1, "the controller knows"
    rig.assignments.assign(TOPIC, 0, B)
    rig.scheduler.run_due()
    assert rig.reported() == {(TOPIC, 0): B}


def test_one_request_at_a_time(rig: AssignmentsRig) -> None:
    rig.assignments.assign(TOPIC, 0, A)
    rig.scheduler.run_due()
    rig.assignments.assign(TOPIC, 0, B)
    rig.assignments.assign(TOPIC, 1, B)
    rig.scheduler.run_due()
    assert len(rig.sent) == 1
    rig.respond()
    rig.scheduler.run_due()
    assert rig.reported() == {(TOPIC, 0): B, (TOPIC, 1): B}, "it moved while the old directory was being reported"


@pytest.mark.parametrize("answered", [True, False])
def test_a_failed_request_is_repeated(rig: AssignmentsRig, answered: bool) -> None:
    rig.assignments.assign(TOPIC, 0, A)
    rig.scheduler.run_due()
    if answered:
        rig.respond(ErrorCode.STALE_BROKER_EPOCH)
    else:
        rig.sent[-1][1](None)
    rig.scheduler.run_due()
    assert len(rig.sent) == 1
    rig.clock.advance_ms(PAUSE_MS)
    rig.scheduler.run_due()
    assert len(rig.sent) == 2
    assert rig.reported() == {(TOPIC, 0): A}


def test_a_refused_assignment_is_not_reported_again(rig: AssignmentsRig) -> None:
    rig.assignments.assign(TOPIC, 0, A)
    rig.assignments.assign(TOPIC, 1, A)
    rig.scheduler.run_due()
    rig.respond(p0=ErrorCode.UNKNOWN_TOPIC_ID)
    rig.scheduler.run_due()
    assert len(rig.sent) == 1
    rig.assignments.assign(TOPIC, 0, A)
    rig.scheduler.run_due()
    assert rig.reported() == {(TOPIC, 0): A}


def test_requests_are_bounded(rig: AssignmentsRig) -> None:
    for index in range(PARTITIONS_MAX + 5):
        rig.assignments.assign(TOPIC, index, A)
    rig.scheduler.run_due()
    assert len(rig.reported()) == PARTITIONS_MAX
    rig.respond()
    rig.scheduler.run_due()
    assert len(rig.reported()) == 5


def test_a_replica_that_is_gone_is_not_reported(rig: AssignmentsRig) -> None:
    rig.assignments.assign(TOPIC, 0, A)
    rig.assignments.forget(TOPIC, 0)
    rig.scheduler.run_due()
    assert rig.sent == []


def test_the_callback_gets_the_controllers_decision(rig: AssignmentsRig) -> None:
    decisions: list[tuple[str, bool]] = []

    def noting(name: str) -> Any:
        return lambda is_accepted: decisions.append((name, is_accepted))

    rig.assignments.assign(TOPIC, 0, A, noting("accepted"))
    rig.assignments.assign(TOPIC, 1, A, noting("refused"))
    rig.scheduler.run_due()
    rig.respond(ErrorCode.STALE_BROKER_EPOCH)
    assert decisions == [], "the request is repeated first"
    rig.clock.advance_ms(PAUSE_MS)
    rig.scheduler.run_due()
    rig.respond(p1=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert decisions == [("accepted", True), ("refused", False)]
    rig.assignments.assign(TOPIC, 0, A, noting("known"))
    assert decisions[2:] == [("known", True)]


def test_the_callback_of_a_replaced_assignment_gets_false(rig: AssignmentsRig) -> None:
    decisions: list[tuple[str, bool]] = []
    rig.assignments.assign(TOPIC, 0, B, lambda is_accepted: decisions.append(("B", is_accepted)))
    rig.scheduler.run_due()
    rig.assignments.assign(TOPIC, 0, A, lambda is_accepted: decisions.append(("A", is_accepted)))
    assert decisions == [("B", False)]
    rig.respond()
    assert decisions == [("B", False)], "that was the answer about B"
    rig.scheduler.run_due()
    rig.respond()
    assert decisions == [("B", False), ("A", True)]
    rig.assignments.assign(TOPIC, 0, B, lambda is_accepted: decisions.append(("gone", is_accepted)))
    rig.scheduler.run_due()
    rig.assignments.forget(TOPIC, 0)
    rig.respond()
    assert len(decisions) == 2


def test_a_callback_that_raises_stops_nothing(rig: AssignmentsRig, caplog: pytest.LogCaptureFixture) -> None:
    called: list[bool] = []
    rig.assignments.assign(TOPIC, 0, A, lambda _is_accepted: 1 / 0)
    rig.assignments.assign(TOPIC, 1, A, called.append)
    rig.scheduler.run_due()
    rig.respond()
    assert called == [True]
    assert "a callback for the directory of a replica failed" in caplog.text
    rig.assignments.assign(OTHER, 0, B)
    rig.scheduler.run_due()
    assert rig.reported() == {(OTHER, 0): B}
