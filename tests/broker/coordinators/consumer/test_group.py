"""Consumer groups: every state of a group with every event; replay; permission to commit and fetch.

Tests the turns, too: `coordinators/consumer/turn.py`, `coordinators/consumer/heartbeats.py`,
`coordinators/consumer/classic_requests.py`, with `coordinators/consumer/values.py`,
`coordinators/consumer/environment.py` and `coordinators/consumer/context.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.consumer import classic_requests, heartbeats
from barnabas.broker.coordinators.consumer import values as t
from barnabas.broker.coordinators.consumer.environment import ConsumerGroupSettings, Environment, GroupTimes
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.metadata_watch import UNKNOWN_TOPICS_MAX, MetadataImage, metadata_hash
from barnabas.broker.coordinators.consumer.turn import Turn
from barnabas.broker.coordinators.consumer.values import GroupState, Heartbeat, Member, MemberState
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import snapshot

EMPTY, ASSIGNING, RECONCILING, STABLE, DEAD = GroupState
T, U = b"t" * 16, b"u" * 16
ROW = (("range", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"),)
ENVIRONMENT = Environment(
    MetadataImage(snapshot({"t": 6, "u": 1}), 1, 1),
    1000,
    ConsumerGroupSettings(max_size=5),
    GroupTimes(assignment_interval_ms=0),
)


class ConsumerGroupRig:
    """A group whose records all get into the log."""

    def __init__(self, environment: Environment = ENVIRONMENT) -> None:
        self.group = ConsumerGroup("g")
        self.environment = environment
        self.records: list[t.Record] = []
        self.turn = Turn(self.group, environment)

    def take(self, what: Callable[[Turn], Any]) -> Any:
        """One turn; its records take effect, an ApiError is the outcome."""
        self.turn = Turn(self.group, self.environment)
        try:
            outcome = what(self.turn)
        except ApiError as error:
            return error.code
        for record in self.turn.records:
            self.group.replay(record)
        self.records += self.turn.records
        if self.turn.has_compared_topics:
            self.group.image_compared = self.environment.image.number
        self.group.invariants()
        return outcome

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        return self.take(lambda turn: heartbeats.heartbeat(turn, Heartbeat(member_id, epoch, **fields)))

    def join(self, member_id: str, **fields: Any) -> Any:
        given = {"rebalance_timeout_ms": 100, "topic_names": frozenset("t"), "owned": {}, **fields}
        return self.beat(member_id, 0, **given)

    def leave(self, member_id: str, epoch: int = -1, instance_id: str | None = None) -> Any:
        return self.take(lambda turn: heartbeats.leave(turn, Heartbeat(member_id, epoch, instance_id)))


def empty() -> ConsumerGroupRig:
    rig = ConsumerGroupRig()
    rig.join("a")
    rig.leave("a")
    return rig


def assigning() -> ConsumerGroupRig:
    """`s` has left for good, and no request came since; `c` speaks the classic protocol."""
    rig = stable()
    rig.leave("s", instance_id="i")
    return rig


def reconciling() -> ConsumerGroupRig:
    """`a` has to revoke a partition, since `z` came."""
    rig = stable()
    rig.join("z", topic_names=frozenset("tu"))
    rig.beat("a", rig.group.members["a"].epoch)
    return rig


def stable() -> ConsumerGroupRig:
    """A dynamic member, a static one, and one of the classic protocol."""
    rig = ConsumerGroupRig()
    rig.join("a")
    rig.take(lambda turn: classic_requests.join(turn, classic_join("c")))
    rig.join("s", instance_id="i", topic_names=frozenset("u"))
    for _ in range(3):
        owned = t.without_epochs(rig.group.members["a"].assigned)
        rig.beat("a", rig.group.members["a"].epoch, owned=owned)
        rig.take(lambda turn: classic_requests.join(turn, classic_join("c")))
        rig.beat("s", rig.group.members["s"].epoch, instance_id="i")
    return rig


def classic_join(member_id: str, protocols: ev.Protocols = ROW, protocol_type: str = "consumer") -> ev.Join:
    return ev.Join(member_id, "new", None, "client", "/h", 9000, 8000, protocol_type, protocols, 3, None, None)


RIGS = {EMPTY: empty, ASSIGNING: assigning, RECONCILING: reconciling, STABLE: stable}
UNKNOWN, FENCED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH
FENCED_INSTANCE, UNRELEASED = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID


def epoch_of(rig: ConsumerGroupRig, member_id: str) -> int:
    member = rig.group.members.get(member_id)
    return member.epoch if member is not None else 3


EVENTS: dict[str, Callable[[ConsumerGroupRig], Any]] = {
    "join": lambda rig: rig.join("new"),
    "join again": lambda rig: rig.join("a"),
    "join as a static member": lambda rig: rig.join("new", instance_id="j"),
    "join in a static member's place": lambda rig: rig.join("new", instance_id="i", topic_names=frozenset("u")),
    "heartbeat": lambda rig: rig.beat("a", epoch_of(rig, "a")),
    "heartbeat in another epoch": lambda rig: rig.beat("a", 99),
    "heartbeat as another instance": lambda rig: rig.beat("a", epoch_of(rig, "a"), instance_id="i"),
    "another subscription": lambda rig: rig.beat("a", epoch_of(rig, "a"), topic_names=frozenset("u")),
    "leave": lambda rig: rig.leave("a"),
    "leave for a while": lambda rig: rig.leave("s", -2, "i"),
    "silence": lambda rig: rig.take(lambda turn: heartbeats.expire(turn, t.MemberExpired("a", "silence"))),
    "no revocation": lambda rig: rig.take(
        lambda turn: heartbeats.expire(turn, t.RevocationExpired("a", epoch_of(rig, "a"), 100))
    ),
    "a revocation of another epoch": lambda rig: rig.take(
        lambda turn: heartbeats.expire(turn, t.RevocationExpired("a", 99, 100))
    ),
    "expressions resolved": lambda rig: rig.take(
        lambda turn: heartbeats.take_resolved(turn, {"x": t.ResolvedRegex(frozenset("u"))})
    ),
    "classic join": lambda rig: rig.take(lambda turn: classic_requests.join(turn, classic_join("c"))),
    "classic join by another protocol": lambda rig: rig.take(
        lambda turn: classic_requests.join(turn, classic_join("c", (("x", b""),)))
    ),
    "classic join of another type": lambda rig: rig.take(
        lambda turn: classic_requests.join(turn, classic_join("c", ROW, "connect"))
    ),
    "classic sync": lambda rig: rig.take(lambda turn: classic_requests.sync(turn, classic_sync(epoch_of(rig, "c")))),
    "classic sync in another generation": lambda rig: rig.take(
        lambda turn: classic_requests.sync(turn, classic_sync(99))
    ),
    "classic heartbeat": lambda rig: rig.take(
        lambda turn: classic_requests.heartbeat(turn, "c", None, epoch_of(rig, "c"))
    ),
    "classic heartbeat of a consumer member": lambda rig: rig.take(
        lambda turn: classic_requests.heartbeat(turn, "a", None, epoch_of(rig, "a"))
    ),
    "classic leave": lambda rig: rig.take(
        lambda turn: classic_requests.leave(turn, ev.Leave((ev.LeavingMember("c"),), None))
    ),
    "topics changed": lambda rig: setattr(
        rig, "environment", replace(rig.environment, image=MetadataImage(snapshot({"t": 7, "u": 1}), 2, 2))
    ) or rig.beat("a", epoch_of(rig, "a")),
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
    "a revocation of another epoch": {state: (None, state) for state in RIGS},
    "expressions resolved": {state: (None, state) for state in RIGS},
    "classic join": {EMPTY: (+1, STABLE), ASSIGNING: (0, RECONCILING), RECONCILING: (0, RECONCILING),
                     STABLE: (0, STABLE)},
    "classic join by another protocol": {
        EMPTY: (ErrorCode.UNKNOWN_SERVER_ERROR, EMPTY),
        **{state: (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, state) for state in (ASSIGNING, RECONCILING, STABLE)}},
    "classic join of another type": {state: (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, state) for state in RIGS},
    "classic sync": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (ErrorCode.NONE, ASSIGNING),
                     RECONCILING: (ErrorCode.REBALANCE_IN_PROGRESS, RECONCILING), STABLE: (ErrorCode.NONE, STABLE)},
    "classic sync in another generation": {
        EMPTY: (UNKNOWN, EMPTY),
        **{state: (ErrorCode.ILLEGAL_GENERATION, state) for state in (ASSIGNING, RECONCILING, STABLE)}},
    "classic heartbeat": {EMPTY: (UNKNOWN, EMPTY), ASSIGNING: (ErrorCode.NONE, ASSIGNING),
                          RECONCILING: (ErrorCode.REBALANCE_IN_PROGRESS, RECONCILING),
                          STABLE: (ErrorCode.NONE, STABLE)},
    "classic heartbeat of a consumer member": {state: (UNKNOWN, state) for state in RIGS},
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


@pytest.mark.parametrize("state", RIGS)
@pytest.mark.parametrize("event", EVENTS)
def test_every_state_and_event(event: str, state: GroupState) -> None:
    rig = RIGS[state]()
    assert rig.group.state is state
    epoch = rig.group.epoch
    outcome = shown(EVENTS[event](rig), epoch)
    assert (outcome, rig.group.state) == TABLE[event][state]
    if rig.group.state is DEAD:
        assert rig.turn.downgraded is not None, "the last member of the consumer protocol has gone"


def test_the_table_is_whole() -> None:
    assert TABLE.keys() == EVENTS.keys()
    assert all(row.keys() == RIGS.keys() for row in TABLE.values())


class TestReplay:
    def test_the_records_make_the_group_again(self) -> None:
        for rig in (build() for build in RIGS.values()):
            again = ConsumerGroup("g")
            for record in rig.records:
                again.replay(record)
            for name in ("members", "target", "epoch", "assignment_epoch", "owners", "topic_names", "static_members"):
                assert getattr(again, name) == getattr(rig.group, name)

    def test_tombstones_end_it(self) -> None:
        rig = reconciling()
        for record in rig.group.tombstones():
            rig.group.replay(record)
        assert rig.group.state is DEAD
        left = (rig.group.members, rig.group.target, rig.group.owners, rig.group.topic_names)
        assert not any(left)

    def test_tombstones_of_what_is_not_there_do_nothing(self) -> None:
        group = ConsumerGroup("g")
        for record in (
            t.MemberMetadata("m", None), t.CurrentAssignment("m", None), t.TargetAssignment("m", None),
            t.TargetEpoch(None), t.RegexTopics("x", None), t.PartitionMetadata(exists=False),
        ):  # fmt: skip
            group.replay(record)
        assert group.state is EMPTY
        group.invariants()

    def test_without_a_target_it_has_that_of_the_first_epoch(self) -> None:
        group = ConsumerGroup("g")
        assert (group.assignment_epoch, group.assignment_timestamp_ms) == (1, t.NO_TIMESTAMP)
        for record in (t.TargetEpoch(5, 99), t.TargetEpoch(None)):
            group.replay(record)
        assert (group.assignment_epoch, group.assignment_timestamp_ms) == (1, t.NO_TIMESTAMP)

    def test_an_empty_assignment_of_the_first_epoch_as_earlier_versions_wrote(self) -> None:
        rig = ConsumerGroupRig(replace(ENVIRONMENT, times=GroupTimes(assignment_interval_ms=500)))
        member = Member("a", topic_regex="t.*", rebalance_timeout_ms=100)
        now_ms = ENVIRONMENT.now_ms
        for record in (
            t.MemberMetadata("a", member), t.TargetAssignment("a", {}), t.TargetEpoch(1, now_ms),
            t.CurrentAssignment("a", replace(member, epoch=1, previous_epoch=0)),
            t.RegexTopics("t.*", t.ResolvedRegex(frozenset("t"), 1, now_ms)),
            t.GroupEpoch(2, metadata_hash("t", ENVIRONMENT.image.snapshot)),
        ):  # fmt: skip
            rig.group.replay(record)
        assert rig.beat("a", 1).epoch == 1
        rig.environment = replace(rig.environment, now_ms=now_ms + 500)
        assert rig.beat("a", 1).epoch == 2
        assert len(rig.group.members["a"].assigned[T]) == 6

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
        rig = ConsumerGroupRig()
        for number in range(5):
            rig.join(f"m{number}")
        assert rig.join("one too many") == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert rig.join("m0").member_id == "m0"

    def test_a_group_is_not_subscribed_to_countless_topics_that_do_not_exist(self) -> None:
        """With 2 million names a heartbeat with another rack took 5 seconds under the shard's lock."""
        rig = ConsumerGroupRig()
        names = [f"none{number}" for number in range(UNKNOWN_TOPICS_MAX + 1)]
        assert rig.join("m0", topic_names=frozenset(["t", "u", *names[1:]])).epoch == 2
        assert rig.join("m1", topic_names=frozenset(["t", *names[1:]])).member_id == "m1"
        assert rig.join("m1", topic_names=frozenset(names)) == ErrorCode.INVALID_REQUEST
        assert rig.join("m2", topic_names=frozenset(names[:1])) == ErrorCode.INVALID_REQUEST
        assert rig.join("m2").member_id == "m2"

    def test_the_assignor_rests_between_two_assignments(self) -> None:
        times = GroupTimes(assignment_interval_ms=500)
        rig = ConsumerGroupRig(replace(ENVIRONMENT, times=times))
        rig.join("a")
        assert rig.join("b").epoch == rig.group.epoch - 1, "the target is still the former one"
        rig.environment = replace(rig.environment, now_ms=ENVIRONMENT.now_ms + 500)
        assert rig.beat("b", rig.group.members["b"].epoch).epoch == rig.group.epoch

    def test_the_assignor_does_not_rest_before_the_first_topics_of_an_expression_are_known(self) -> None:
        """It does not run in the first epoch, in which a new group with expressions has no topics."""
        rig = ConsumerGroupRig(replace(ENVIRONMENT, times=GroupTimes(assignment_interval_ms=500)))
        regex: Any = {"topic_names": frozenset(), "topic_regex": "t.*"}
        assert rig.join("a", **regex).epoch == 1
        assert (rig.group.state, rig.group.assignment_timestamp_ms) == (STABLE, t.NO_TIMESTAMP)
        assert [type(record) for record in rig.records] == [t.MemberMetadata, t.CurrentAssignment]
        resolved = t.ResolvedRegex(frozenset("t"), 1, ENVIRONMENT.now_ms)
        rig.take(lambda turn: heartbeats.take_resolved(turn, {"t.*": resolved}))
        joined = rig.join("b", **regex)
        assert joined.epoch == rig.group.epoch == rig.group.assignment_epoch
        assert len(joined.assigned[T]) == 3

    def test_the_assignor_does_not_wait_for_a_clock_that_was_set_back(self) -> None:
        ahead = replace(ENVIRONMENT, now_ms=ENVIRONMENT.now_ms + 60_000, times=GroupTimes(assignment_interval_ms=500))
        rig = ConsumerGroupRig(ahead)
        rig.join("a")
        rig.environment = replace(ahead, now_ms=ENVIRONMENT.now_ms)
        assert rig.join("b").epoch == rig.group.epoch
        assert rig.group.assignment_timestamp_ms == ENVIRONMENT.now_ms
        assert rig.join("c").epoch == rig.group.epoch - 1, "the next one waits as ever"

    @pytest.mark.parametrize(
        ("age_ms", "wanted"), [(0, set()), (10_000, set()), (10_001, {"t.*", "u.*"}), (-1, {"t.*", "u.*"})]
    )
    def test_expressions_are_matched_after_a_rest_but_not_when_a_clock_was_set_back(
        self, age_ms: int, wanted: set[str]
    ) -> None:
        rig = ConsumerGroupRig()
        rig.join("a", topic_regex="t.*")
        rig.group.replay(t.RegexTopics("t.*", t.ResolvedRegex(frozenset("t"), 1, ENVIRONMENT.now_ms - age_ms)))
        rig.join("b", topic_regex="u.*")
        assert rig.turn.regexes_wanted == wanted

    def test_an_expression_that_was_matched_in_the_future_is_matched_once(self) -> None:
        rig = ConsumerGroupRig()
        rig.join("a", topic_regex="t.*")
        version = ENVIRONMENT.image.creation
        for later_ms, wanted in ((60_000, {"t.*"}), (0, set())):
            resolved = t.ResolvedRegex(frozenset("t"), version, ENVIRONMENT.now_ms + later_ms)
            rig.take(lambda turn, resolved=resolved: heartbeats.take_resolved(turn, {"t.*": resolved}))
            rig.beat("a", rig.group.members["a"].epoch)
            assert rig.turn.regexes_wanted == wanted

    @pytest.mark.parametrize("asks", [{"a": "range"}, {"a": "range", "b": "range", "c": "uniform"}])
    def test_the_assignor_that_most_ask_for_assigns(self, asks: dict[str, str]) -> None:
        rig = ConsumerGroupRig()
        for member_id in "abc":
            rig.join(member_id, server_assignor=asks.get(member_id))
        assert rig.group.preferred_assignor(rig.group.members.values(), "uniform") == "range"

    def test_what_40_wrote_of_topics_is_removed(self) -> None:
        rig = ConsumerGroupRig()
        rig.group.replay(t.PartitionMetadata(exists=True))
        rig.join("a")
        assert t.PartitionMetadata(exists=False) in rig.records
        assert not rig.group.has_partition_metadata_record

    def test_loaded_members_are_watched(self) -> None:
        rig = reconciling()
        rig.take(lambda turn: heartbeats.watch_members(turn))
        delays = {(timeout.kind, timeout.member_id): timeout.delay_ms for timeout in rig.turn.timeouts}
        assert delays == {
            ("session", "a"): 45_000, ("rebalance", "a"): 100, ("session", "c"): 9000, ("session", "s"): 45_000,
            ("session", "z"): 45_000,
        }  # fmt: skip
        assert rig.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
