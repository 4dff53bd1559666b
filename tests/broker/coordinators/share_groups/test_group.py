"""Share groups: every state of a group with every event; replay; the epochs, the assignment, the share partitions.

Tests the turns, too: `coordinators/share_groups/turn.py`, `coordinators/share_groups/heartbeats.py`, with
`coordinators/share_groups/values.py` and `coordinators/share_groups/environment.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.coordinators.consumer.environment import GroupTimes
from barnabas.broker.coordinators.consumer.metadata_watch import MetadataImage
from barnabas.broker.coordinators.consumer.values import NO_TIMESTAMP, MemberExpired
from barnabas.broker.coordinators.share_groups import heartbeats
from barnabas.broker.coordinators.share_groups import partitions as parts
from barnabas.broker.coordinators.share_groups import values as v
from barnabas.broker.coordinators.share_groups.environment import Environment, ShareGroupSettings
from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_groups.turn import Turn
from barnabas.broker.coordinators.share_groups.values import GroupState, Heartbeat, SharePartitions, TopicPart
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import snapshot

T, U = b"t" * 16, b"u" * 16
ENVIRONMENT = Environment(
    MetadataImage(snapshot({"t": 2, "u": 1}), 1, 1), 1000, ShareGroupSettings(max_size=3),
    GroupTimes(heartbeat_interval_ms=5, assignment_interval_ms=0),
)  # fmt: skip
UNKNOWN, FENCED, FULL = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_MAX_SIZE_REACHED


class ShareGroupRig:
    """A group whose records all get into the log; share coordinators answer when a test says so."""

    def __init__(self) -> None:
        self.group = ShareGroup("g")
        self.environment = ENVIRONMENT
        self.records: list[v.Record] = []
        self.turn = Turn(self.group, self.environment)
        self.asked: list[tuple[int, dict[bytes, frozenset[int]]]] = []  # (epoch, share partitions to initialise)

    def take(self, what: Callable[[Turn], Any]) -> Any:
        """One turn; its records take effect, an ApiError is the outcome."""
        self.turn = turn = Turn(self.group, self.environment)
        try:
            outcome = what(turn)
        except ApiError as error:
            return error.code
        self.write(turn.records)
        if turn.has_compared_topics:
            self.group.image_compared = self.environment.image.number
        if turn.is_settled:
            self.group.settled = (self.environment.image.number, self.group.changes)
        if turn.initializes:
            self.asked.append((turn.epoch, turn.initializes))
            self.group.attempts.update((t, p) for t, found in turn.initializes.items() for p in found)
        return outcome

    def write(self, records: list[v.Record]) -> None:
        for record in records:
            self.group.replay(record)
        self.group.invariants()
        self.records += records

    def initialized(self) -> None:
        """The share coordinators have done what they were asked for."""
        for _, done in self.asked:
            after = parts.end_initializing(self.group.partitions, done, {})
            self.write([v.StatePartitions(after)])
        self.asked = []
        self.group.attempts.clear()

    def beat(self, member_id: str, epoch: int | None = None, **fields: Any) -> Any:
        if epoch is None:
            epoch = self.group.members[member_id].epoch if member_id in self.group.members else 3
        return self.take(lambda turn: heartbeats.heartbeat(turn, Heartbeat(member_id, epoch, **fields)))

    def told(self, member_id: str, epoch: int) -> str | None:
        """The message of a heartbeat that is refused."""
        with pytest.raises(ApiError) as caught:
            heartbeats.heartbeat(Turn(self.group, self.environment), Heartbeat(member_id, epoch))
        return caught.value.message

    def join(self, member_id: str, names: str = "t") -> Any:
        return self.beat(member_id, 0, topic_names=frozenset(names))

    def leave(self, member_id: str) -> Any:
        return self.take(lambda turn: heartbeats.leave(turn, Heartbeat(member_id, -1)))

    def move_topics(self, **counts: int) -> None:
        number = self.environment.image.number + 1
        self.environment = replace(self.environment, image=MetadataImage(snapshot(counts), number, number))

    def reads(self) -> dict[str, str]:
        return {
            member_id: " ".join(f"{t[:1].decode()}{p}" for t in sorted(m.assigned) for p in sorted(m.assigned[t]))
            for member_id, m in self.group.members.items()
        }


# The states of a group that has members have one name in Kafka.


def empty() -> ShareGroupRig:
    """Its only member has left; the share partitions stay."""
    rig = stable()
    rig.leave("a")
    return rig


def initializing() -> ShareGroupRig:
    """Its member waits for the share coordinators."""
    rig = ShareGroupRig()
    rig.join("a")
    return rig


def abandoned() -> ShareGroupRig:
    """The coordinator that had begun to initialise the partitions is gone."""
    rig = initializing()
    rig.group.attempts.clear()
    rig.asked = []
    return rig


def ready() -> ShareGroupRig:
    """The partitions are initialised, and not assigned yet."""
    rig = initializing()
    rig.initialized()
    return rig


def stable() -> ShareGroupRig:
    """The member has its partitions."""
    rig = ready()
    rig.beat("a")
    return rig


def resting() -> ShareGroupRig:
    """There is a new epoch, and the assignor rests."""
    rig = stable()
    rig.environment = replace(rig.environment, times=replace(rig.environment.times, assignment_interval_ms=5000))
    rig.join("b")
    return rig


RIGS = {
    "empty": empty, "initializing": initializing, "abandoned": abandoned, "ready": ready, "stable": stable,
    "resting": resting,
}  # fmt: skip
EVENTS: dict[str, Callable[[ShareGroupRig], Any]] = {
    "join": lambda rig: rig.join("new"),
    "join again": lambda rig: rig.join("a"),
    "heartbeat": lambda rig: rig.beat("a"),
    "heartbeat in another epoch": lambda rig: rig.beat("a", 99),
    "another subscription": lambda rig: rig.beat("a", topic_names=frozenset("u")),
    "leave": lambda rig: rig.leave("a"),
    "silence": lambda rig: rig.take(lambda turn: heartbeats.expire(turn, MemberExpired("a", "silence"))),
    "more partitions": lambda rig: rig.move_topics(t=3, u=1) or rig.beat("a"),
    "initialised": lambda rig: rig.initialized() or rig.beat("a"),
}

# event -> state before -> (the epoch that is answered, relative to the group's before, or an error or None;
#                           what the members read; how many partitions are to be initialised)
# fmt: off
TABLE: dict[str, dict[str, tuple[Any, dict[str, str], int]]] = {
    "join": {
        "empty": (+1, {"new": "t0 t1"}, 0),
        "initializing": (+1, {"a": "", "new": ""}, 0), "abandoned": (+1, {"a": "", "new": ""}, 2),
        "ready": (+1, {"a": "", "new": "t1"}, 0), "stable": (+1, {"a": "t0 t1", "new": "t1"}, 0),
        "resting": (-1, {"a": "t0 t1", "b": "", "new": ""}, 0)},
    "join again": {
        "empty": (+1, {"a": "t0 t1"}, 0),
        "initializing": (0, {"a": ""}, 0), "abandoned": (+1, {"a": ""}, 2), "ready": (+1, {"a": "t0 t1"}, 0),
        "stable": (0, {"a": "t0 t1"}, 0), "resting": (-1, {"a": "t0 t1", "b": ""}, 0)},
    "heartbeat": {
        "empty": (UNKNOWN, {}, 0),
        "initializing": (0, {"a": ""}, 0), "abandoned": (+1, {"a": ""}, 2), "ready": (+1, {"a": "t0 t1"}, 0),
        "stable": (0, {"a": "t0 t1"}, 0), "resting": (-1, {"a": "t0 t1", "b": ""}, 0)},
    "heartbeat in another epoch": {
        "empty": (UNKNOWN, {}, 0),
        "initializing": (FENCED, {"a": ""}, 0), "abandoned": (FENCED, {"a": ""}, 0), "ready": (FENCED, {"a": ""}, 0),
        "stable": (FENCED, {"a": "t0 t1"}, 0), "resting": (FENCED, {"a": "t0 t1", "b": ""}, 0)},
    "another subscription": {
        "empty": (UNKNOWN, {}, 0),
        "initializing": (+1, {"a": ""}, 1), "abandoned": (+1, {"a": ""}, 1), "ready": (+1, {"a": ""}, 1),
        "stable": (+1, {"a": ""}, 1), "resting": (-1, {"a": "", "b": ""}, 1)},
    "leave": {
        "empty": (UNKNOWN, {}, 0),
        **{state: ("left", {}, 0) for state in ("initializing", "abandoned", "ready", "stable")},
        "resting": ("left", {"b": ""}, 0)},
    "silence": {
        **{state: (None, {}, 0) for state in ("empty", "initializing", "abandoned", "ready", "stable")},
        "resting": (None, {"b": ""}, 0)},
    "more partitions": {
        "empty": (UNKNOWN, {}, 0),
        "initializing": (+1, {"a": ""}, 1), "abandoned": (+1, {"a": ""}, 3), "ready": (+1, {"a": "t0 t1"}, 1),
        "stable": (+1, {"a": "t0 t1"}, 1), "resting": (-1, {"a": "t0 t1", "b": ""}, 1)},
    "initialised": {
        "empty": (UNKNOWN, {}, 0),
        "initializing": (+1, {"a": "t0 t1"}, 0), "abandoned": (+1, {"a": ""}, 2), "ready": (+1, {"a": "t0 t1"}, 0),
        "stable": (0, {"a": "t0 t1"}, 0), "resting": (-1, {"a": "t0 t1", "b": ""}, 0)},
}
# fmt: on


def shown(outcome: Any, epoch_before: int) -> Any:
    """An answer in the table's words."""
    if isinstance(outcome, v.HeartbeatResult):
        return "left" if outcome.epoch < 0 else outcome.epoch - epoch_before
    return outcome


