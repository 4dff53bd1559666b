"""Consumer groups: every state of a group x everything that may happen to it; replay; who may commit and fetch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.coordinators import consumer_group_types as t
from barnabas.broker.coordinators import group_events as ev
from barnabas.broker.coordinators.consumer_group import ConsumerGroup
from barnabas.broker.coordinators.consumer_group_classic import ClassicTurn
from barnabas.broker.coordinators.consumer_group_situation import ConsumerGroupSettings, GroupTimes, Situation
from barnabas.broker.coordinators.consumer_group_types import GroupState, Heartbeat, Member, MemberState
from barnabas.broker.coordinators.metadata_watch import Picture
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import snapshot

EMPTY, ASSIGNING, RECONCILING, STABLE, DEAD = GroupState
T, U = b"t" * 16, b"u" * 16
ROW = (("range", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"),)
SITUATION = Situation(
    Picture(snapshot({"t": 6, "u": 1}), 1, 1),
    1000,
    ConsumerGroupSettings(max_size=5),
    GroupTimes(assignment_interval_ms=0),
)


class Room:
    """A group whose records all get into the log."""

    def __init__(self, situation: Situation = SITUATION) -> None:
        self.group = ConsumerGroup("g")
        self.situation = situation
        self.records: list[t.Record] = []
        self.turn = ClassicTurn(self.group, situation)

    def take(self, what: Callable[[ClassicTurn], Any]) -> Any:
        """One turn; its records take effect, an ApiError is the outcome."""
        self.turn = ClassicTurn(self.group, self.situation)
        try:
            outcome = what(self.turn)
        except ApiError as error:
            return error.code
        for record in self.turn.records:
            self.group.replay(record)
        self.records += self.turn.records
        if self.turn.has_looked:
            self.group.picture_seen = self.situation.picture.number
        self.group.check()
        return outcome

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        return self.take(lambda turn: turn.heartbeat(Heartbeat(member_id, epoch, **fields)))

    def join(self, member_id: str, **fields: Any) -> Any:
        given = {"rebalance_timeout_ms": 100, "topic_names": frozenset("t"), "owned": {}, **fields}
        return self.beat(member_id, 0, **given)

    def leave(self, member_id: str, epoch: int = -1, instance_id: str | None = None) -> Any:
        return self.take(lambda turn: turn.leave(Heartbeat(member_id, epoch, instance_id)))


def empty() -> Room:
    room = Room()
    room.join("a")
    room.leave("a")
    return room


def assigning() -> Room:
    """`s` has left for good, and nobody was heard of since; `c` speaks the classic protocol."""
    room = stable()
    room.leave("s", instance_id="i")
    return room


def reconciling() -> Room:
    """`a` has to revoke a partition, since `z` came."""
    room = stable()
    room.join("z", topic_names=frozenset("tu"))
    room.beat("a", room.group.members["a"].epoch)
    return room


def stable() -> Room:
    """A dynamic member, a static one, and one of the classic protocol."""
    room = Room()
    room.join("a")
    room.take(lambda turn: turn.join(classic_join("c")))
    room.join("s", instance_id="i", topic_names=frozenset("u"))
    for _ in range(3):
        owned = t.without_epochs(room.group.members["a"].assigned)
        room.beat("a", room.group.members["a"].epoch, owned=owned)
        room.take(lambda turn: turn.join(classic_join("c")))
        room.beat("s", room.group.members["s"].epoch, instance_id="i")
    return room


def classic_join(member_id: str, protocols: ev.Protocols = ROW, protocol_type: str = "consumer") -> ev.Join:
    return ev.Join(member_id, "new", None, "client", "/h", 9000, 8000, protocol_type, protocols, 3, None, None)


ROOMS = {EMPTY: empty, ASSIGNING: assigning, RECONCILING: reconciling, STABLE: stable}
UNKNOWN, FENCED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH
FENCED_INSTANCE, UNRELEASED = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID


def epoch_of(room: Room, member_id: str) -> int:
    member = room.group.members.get(member_id)
    return member.epoch if member is not None else 3


EVENTS: dict[str, Callable[[Room], Any]] = {
    "join": lambda room: room.join("new"),
    "join again": lambda room: room.join("a"),
    "join as a static member": lambda room: room.join("new", instance_id="j"),
    "join in a static member's place": lambda room: room.join("new", instance_id="i", topic_names=frozenset("u")),
    "heartbeat": lambda room: room.beat("a", epoch_of(room, "a")),
    "heartbeat in another epoch": lambda room: room.beat("a", 99),
    "heartbeat as another instance": lambda room: room.beat("a", epoch_of(room, "a"), instance_id="i"),
    "another subscription": lambda room: room.beat("a", epoch_of(room, "a"), topic_names=frozenset("u")),
    "leave": lambda room: room.leave("a"),
    "leave for a while": lambda room: room.leave("s", -2, "i"),
    "silence": lambda room: room.take(lambda turn: turn.expire(t.MemberExpired("a", "silence"))),
    "no revocation": lambda room: room.take(
        lambda turn: turn.expire(t.RevocationExpired("a", epoch_of(room, "a"), 100))
    ),
    "a revocation of another epoch": lambda room: room.take(
        lambda turn: turn.expire(t.RevocationExpired("a", 99, 100))
    ),
    "expressions resolved": lambda room: room.take(
        lambda turn: turn.take_resolved({"x": t.ResolvedRegex(frozenset("u"))})
    ),
    "classic join": lambda room: room.take(lambda turn: turn.join(classic_join("c"))),
    "classic join by another protocol": lambda room: room.take(
        lambda turn: turn.join(classic_join("c", (("x", b""),)))
    ),
    "classic join of another type": lambda room: room.take(lambda turn: turn.join(classic_join("c", ROW, "connect"))),
    "classic sync": lambda room: room.take(lambda turn: turn.sync(classic_sync(epoch_of(room, "c")))),
    "classic sync in another generation": lambda room: room.take(lambda turn: turn.sync(classic_sync(99))),
    "classic heartbeat": lambda room: room.take(lambda turn: turn.classic_heartbeat("c", None, epoch_of(room, "c"))),
    "classic heartbeat of a consumer member": lambda room: room.take(
        lambda turn: turn.classic_heartbeat("a", None, epoch_of(room, "a"))
    ),
    "classic leave": lambda room: room.take(lambda turn: turn.classic_leave(ev.Leave((ev.LeavingMember("c"),), None))),
    "topics changed": lambda room: setattr(
        room, "situation", replace(room.situation, picture=Picture(snapshot({"t": 7, "u": 1}), 2, 2))
    ) or room.beat("a", epoch_of(room, "a")),
}  # fmt: skip


def classic_sync(generation_id: int) -> ev.Sync:
    return ev.Sync("c", None, generation_id, None, None, {}, None)


# event -> state before -> (what is answered: an epoch relative to the group's before, an error, or None; state after)
# fmt: off
TABLE: dict[str, dict[GroupState, tuple[Any, GroupState]]] = {
    "join": {EMPTY: (+1, STABLE), ASSIGNING: (+1, RECONCILING), RECONCILING: (+1, RECONCILING),
             STABLE: (+1, RECONCILING)},
    "join again": {EMPTY: (+1, STABLE), ASSIGNING: (0, RECONCILING), RECONCILING: (0, RECONCILING),
                   STABLE: (0, STABLE)},
    "join as a static member": {EMPTY: (+1, STABLE), ASSIGNING: (+1, RECONCILING), RECONCILING: (+1, RECONCILING),
                                STABLE: (+1, RECONCILING)},
    "join in a static member's place": {EMPTY: (+1, STABLE), ASSIGNING: (+1, RECONCILING),
                                        RECONCILING: (UNRELEASED, RECONCILING), STABLE: (UNRELEASED, STABLE)},
    "heartbeat": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (0, RECONCILING), RECONCILING: (-1, RECONCILING),
                  STABLE: (0, STABLE)},
    "heartbeat in another epoch": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (FENCED, ASSIGNING),
                                   RECONCILING: (FENCED, RECONCILING), STABLE: (FENCED, STABLE)},
    "heartbeat as another instance": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (UNKNOWN, ASSIGNING),
                                      RECONCILING: (FENCED_INSTANCE, RECONCILING), STABLE: (FENCED_INSTANCE, STABLE)},
    "another subscription": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (-1, RECONCILING), RECONCILING: (-1, RECONCILING),
                             STABLE: (0, RECONCILING)},
    "leave": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: ("left", DEAD), RECONCILING: ("left", ASSIGNING),
              STABLE: ("left", ASSIGNING)},
    "leave for a while": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (UNKNOWN, ASSIGNING), RECONCILING: ("left", RECONCILING),
                          STABLE: ("left", RECONCILING)},
    "silence": {EMPTY: (None, EMPTY), ASSIGNING: (None, DEAD), RECONCILING: (None, ASSIGNING),
                STABLE: (None, ASSIGNING)},
    "no revocation": {EMPTY: (None, EMPTY), ASSIGNING: (None, DEAD), RECONCILING: (None, ASSIGNING),
                      STABLE: (None, ASSIGNING)},
    "a revocation of another epoch": {state: (None, state) for state in ROOMS},
    "expressions resolved": {state: (None, state) for state in ROOMS},
    "classic join": {EMPTY: (+1, STABLE), ASSIGNING: (0, RECONCILING), RECONCILING: (0, RECONCILING),
                     STABLE: (0, STABLE)},
    "classic join by another protocol": {
        EMPTY: (ErrorCode.UNKNOWN_SERVER_ERROR, EMPTY),
        **{state: (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, state) for state in (ASSIGNING, RECONCILING, STABLE)}},
    "classic join of another type": {state: (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, state) for state in ROOMS},
    "classic sync": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (ErrorCode.NONE, ASSIGNING),
                     RECONCILING: (ErrorCode.REBALANCE_IN_PROGRESS, RECONCILING), STABLE: (ErrorCode.NONE, STABLE)},
    "classic sync in another generation": {
        EMPTY: (UNKNOWN, EMPTY),
        **{state: (ErrorCode.ILLEGAL_GENERATION, state) for state in (ASSIGNING, RECONCILING, STABLE)}},
    "classic heartbeat": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (ErrorCode.NONE, ASSIGNING),
                          RECONCILING: (ErrorCode.REBALANCE_IN_PROGRESS, RECONCILING),
                          STABLE: (ErrorCode.NONE, STABLE)},
    "classic heartbeat of a consumer member": {state: (UNKNOWN, state) for state in ROOMS},
    "classic leave": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (ErrorCode.NONE, ASSIGNING),
                      RECONCILING: (ErrorCode.NONE, ASSIGNING), STABLE: (ErrorCode.NONE, ASSIGNING)},
    "topics changed": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (+1, RECONCILING), RECONCILING: (-1, RECONCILING),
                       STABLE: (+1, RECONCILING)},
}
# fmt: on


def shown(outcome: Any, epoch_before: int) -> Any:
    """An answer in the table's words."""
    if isinstance(outcome, t.HeartbeatResult):
        return "left" if outcome.epoch < 0 else outcome.epoch - epoch_before
    if isinstance(outcome, ev.JoinResult):
        return outcome.error or outcome.generation_id - epoch_before
    if isinstance(outcome, ev.LeaveResult):
        return outcome.members[0].error
    return outcome.error if isinstance(outcome, ev.SyncResult) else outcome


