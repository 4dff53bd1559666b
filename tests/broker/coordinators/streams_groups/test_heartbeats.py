"""Streams groups: joining, heartbeats, leaving, timers; topologies, epochs, statuses, endpoints.

Tests the turns, too: `coordinators/streams_groups/turn.py`, with `coordinators/streams_groups/endpoints.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.coordinators.consumer.metadata_watch import MetadataImage
from barnabas.broker.coordinators.consumer.values import MemberExpired, RevocationExpired
from barnabas.broker.coordinators.streams_groups import heartbeats
from barnabas.broker.coordinators.streams_groups import values as v
from barnabas.broker.coordinators.streams_groups.environment import (
    Environment,
    StreamsGroupConfig,
    StreamsGroupSettings,
)
from barnabas.broker.coordinators.streams_groups.group import EPOCH_MAX, StreamsGroup
from barnabas.broker.coordinators.streams_groups.turn import Turn
from barnabas.broker.coordinators.streams_groups.values import (
    Endpoint,
    GroupState,
    Heartbeat,
    HeartbeatResult,
    MemberState,
    StatusCode,
    Tasks,
)
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import snapshot
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology

STATELESS = topology(subtopology("0", "t"))
STATEFUL = topology(subtopology("0", "t", changelogs="g-changelog"))
CONFIG = StreamsGroupConfig(
    session_timeout_ms=45, heartbeat_interval_ms=5, assignment_interval_ms=0, initial_rebalance_delay_ms=0
)
NO_TASKS = Tasks()
UNKNOWN, FENCED, FULL = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_MAX_SIZE_REACHED
INVALID = ErrorCode.INVALID_REQUEST


def image(number: int, **topics: int) -> MetadataImage:
    return MetadataImage(snapshot({name.replace("_", "-"): count for name, count in topics.items()}), number, number)


def active(*partitions: int) -> Tasks:
    return Tasks({"0": frozenset(partitions)} if partitions else {})


class StreamsRig:
    """A group whose records all get into the log."""

    def __init__(self, **topics: int) -> None:
        self.group = StreamsGroup("g")
        self.environment = Environment(image(1, **topics or {"t": 2}), 1000, StreamsGroupSettings(max_size=3), CONFIG)
        self.is_delayed = False
        self.is_new = True
        self.turn = Turn(self.group, self.environment)

    def configure(self, **config: Any) -> None:
        self.environment = replace(self.environment, config=replace(self.environment.config, **config))

    def have(self, **topics: int) -> None:
        """The cluster has these topics from now on."""
        self.environment = replace(self.environment, image=image(self.environment.image.number + 1, **topics))

    def take(self, what: Callable[[Turn], Any]) -> Any:
        """One turn; its records take effect, an ApiError is the outcome."""
        group = self.group
        self.turn = turn = Turn(group, self.environment, is_new=self.is_new, is_delayed=self.is_delayed)
        try:
            outcome = what(turn)
        except ApiError as error:
            return error.code
        for record in turn.records:
            group.replay(record)
            group.invariants()
        group.configured, group.endpoint_epoch = turn.configured, turn.endpoint_epoch
        if turn.has_compared_topics:
            group.image_compared = self.environment.image.number
        if group.members:
            group.shutdown_member_id = turn.shutdown_member_id
        self.is_delayed = self.is_delayed or turn.assignment_delay_ms > 0
        self.is_new = False
        return outcome

    def beat(self, member_id: str, epoch: int | None = None, **fields: Any) -> Any:
        """A heartbeat, by default in the member's epoch and with all its tasks."""
        member = self.group.members.get(member_id)
        if member is not None:
            fields = {"owned": member.assigned.without_epochs(), **fields}
        given = (member.epoch if member else 0) if epoch is None else epoch
        request = Heartbeat(member_id, given, client_id="c", client_host="/h", **fields)
        return self.take(lambda turn: heartbeats.heartbeat(turn, request))

    def join(self, member_id: str, **fields: Any) -> Any:
        given = {"rebalance_timeout_ms": 60, "topology": STATELESS, "owned": NO_TASKS, "process_id": member_id}
        return self.beat(member_id, 0, **{**given, **fields})

    def leave(self, member_id: str, **fields: Any) -> Any:
        return self.take(lambda turn: heartbeats.leave(turn, Heartbeat(member_id, -1, **fields)))

    def settle(self) -> None:
        """Heartbeats of all members until nothing changes."""
        for _ in range(8):
            for member_id in list(self.group.members):
                self.beat(member_id)

    def kinds(self) -> list[str]:
        return [type(record).__name__ for record in self.turn.records]