@pytest.mark.parametrize("state", RIGS)
@pytest.mark.parametrize("event", EVENTS)
def test_every_state_and_event(event: str, state: str) -> None:
    rig = RIGS[state]()
    epoch = rig.group.epoch
    outcome = shown(EVENTS[event](rig), epoch)
    count = sum(len(found) for found in rig.turn.initializes.values())
    assert (outcome, rig.reads(), count) == TABLE[event][state]
    assert rig.group.state is (GroupState.STABLE if rig.group.members else GroupState.EMPTY)


def test_the_table_is_whole() -> None:
    assert TABLE.keys() == EVENTS.keys()
    assert all(row.keys() == RIGS.keys() for row in TABLE.values())


class TestHeartbeats:
    def test_the_assignment_is_sent_when_it_changes_and_to_full_requests(self) -> None:
        rig = ready()
        assert rig.beat("a").assigned == {T: {0, 1}}
        assert rig.beat("a").assigned is None
        assert rig.beat("a", topic_names=frozenset("t")).assigned == {T: {0, 1}}
        assert rig.join("a").assigned == {T: {0, 1}}

    def test_the_previous_epoch_is_accepted_since_the_answer_may_be_lost(self) -> None:
        rig = ready()
        before = rig.group.members["a"].epoch
        rig.beat("a")
        assert rig.beat("a", before).epoch == before + 1
        assert rig.beat("a", before - 1) == FENCED

    def test_what_a_fenced_member_is_told(self) -> None:
        rig = stable()
        epoch = rig.group.members["a"].epoch
        assert epoch > 2
        greater, smaller = (rig.told("a", wrong) for wrong in (epoch + 1, 1))
        ending = "The member must abandon all its partitions and rejoin."
        assert greater == (
            f"The share group member has a greater member epoch ({epoch + 1}) than the one known by the group"
            f" coordinator ({epoch}). {ending}"
        )
        assert smaller == (
            f"The share group member has a smaller member epoch (1) than the one known by the group coordinator"
            f" ({epoch}), and it does not match the previous member epoch ({epoch - 1}). {ending}"
        )

    def test_a_full_group_takes_members_that_it_has(self) -> None:
        rig = stable()
        rig.join("b")
        rig.join("c")
        assert rig.join("d") == FULL
        assert rig.join("c").member_id == "c"

    def test_fields_that_are_not_set_stay(self) -> None:
        rig = stable()
        rig.beat("a", rack_id="r", client_id="c", client_host="/h")
        rig.beat("a", client_id="c", client_host="/h")
        member = rig.group.members["a"]
        assert (member.rack_id, member.topic_names, member.client_id) == ("r", frozenset("t"), "c")

    def test_a_heartbeat_that_changes_nothing_writes_nothing_and_looks_no_more(self) -> None:
        rig = stable()
        rig.beat("a")
        assert rig.group.settled == (1, rig.group.changes)
        rig.beat("a")
        assert rig.turn.records == []
        assert rig.turn.is_settled

    def test_an_epoch_that_cannot_rise_is_an_error(self) -> None:
        rig = stable()
        rig.write([v.GroupEpoch(2**31 - 1)])
        assert rig.join("b") == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_every_loaded_member_gets_its_full_session(self) -> None:
        rig = resting()
        turn = Turn(rig.group, rig.environment)
        heartbeats.watch_members(turn)
        assert [(timeout.member_id, timeout.delay_ms) for timeout in turn.timeouts] == [("a", 45_000), ("b", 45_000)]