@pytest.mark.parametrize("state", ROOMS)
@pytest.mark.parametrize("event", EVENTS)
def test_every_state_and_event(event: str, state: GroupState) -> None:
    room = ROOMS[state]()
    assert room.group.state is state
    epoch = room.group.epoch
    outcome = shown(EVENTS[event](room), epoch)
    assert (outcome, room.group.state) == TABLE[event][state]
    if room.group.state is DEAD:
        assert room.turn.downgraded is not None, "the last member of the consumer protocol has gone"


def test_the_table_is_whole() -> None:
    assert TABLE.keys() == EVENTS.keys()
    assert all(row.keys() == ROOMS.keys() for row in TABLE.values())


class TestReplay:
    def test_the_records_make_the_group_again(self) -> None:
        for room in (build() for build in ROOMS.values()):
            again = ConsumerGroup("g")
            for record in room.records:
                again.replay(record)
            for name in ("members", "target", "epoch", "assignment_epoch", "owners", "topic_names", "static_members"):
                assert getattr(again, name) == getattr(room.group, name)

    def test_tombstones_end_it(self) -> None:
        room = reconciling()
        for record in room.group.tombstones():
            room.group.replay(record)
        assert room.group.state is DEAD
        left = (room.group.members, room.group.target, room.group.owners, room.group.topic_names)
        assert not any(left)

    def test_tombstones_of_what_is_not_there_do_nothing(self) -> None:
        group = ConsumerGroup("g")
        for record in (
            t.MemberMetadata("m", None), t.CurrentAssignment("m", None), t.TargetAssignment("m", None),
            t.TargetEpoch(None), t.RegexTopics("x", None), t.PartitionMetadata(exists=False),
        ):  # fmt: skip
            group.replay(record)
        assert group.state is EMPTY
        group.check()

    def test_a_partition_belongs_to_who_said_so_last(self) -> None:
        """A log that was compacted half way may name two owners for a while."""
        group = ConsumerGroup("g")
        a, b = (Member(name, epoch=2, assigned={T: {0: 2}}) for name in "ab")
        for record in (t.CurrentAssignment("a", a), t.CurrentAssignment("b", b), t.CurrentAssignment("a", None)):
            group.replay(record)
        assert group.owners == {(T, 0): "b"}