def statuses(result: HeartbeatResult) -> list[StatusCode]:
    return [status.code for status in result.statuses]


@pytest.fixture
def rig() -> StreamsRig:
    return StreamsRig()


# Joining


def test_the_first_member_gets_all_tasks_at_once(rig: StreamsRig) -> None:
    result = rig.join("m1")
    assert result == HeartbeatResult("m1", 2, 5, active(0, 1))
    assert rig.kinds() == [
        "MemberMetadata", "GroupTopology", "GroupEpoch", "TargetAssignment", "TargetEpoch", "CurrentAssignment",
    ]  # fmt: skip
    assert rig.turn.is_rebalance
    assert rig.group.state is GroupState.STABLE


def test_a_heartbeat_without_changes_writes_nothing_and_repeats_no_tasks(rig: StreamsRig) -> None:
    rig.join("m1")
    result = rig.beat("m1")
    assert result == HeartbeatResult("m1", 2, 5)
    assert rig.turn.records == []
    assert [timeout.kind for timeout in rig.turn.timeouts] == ["session"]


def test_a_second_member_gets_its_share_when_the_first_has_revoked_it(rig: StreamsRig) -> None:
    rig.join("m1")
    assert rig.join("m2") == HeartbeatResult("m2", 3, 5, NO_TASKS)
    assert rig.group.state is GroupState.RECONCILING
    kept = rig.beat("m1")
    assert (kept.epoch, sum(map(len, kept.tasks.active.values()))) == (2, 1)
    assert rig.group.members["m1"].state is MemberState.UNREVOKED_TASKS
    assert [timeout.kind for timeout in rig.turn.timeouts] == ["rebalance", "session"]
    rig.beat("m1")
    given = rig.beat("m2")
    assert {p for result in (kept, given) for p in result.tasks.active["0"]} == {0, 1}
    assert rig.group.state is GroupState.STABLE


def test_standby_tasks_are_on_other_processes(rig: StreamsRig) -> None:
    rig.configure(num_standby_replicas=1)
    rig.have(t=2, g_changelog=2)
    rig.join("m1", topology=STATEFUL)
    rig.join("m2", topology=STATEFUL)
    rig.settle()
    for member in rig.group.members.values():
        assert member.assigned.standby.keys() == {"0"}
        assert set(member.assigned.standby["0"]).isdisjoint(member.assigned.active["0"])


def test_a_full_group_takes_no_new_member(rig: StreamsRig) -> None:
    for member_id in ("m1", "m2", "m3"):
        rig.join(member_id)
    assert rig.join("m4") == FULL
    assert isinstance(rig.join("m3"), HeartbeatResult)


def test_a_member_that_joins_again_keeps_its_tasks(rig: StreamsRig) -> None:
    rig.join("m1")
    result = rig.join("m1")
    assert (result.epoch, result.tasks) == (2, active(0, 1))
    assert rig.turn.records == []


# The epoch of a heartbeat: every relation to the member's epoch, with every report of tasks

EPOCHS = {"next": 4, "own": 3, "previous": 2, "older": 1}
REPORTS = {"none": None, "fewer": active(), "same": active(0, 1), "more": active(0, 1, 2)}