class TestAssignment:
    def test_the_assignor_rests_and_then_goes_on(self) -> None:
        rig = resting()
        rig.environment = replace(rig.environment, now_ms=6000)
        rig.beat("a")
        rig.beat("b")
        assert rig.reads() == {"a": "t0", "b": "t1"}

    def test_a_time_in_the_future_delays_nothing(self) -> None:
        rig = resting()
        rig.environment = replace(rig.environment, now_ms=500)
        assert rig.beat("b").epoch == rig.group.epoch

    def test_a_topic_that_is_recreated_is_initialised_again(self) -> None:
        rig = stable()
        rig.move_topics(u=1)
        rig.beat("a")
        assert rig.reads() == {"a": ""}
        rig.beat("a")
        assert rig.turn.records == []
        rig.move_topics(t=1, u=1)
        rig.beat("a")
        assert rig.reads() == {"a": "t0"}

    def test_a_partition_that_does_not_exist_is_assigned_to_nobody(self) -> None:
        rig = stable()
        strange = SharePartitions(
            initialized={T: TopicPart("t", frozenset({-1, 0, 1, 9})), U: TopicPart("u", frozenset({0}))}
        )
        rig.write([v.StatePartitions(strange)])
        rig.join("b")
        assert rig.group.target["a"].keys() | rig.group.target["b"].keys() == {T}
        rig.beat("a")
        rig.beat("b")
        rig.beat("a")
        assert rig.turn.records == []

    def test_the_metadata_hash_follows_the_subscriptions(self) -> None:
        rig = stable()
        before = rig.group.metadata_hash
        rig.join("b", "u")
        assert rig.group.metadata_hash != before
        rig.leave("b")
        assert rig.group.metadata_hash == before