class TestOffsets:
    group = stable().group

    def ask(
        self, member_id: str, epoch: int, *, version: int = 9, tp: tuple[bytes, int] = (T, 0), txn: bool = False
    ) -> Any:
        try:
            self.group.check_commit(member_id, None, epoch, version, is_transactional=txn, partitions=[tp])
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def test_who_may_commit(self) -> None:
        epoch, classic = self.group.members["a"].epoch, self.group.members["c"].epoch
        held, since = next(iter(self.group.members["a"].assigned[T].items()))
        stale, illegal = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION
        assert self.ask("a", epoch) == ErrorCode.NONE
        assert self.ask("a", epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
        assert self.ask("a", epoch, version=3, txn=True) == ErrorCode.NONE
        assert self.ask("a", epoch + 1) == stale
        assert self.ask("a", since, tp=(T, held)) == ErrorCode.NONE
        assert self.ask("a", since - 1, tp=(T, held)) == stale
        assert self.ask("a", epoch - 1, tp=(U, 0)) == stale
        assert self.ask("nobody", epoch) == UNKNOWN
        assert self.ask("", -1) == UNKNOWN
        assert self.ask("", -1, txn=True) == ErrorCode.NONE
        assert self.ask("c", classic, version=5) == ErrorCode.NONE
        assert self.ask("c", classic + 1) == illegal
        assert self.ask("c", classic - 1, tp=(U, 0)) == illegal

    def test_anybody_may_commit_to_an_empty_group(self) -> None:
        empty().group.check_commit("", None, -1, 9, is_transactional=False, partitions=[(T, 0)])

    @pytest.mark.parametrize(
        ("member_id", "ahead", "error"),
        [
            (None, None, ErrorCode.NONE), ("a", 0, ErrorCode.NONE), ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
            ("a", -1, ErrorCode.STALE_MEMBER_EPOCH), ("c", 1, ErrorCode.ILLEGAL_GENERATION), ("nobody", 0, UNKNOWN),
            (None, 0, UNKNOWN),
        ],
    )  # fmt: skip
    def test_who_may_fetch(self, member_id: str | None, ahead: int | None, error: ErrorCode) -> None:
        member = self.group.members.get(member_id or "")
        epoch = -1 if ahead is None else (member.epoch if member is not None else 3) + ahead
        try:
            self.group.check_fetch(member_id, epoch)
        except ApiError as found:
            code = found.code
        else:
            code = ErrorCode.NONE
        assert code == error


class TestLimits:
    def test_a_full_group_takes_nobody_but_its_members(self) -> None:
        room = Room()
        for number in range(5):
            room.join(f"m{number}")
        assert room.join("one too many") == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert room.join("m0").member_id == "m0"

    def test_the_assignor_rests_between_two_assignments(self) -> None:
        times = GroupTimes(assignment_interval_ms=500)
        room = Room(replace(SITUATION, times=times))
        room.join("a")
        assert room.join("b").epoch == room.group.epoch - 1, "the target is still the former one"
        room.situation = replace(room.situation, now_ms=SITUATION.now_ms + 500)
        assert room.beat("b", room.group.members["b"].epoch).epoch == room.group.epoch

    @pytest.mark.parametrize("asks", [{"a": "range"}, {"a": "range", "b": "range", "c": "uniform"}])
    def test_the_assignor_that_most_ask_for_assigns(self, asks: dict[str, str]) -> None:
        room = Room()
        for member_id in "abc":
            room.join(member_id, server_assignor=asks.get(member_id))
        assert room.group.preferred_assignor(room.group.members.values(), "uniform") == "range"

    def test_what_40_wrote_of_topics_is_removed(self) -> None:
        room = Room()
        room.group.replay(t.PartitionMetadata(exists=True))
        room.join("a")
        assert t.PartitionMetadata(exists=False) in room.records
        assert not room.group.has_partition_metadata_record

    def test_loaded_members_are_watched(self) -> None:
        room = reconciling()
        room.take(lambda turn: turn.watch_members())
        delays = {(timeout.kind, timeout.member_id): timeout.delay_ms for timeout in room.turn.timeouts}
        assert delays == {
            ("session", "a"): 45_000, ("rebalance", "a"): 100, ("session", "c"): 9000, ("session", "s"): 45_000,
            ("session", "z"): 45_000,
        }  # fmt: skip
        assert room.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