def outcome_of(epoch: str, report: str) -> Any:
    if epoch == "own":
        return INVALID if report == "more" else "accepted"
    return "accepted" if epoch == "previous" and report in ("fewer", "same") else FENCED


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_member_is_fenced_by_its_epoch(rig: StreamsRig, epoch: str, report: str) -> None:
    rig.join("m1")
    rig.configure(num_standby_replicas=1)  # a new epoch
    rig.beat("m1")
    assert rig.group.members["m1"].epoch == 3
    found = rig.beat("m1", EPOCHS[epoch], owned=REPORTS[report])
    assert ("accepted" if isinstance(found, HeartbeatResult) else found) == outcome_of(epoch, report)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_member_that_is_unknown_has_to_join(rig: StreamsRig, epoch: int) -> None:
    rig.join("m1")
    assert rig.beat("m2", epoch) == UNKNOWN
    assert rig.leave("m2") == UNKNOWN


# Leaving and timers


def test_the_tasks_of_a_member_that_leaves_go_to_the_others(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.join("m2")
    rig.settle()
    assert rig.leave("m1") == HeartbeatResult("m1", -1)
    assert rig.kinds() == ["CurrentAssignment", "TargetAssignment", "MemberMetadata", "GroupEpoch"]
    assert [timeout.kind for timeout in rig.turn.timeouts] == ["session", "rebalance"]
    assert not rig.turn.is_rebalance
    assert rig.beat("m2").tasks == active(0, 1)


def test_the_last_member_leaves_its_topology_behind(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.leave("m1")
    assert rig.group.state is GroupState.EMPTY
    assert rig.group.topology == STATELESS
    assert rig.group.target == {}


def test_an_expired_session_removes_the_member(rig: StreamsRig) -> None:
    rig.join("m1")
    session = rig.turn.timeouts[-1]
    assert (session.kind, session.delay_ms) == ("session", 45)
    assert isinstance(session.event, MemberExpired)
    rig.take(lambda turn: heartbeats.expire(turn, session.event))
    assert rig.group.members == {}
    rig.take(lambda turn: heartbeats.expire(turn, session.event))
    assert rig.turn.records == []


def test_a_member_that_does_not_revoke_in_time_is_removed(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.join("m2")
    rig.beat("m1")
    event = RevocationExpired("m1", 2, 60)
    assert rig.turn.timeouts[0][:4] == ("rebalance", "m1", 60, event)
    rig.take(lambda turn: heartbeats.expire(turn, RevocationExpired("m1", 1, 60)))
    assert rig.turn.records == [], "it is in another epoch"
    rig.take(lambda turn: heartbeats.expire(turn, event))
    assert set(rig.group.members) == {"m2"}


def test_loaded_members_get_their_full_timeouts(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.join("m2")
    rig.beat("m1")
    rig.take(heartbeats.watch_members)
    assert [(timeout.kind, timeout.member_id) for timeout in rig.turn.timeouts] == [
        ("session", "m1"), ("rebalance", "m1"), ("session", "m2"),
    ]  # fmt: skip


# The topology


def test_the_first_topology_counts(rig: StreamsRig) -> None:
    rig.join("m1")
    other = topology(subtopology("0", "u"))
    newer = replace(other, epoch=2)
    assert rig.join("m2", topology=other) == INVALID
    assert rig.join("m2", topology=newer) == INVALID
    assert rig.join("m2", topology=replace(STATELESS, epoch=2)) == INVALID


def test_a_member_with_an_older_topology_joins_and_is_told(rig: StreamsRig) -> None:
    rig.join("m1", topology=replace(STATELESS, epoch=2))
    result = rig.join("m2", topology=topology(subtopology("0", "u"), epoch=1))
    assert statuses(result) == [StatusCode.STALE_TOPOLOGY]
    assert result.statuses[0].detail == "The member's topology epoch 1 is behind the group's topology epoch 2."
    assert statuses(rig.beat("m2")) == [StatusCode.STALE_TOPOLOGY]
    assert statuses(rig.beat("m1")) == []


def test_an_invalid_topology_is_refused_and_not_kept(rig: StreamsRig) -> None:
    assert rig.join("m1", topology=topology(subtopology("0"))) == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert rig.group.topology is None


def test_no_task_is_assigned_until_the_source_topic_exists() -> None:
    rig = StreamsRig(u=1)
    result = rig.join("m1")
    assert (result.tasks, statuses(result)) == (NO_TASKS, [StatusCode.MISSING_SOURCE_TOPICS])
    assert rig.group.state is GroupState.NOT_READY
    rig.have(u=1, t=2)
    result = rig.beat("m1")
    assert (result.tasks, statuses(result)) == (active(0, 1), [])
    assert rig.group.state is GroupState.STABLE


def test_missing_internal_topics_are_reported_until_they_exist(rig: StreamsRig) -> None:
    result = rig.join("m1", topology=STATEFUL)
    assert statuses(result) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert [(topic.name, topic.partitions) for topic in result.missing] == [("g-changelog", 2)]
    assert [topic.name for topic in rig.beat("m1").missing] == ["g-changelog"]
    rig.have(t=2, g_changelog=2)
    result = rig.beat("m1")
    assert (result.tasks, result.missing, statuses(result)) == (active(0, 1), (), [])


def test_a_topic_that_grows_brings_tasks(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.have(t=3)
    assert rig.beat("m1").tasks == active(0, 1, 2)


def test_a_topic_that_goes_takes_its_tasks(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.have(u=1)
    assert statuses(rig.beat("m1")) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert rig.group.state is GroupState.NOT_READY
    assert rig.group.target["m1"] == NO_TASKS
    rig.beat("m1", owned=NO_TASKS)
    assert rig.group.members["m1"].assigned.is_empty


def test_other_topics_change_nothing(rig: StreamsRig) -> None:
    rig.join("m1")
    configured = rig.group.configured
    rig.have(t=2, other=9)
    rig.beat("m1")
    assert rig.turn.records == []
    assert rig.group.configured is configured


@pytest.mark.parametrize(
    "wrong", [Tasks({"9": frozenset({0})}), active(2), active(-1), Tasks(standby={"0": frozenset({2})})]
)
def test_tasks_that_do_not_exist_are_refused(rig: StreamsRig, wrong: Tasks) -> None:
    rig.join("m1")
    assert rig.beat("m1", owned=wrong) == INVALID


def test_a_group_without_a_topology_takes_no_heartbeat(rig: StreamsRig) -> None:
    rig.group.replay(v.MemberMetadata("m1", v.Member("m1")))
    rig.group.replay(v.CurrentAssignment("m1", v.Member("m1", epoch=1)))
    assert rig.beat("m1") == ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_last_epoch_is_not_passed(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.group.replay(v.GroupEpoch(EPOCH_MAX))
    assert rig.join("m2") == ErrorCode.UNKNOWN_SERVER_ERROR


# Lost answers


def test_a_member_that_lacks_tasks_is_told_them_again(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.settle()
    assert rig.beat("m1").tasks is None
    assert rig.beat("m1", owned=None).tasks is None
    assert rig.beat("m1", owned=active(0)).tasks == rig.beat("m1", owned=NO_TASKS).tasks == active(0, 1)


def test_a_member_that_has_too_many_tasks_is_told_again_to_revoke_them(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.settle()
    rig.join("m2")
    assert rig.beat("m1", owned=active(0, 1)).tasks == active(0)
    assert rig.beat("m1", owned=active(0, 1)).tasks == active(0)
    assert rig.group.members["m1"].state is MemberState.UNREVOKED_TASKS


# Delays


def test_the_first_members_wait_for_others(rig: StreamsRig) -> None:
    rig.configure(initial_rebalance_delay_ms=3000)
    result = rig.join("m1")
    assert (result.epoch, result.tasks, statuses(result)) == (1, NO_TASKS, [StatusCode.ASSIGNMENT_DELAYED])
    assert rig.turn.assignment_delay_ms == 3000
    result = rig.join("m2")
    assert (result.epoch, rig.turn.assignment_delay_ms) == (1, 0)
    rig.is_delayed = False
    rig.take(heartbeats.assign_first)
    assert rig.kinds() == ["TargetAssignment", "TargetAssignment", "TargetEpoch"]
    assert rig.beat("m1").epoch == rig.group.epoch
    assert rig.group.members["m2"].epoch == 1
    rig.settle()
    assert rig.group.state is GroupState.STABLE


def test_a_group_that_became_empty_gets_no_first_assignment(rig: StreamsRig) -> None:
    rig.configure(initial_rebalance_delay_ms=3000)
    rig.join("m1")
    rig.leave("m1")
    rig.is_delayed = False
    rig.take(heartbeats.assign_first)
    assert rig.turn.records == []


def test_a_group_with_members_does_not_wait(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.configure(initial_rebalance_delay_ms=3000)
    assert statuses(rig.join("m2")) == []


def test_the_assignor_rests(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.configure(assignment_interval_ms=100)
    result = rig.join("m2")
    assert (result.epoch, statuses(result)) == (2, [StatusCode.ASSIGNMENT_DELAYED])
    assert result.statuses[0].detail == "Assignment delayed due to the configured assignment interval."
    rig.environment = replace(rig.environment, now_ms=1100)
    assert (rig.beat("m2").epoch, rig.group.assignment_epoch) == (3, 3)


def test_a_clock_that_was_set_back_delays_nothing(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.configure(assignment_interval_ms=100)
    rig.environment = replace(rig.environment, now_ms=999)
    assert rig.join("m2").epoch == 3


def test_a_changed_configuration_raises_the_epoch(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.configure(num_standby_replicas=1)
    rig.beat("m1")
    assert rig.kinds() == ["GroupEpoch", "TargetEpoch", "CurrentAssignment"]


# Shutdown


def test_all_members_are_told_of_a_shutdown_until_the_group_is_empty(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.join("m2")
    assert statuses(rig.beat("m1", shuts_down=True)) == [StatusCode.SHUTDOWN_APPLICATION]
    result = rig.beat("m2", shuts_down=True)
    assert result.statuses[0].detail == (
        "Streams group member m1 encountered a fatal error and requested a shutdown for the entire application."
    )
    rig.leave("m1")
    assert statuses(rig.beat("m2")) == [StatusCode.SHUTDOWN_APPLICATION]
    rig.leave("m2")
    assert statuses(rig.join("m3")) == []


def test_a_member_may_ask_for_a_shutdown_as_it_leaves(rig: StreamsRig) -> None:
    rig.join("m1")
    rig.join("m2")
    rig.leave("m1", shuts_down=True)
    assert statuses(rig.beat("m2")) == [StatusCode.SHUTDOWN_APPLICATION]


# Endpoints


def test_members_learn_where_partitions_are(rig: StreamsRig) -> None:
    rig.have(t=2, g_changelog=2)
    rig.configure(num_standby_replicas=1)
    rig.join("m1", topology=STATEFUL, user_endpoint=Endpoint("one", 1))
    rig.join("m2", topology=STATEFUL, user_endpoint=Endpoint("two", 2))
    rig.settle()
    known = rig.group.endpoint_epoch
    assert known > 0
    assert rig.beat("m1", endpoint_epoch=known).endpoints is None
    found = rig.beat("m1", endpoint_epoch=known - 1)
    assert (found.endpoint_epoch, [each.endpoint.host for each in found.endpoints]) == (known, ["two", "one"])
    for each in found.endpoints:
        assert each.active.keys() == each.standby.keys() == {"t"}
        assert sorted([*each.active["t"], *each.standby["t"]]) == [0, 1]


def test_a_partition_that_a_topic_does_not_have_is_at_no_endpoint() -> None:
    rig = StreamsRig(t=3, u=1)
    rig.join("m1", topology=topology(subtopology("0", "t u")), user_endpoint=Endpoint("one", 1))
    (found,) = rig.beat("m1", endpoint_epoch=-1).endpoints
    assert dict(found.active) == {"t": [0, 1, 2], "u": [0]}


def test_there_are_endpoints_without_partitions_while_topics_are_missing() -> None:
    rig = StreamsRig(u=1)
    (found,) = rig.join("m1", user_endpoint=Endpoint("one", 1)).endpoints
    assert (found.active, found.standby) == ({}, {})


def test_without_endpoints_the_epoch_stays(rig: StreamsRig) -> None:
    rig.join("m1")
    assert rig.beat("m1").endpoints is None
    assert rig.beat("m1", endpoint_epoch=7).endpoints == []