class TestSharePartitions:
    def test_another_coordinators_attempt_is_repeated_in_a_newer_epoch(self) -> None:
        rig = abandoned()
        epoch = rig.group.epoch
        rig.beat("a")
        assert rig.asked == [(epoch + 1, {T: {0, 1}})]
        rig.beat("a")
        assert len(rig.asked) == 1

    def test_only_missing_partitions_are_initialised(self) -> None:
        rig = stable()
        rig.move_topics(t=4)
        rig.beat("a")
        assert rig.asked == [(rig.group.epoch, {T: {2, 3}})]

    def test_a_topic_that_its_last_subscriber_leaves_is_not_initialised(self) -> None:
        rig = stable()
        rig.move_topics(t=4, u=1)
        rig.beat("a", topic_names=frozenset("u"))
        assert rig.asked == [(rig.group.epoch, {U: {0}})]

    def test_a_topic_that_does_not_exist_is_initialised_once_it_does(self) -> None:
        rig = ShareGroupRig()
        rig.join("a", "w")
        assert rig.asked == []
        rig.move_topics(w=1)
        rig.beat("a")
        assert rig.asked == [(rig.group.epoch, {b"w" * 16: {0}})]


class TestReplay:
    def test_the_records_make_the_group_again(self) -> None:
        for rig in (build() for build in RIGS.values()):
            again = ShareGroup("g")
            for record in rig.records:
                again.replay(record)
            for name in (
                "members",
                "target",
                "epoch",
                "assignment_epoch",
                "topic_names",
                "partitions",
                "metadata_hash",
            ):
                assert getattr(again, name) == getattr(rig.group, name)

    def test_without_a_target_it_has_that_of_the_first_epoch(self) -> None:
        """So Kafka describes a group that has never had a member."""
        group = ShareGroup("g")
        assert (group.assignment_epoch, group.assignment_timestamp_ms) == (1, NO_TIMESTAMP)
        for record in (v.TargetEpoch(5, 99), v.TargetEpoch(None)):
            group.replay(record)
        assert (group.assignment_epoch, group.assignment_timestamp_ms) == (1, NO_TIMESTAMP)

    def test_tombstones_end_it(self) -> None:
        rig = resting()
        for record in rig.group.tombstones():
            assert v.is_tombstone(record)
            rig.group.replay(record)
        assert rig.group.state is GroupState.DEAD
        assert not any((rig.group.members, rig.group.target, rig.group.topic_names))
        assert rig.group.partitions.is_empty

    def test_tombstones_of_what_is_not_there_do_nothing(self) -> None:
        group = ShareGroup("g")
        for record in (
            v.MemberMetadata("m", None), v.CurrentAssignment("m", None), v.TargetAssignment("m", None),
            v.TargetEpoch(None), v.StatePartitions(None),
        ):  # fmt: skip
            group.replay(record)
        assert group.state is GroupState.EMPTY
        group.invariants()

    def test_a_member_without_its_assignment_joins_again(self) -> None:
        rig = stable()
        rig.write([v.CurrentAssignment("a", None)])
        assert rig.beat("a", 3) == FENCED
        assert rig.join("a").assigned == {T: {0, 1}}
