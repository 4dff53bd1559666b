"""The state machine of a classic group: every cell of its table, then scenarios.

Tests `coordinators/classic/steps.py`, `coordinators/classic/joining.py`, `coordinators/classic/turn.py` and
`coordinators/classic/events.py`, too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.events import GroupSettings, GroupState, LeavingMember
from barnabas.broker.coordinators.classic.group import TRANSITIONS
from barnabas.broker.coordinators.classic.joining import REJOINS
from barnabas.broker.coordinators.classic.steps import STEPS
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.group_rig import RANGE, ROUND_ROBIN_TOO, GroupShardRig

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

OTHER = (("other", b"x"),)


def empty() -> GroupShardRig:
    return GroupShardRig()


def preparing() -> GroupShardRig:
    """Two members, of which only b has rejoined."""
    rig = stable()
    rig.join("rejoin-b", "b", protocols=ROUND_ROBIN_TOO)
    assert rig.group.state is PREPARING
    return rig


def completing() -> GroupShardRig:
    rig = stable()
    rig.join("rejoin-a", "a")
    rig.join("rejoin-b", "b")
    assert rig.group.state is COMPLETING
    return rig


def stable() -> GroupShardRig:
    return GroupShardRig().make_stable("a", "b")


def dead() -> GroupShardRig:
    rig = stable()
    rig.step(ev.Unload())
    assert rig.group.state is DEAD
    return rig


RIGS: dict[GroupState, Callable[[], GroupShardRig]] = {
    EMPTY: empty, PREPARING: preparing, COMPLETING: completing, STABLE: stable, DEAD: dead,
}  # fmt: skip

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
NAMED = ErrorCode.MEMBER_ID_REQUIRED
PARKED = "parked"

# fmt: off
# event -> what member "b" of the current generation is answered, and the state afterwards
TABLE: dict[str, dict[GroupState, tuple[object, GroupState]]] = {
    "join_new":         {EMPTY: (NONE, COMPLETING), PREPARING: (PARKED, PREPARING), COMPLETING: (PARKED, PREPARING),
                         STABLE: (PARKED, PREPARING), DEAD: (UNAVAILABLE, DEAD)},
    "join_new_v4":      {EMPTY: (NAMED, EMPTY), PREPARING: (NAMED, PREPARING), COMPLETING: (NAMED, COMPLETING),
                         STABLE: (NAMED, STABLE), DEAD: (UNAVAILABLE, DEAD)},
    "join_same":        {EMPTY: (UNKNOWN, EMPTY), PREPARING: (PARKED, PREPARING), COMPLETING: (NONE, COMPLETING),
                         STABLE: (NONE, STABLE), DEAD: (UNAVAILABLE, DEAD)},
    "join_changed":     {EMPTY: (UNKNOWN, EMPTY), PREPARING: (PARKED, PREPARING), COMPLETING: (PARKED, PREPARING),
                         STABLE: (PARKED, PREPARING), DEAD: (UNAVAILABLE, DEAD)},
    "join_inconsistent": {EMPTY: (UNKNOWN, EMPTY), PREPARING: (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, PREPARING),
                         COMPLETING: (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, COMPLETING),
                         STABLE: (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, STABLE), DEAD: (UNAVAILABLE, DEAD)},
    "sync":             {EMPTY: (UNKNOWN, EMPTY), PREPARING: (REBALANCING, PREPARING), COMPLETING: (PARKED, COMPLETING),
                         STABLE: (NONE, STABLE), DEAD: (UNAVAILABLE, DEAD)},
    "heartbeat":        {EMPTY: (UNKNOWN, EMPTY), PREPARING: (REBALANCING, PREPARING), COMPLETING: (NONE, COMPLETING),
                         STABLE: (NONE, STABLE), DEAD: (UNAVAILABLE, DEAD)},
    "leave":            {EMPTY: (UNKNOWN, EMPTY), PREPARING: (NONE, PREPARING), COMPLETING: (NONE, PREPARING),
                         STABLE: (NONE, PREPARING), DEAD: (UNAVAILABLE, DEAD)},
    "commit":           {EMPTY: (UNKNOWN, EMPTY), PREPARING: (NONE, PREPARING), COMPLETING: (REBALANCING, COMPLETING),
                         STABLE: (NONE, STABLE), DEAD: (UNAVAILABLE, DEAD)},
    "commit_simple":    {EMPTY: (NONE, EMPTY), PREPARING: (UNKNOWN, PREPARING), COMPLETING: (UNKNOWN, COMPLETING),
                         STABLE: (UNKNOWN, STABLE), DEAD: (UNAVAILABLE, DEAD)},
    "commit_in_txn":    {EMPTY: (NONE, EMPTY), PREPARING: (NONE, PREPARING), COMPLETING: (NONE, COMPLETING),
                         STABLE: (NONE, STABLE), DEAD: (UNAVAILABLE, DEAD)},
    "session_expired":  {EMPTY: (None, EMPTY), PREPARING: (None, PREPARING), COMPLETING: (None, PREPARING),
                         STABLE: (None, PREPARING), DEAD: (None, DEAD)},
    "initial_expired":  {EMPTY: (None, EMPTY), PREPARING: (None, COMPLETING), COMPLETING: (None, COMPLETING),
                         STABLE: (None, STABLE), DEAD: (None, DEAD)},
    "join_expired":     {EMPTY: (None, EMPTY), PREPARING: (None, COMPLETING), COMPLETING: (None, COMPLETING),
                         STABLE: (None, STABLE), DEAD: (None, DEAD)},
    "sync_expired":     {EMPTY: (None, EMPTY), PREPARING: (None, PREPARING), COMPLETING: (None, EMPTY),
                         STABLE: (None, STABLE), DEAD: (None, DEAD)},
    "assignment_stored": {EMPTY: (None, EMPTY), PREPARING: (None, PREPARING), COMPLETING: (None, STABLE),
                         STABLE: (None, STABLE), DEAD: (None, DEAD)},
    "static_stored":    {EMPTY: (None, EMPTY), PREPARING: (None, PREPARING), COMPLETING: (None, COMPLETING),
                         STABLE: (None, STABLE), DEAD: (None, DEAD)},
    "empty_stored":     {EMPTY: (None, EMPTY), PREPARING: (None, PREPARING), COMPLETING: (None, COMPLETING),
                         STABLE: (None, STABLE), DEAD: (None, DEAD)},
    "loaded":           {EMPTY: (None, EMPTY), PREPARING: (None, PREPARING), COMPLETING: (None, COMPLETING),
                         STABLE: (None, STABLE), DEAD: (None, DEAD)},
    "unload":           {EMPTY: (None, DEAD), PREPARING: (None, DEAD), COMPLETING: (None, DEAD), STABLE: (None, DEAD),
                         DEAD: (None, DEAD)},
}
# fmt: on


# What a client does; the answer is its error, or None while the request is parked.
DEEDS: dict[str, Callable[[GroupShardRig, int], object]] = {
    "join_new": lambda rig, _: rig.join("c", protocols=ROUND_ROBIN_TOO),
    "join_new_v4": lambda rig, _: rig.join("c", version=4),
    "join_same": lambda rig, _: rig.join("again", "b", protocols=_protocols_of(rig, "b")),
    "join_changed": lambda rig, _: rig.join("again", "b", protocols=(("range", b"new"),)),
    "join_inconsistent": lambda rig, _: rig.join("again", "b", protocols=OTHER),
    "sync": lambda rig, _: rig.sync("again", "b"),
    "heartbeat": lambda rig, _: rig.heartbeat("b"),
    "leave": lambda rig, _: rig.leave(LeavingMember("b")),
    "commit": lambda rig, generation: rig.commit("b", generation),
    "commit_simple": lambda rig, _: rig.commit("", -1),
    "commit_in_txn": lambda rig, _: rig.commit("", -1, transactional=True),
}
# What happens without a client.
EVENTS: dict[str, Callable[[int], ev.Event]] = {
    "session_expired": lambda _: ev.SessionExpired("a"),
    "initial_expired": lambda _: ev.InitialDelayExpired(0, 0),
    "join_expired": lambda _: ev.JoinExpired(),
    "sync_expired": ev.SyncExpired,
    "assignment_stored": lambda generation: ev.AssignmentStored(generation, "a", {}),
    "static_stored": lambda _: ev.StaticMemberStored("i", "a", "c", "a", RANGE, 1, 1, 9),
    "empty_stored": ev.EmptyStored,
    "loaded": lambda _: ev.Loaded(),
    "unload": lambda _: ev.Unload(),
}


def perform(rig: GroupShardRig, name: str) -> object:
    """Do what the row's name says; returns the error answered, PARKED, or None without a response."""
    generation = rig.group.generation_id
    if name in EVENTS:
        rig.step(EVENTS[name](generation))
        return None
    answer = DEEDS[name](rig, generation)
    if isinstance(answer, ev.LeaveResult):
        return answer.error or answer.members[0].error
    if isinstance(answer, ev.JoinResult | ev.SyncResult):
        return answer.error
    return PARKED if answer is None else answer


def _protocols_of(rig: GroupShardRig, member_id: str) -> ev.Protocols:
    member = rig.group.members.by_id.get(member_id)
    return RANGE if member is None else member.protocols


@pytest.mark.parametrize("state", list(GroupState), ids=lambda state: state.value)
@pytest.mark.parametrize("name", TABLE)
def test_every_event_in_every_state(name: str, state: GroupState) -> None:
    rig = RIGS[state]()
    if (name, state) == ("session_expired", PREPARING):
        # a, the leader, is the one waited for: with it gone everybody has joined.
        assert perform(rig, name) is None
        assert rig.group.state is COMPLETING
        return
    if name == "leave" and state is PREPARING:
        assert perform(rig, name) == NONE
        assert rig.answers["rejoin-b"].error == UNKNOWN  # its parked request
        assert rig.group.state is PREPARING
        return
    assert (perform(rig, name), rig.group.state) == TABLE[name][state]


def test_the_tables_are_full() -> None:
    for event, row in STEPS.items():
        assert set(row) == set(GroupState), event
    assert set(STEPS) == set(ev.Event.__args__)  # type: ignore[attr-defined]
    assert set(TRANSITIONS) == set(GroupState)
    assert set(REJOINS) == set(GroupState) - {DEAD}
    assert set(TABLE["join_same"]) == set(GroupState)


class TestJoin:
    def test_a_group_of_one(self) -> None:
        rig = GroupShardRig()
        joined = rig.join("a")
        assert joined == ev.JoinResult(
            NONE, "a", 1, "consumer", "range", "a", False, (ev.JoinedMember("a", None, RANGE[0][1]),)
        )
        assert rig.sync("sync", "a", a=b"mine") == ev.SyncResult(NONE, "consumer", "range", b"mine")
        assert rig.group.state is STABLE
        assert rig.group.topics == {"t"}

    def test_initial_delay_gathers_members_and_is_extended_up_to_the_rebalance_timeout(self) -> None:
        rig = GroupShardRig(GroupSettings(initial_rebalance_delay_ms=1000))
        rig.join("a", rebalance_ms=2500)
        rig.advance(900)
        rig.join("b", rebalance_ms=2500)
        rig.advance(200)  # the first delay is over; b came, so it goes on
        assert "a" not in rig.answers
        rig.advance(800)
        assert "a" not in rig.answers
        rig.join("c", rebalance_ms=2500)
        rig.advance(2000)
        assert {rig.answers[name].generation_id for name in "abc"} == {1}
        assert [m.member_id for m in rig.answers["a"].members] == ["a", "b", "c"]
        assert rig.answers["b"].members == ()

    def test_member_id_required_then_joins_under_that_name(self) -> None:
        rig = GroupShardRig()
        assert rig.join("j1", version=4, new_id="named").error == ErrorCode.MEMBER_ID_REQUIRED
        assert rig.group.members.pending_join == {"named"}
        assert rig.join("j2", "named", version=4).generation_id == 1

    def test_a_named_member_that_never_joins_is_forgotten(self) -> None:
        rig = GroupShardRig()
        rig.join("j1", version=4, new_id="named", session_ms=6000)
        rig.advance(6001)
        assert rig.group.members.pending_join == set()
        assert rig.join("j2", "named", version=4).error == UNKNOWN

    def test_a_pending_member_holds_up_the_join_phase_until_its_session_ends(self) -> None:
        rig = stable()
        rig.join("j1", version=4, new_id="c", session_ms=6000)
        rig.join("rejoin-a", "a")
        rig.join("rejoin-b", "b")
        assert rig.group.state is PREPARING
        rig.advance(6001)
        assert rig.answers["rejoin-a"].generation_id == 2

    def test_a_pending_member_is_never_static(self) -> None:
        rig = GroupShardRig()
        rig.join("j1", version=4, new_id="named")
        assert rig.join("j2", "named", instance_id="i").error == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_the_protocol_is_voted_for_among_those_all_speak(self) -> None:
        rig = GroupShardRig(GroupSettings(initial_rebalance_delay_ms=10))
        rig.join("a", protocols=(("x", b""), ("y", b"ya"), ("z", b"")))
        rig.join("b", protocols=(("z", b""), ("y", b"yb")))
        rig.join("c", protocols=(("y", b"yc"), ("z", b"")))
        rig.advance(100)
        assert rig.answers["a"].protocol_name == "y"
        assert [m.metadata for m in rig.answers["a"].members] == [b"ya", b"yb", b"yc"]

    @pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
    def test_no_protocol_is_no_way_in(self, protocol_type: str, protocols: ev.Protocols) -> None:
        rig = GroupShardRig()
        answer = rig.join("a", protocol_type=protocol_type, protocols=protocols)
        assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_max_size_counts_members(self) -> None:
        rig = GroupShardRig(GroupSettings(initial_rebalance_delay_ms=0, max_size=2)).make_stable("a", "b")
        assert rig.join("c").error == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert rig.join("again", "b").error == NONE

    def test_max_size_counts_those_who_joined_while_gathering_and_drops_the_last(self) -> None:
        rig = GroupShardRig().make_stable("a", "b", "c")
        rig.settings = GroupSettings(initial_rebalance_delay_ms=0, max_size=2)
        rig.join("ra", "a")
        rig.join("rb", "b")
        assert rig.join("rc", "c").error == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert "c" not in rig.group.members

    def test_a_leader_that_joins_again_forces_a_rebalance(self) -> None:
        rig = stable()
        assert rig.join("again", "a") is None
        assert rig.group.state is PREPARING
        assert rig.heartbeat("b") == REBALANCING
        rig.join("rejoin-b", "b")
        assert rig.answers["again"].generation_id == 2

    def test_a_follower_that_missed_its_answer_gets_it_again(self) -> None:
        rig = completing()
        again = rig.join("again", "b")
        assert (again.error, again.generation_id, again.members) == (NONE, 2, ())
        assert len(rig.join("again-a", "a").members) == 2

    def test_a_superseded_join_is_answered(self) -> None:
        rig = preparing()
        rig.join("again", "b", protocols=ROUND_ROBIN_TOO)
        assert rig.answers["rejoin-b"].error == REBALANCING
        rig.join("ra", "a")
        assert rig.answers["again"].generation_id == 2
        assert max(rig.answer_counts.values()) == 1

    def test_those_who_do_not_rejoin_in_time_are_dropped(self) -> None:
        rig = preparing()
        rig.heartbeat("a")
        for _ in range(7):
            rig.advance(5000)
            if "a" in rig.group.members:
                rig.heartbeat("a", 1)
        assert rig.answers["rejoin-b"].generation_id == 2
        assert rig.answers["rejoin-b"].leader == "b"
        assert list(rig.group.members.by_id) == ["b"]

    def test_a_group_that_nobody_rejoins_becomes_empty(self) -> None:
        rig = stable()
        rig.advance(10_001)
        assert rig.group.state is EMPTY
        assert rig.group.generation_id == 2
        assert rig.group.topics == set()
        assert rig.persisted[-1].assignments == {}


class TestSync:
    def test_members_without_an_assignment_get_an_empty_one(self) -> None:
        rig = completing()
        rig.sync("sb", "b")
        rig.sync("sa", "a", a=b"all")
        assert rig.answers["sb"].assignment == b""
        assert rig.persisted[-1].assignments == {"a": b"all", "b": b""}

    def test_nobody_is_answered_before_the_assignment_is_stored(self) -> None:
        rig = completing()
        rig.stores = False
        rig.sync("sb", "b")
        rig.sync("sa", "a", a=b"1", b=b"2")
        assert "sa" not in rig.answers
        assert rig.group.state is COMPLETING
        rig.store()
        assert (rig.answers["sa"].assignment, rig.answers["sb"].assignment) == (b"1", b"2")
        assert rig.group.state is STABLE

    def test_a_failed_write_is_reported_and_rebalances(self) -> None:
        rig = completing()
        rig.stores = False
        rig.sync("sa", "a", a=b"1")
        rig.store(UNAVAILABLE)
        assert rig.answers["sa"].error == UNAVAILABLE
        assert rig.group.state is PREPARING

    def test_an_assignment_stored_too_late_is_ignored(self) -> None:
        rig = completing()
        rig.stores = False
        rig.sync("sa", "a", a=b"1")
        rig.join("c")
        assert rig.answers["sa"].error == REBALANCING
        rig.store()
        assert rig.group.state is PREPARING
        assert rig.answer_counts["sa"] == 1

    @pytest.mark.parametrize(
        ("member_id", "generation", "protocol", "error"),
        [
            ("zombie", 2, None, UNKNOWN),
            ("b", 1, None, ErrorCode.ILLEGAL_GENERATION),
            ("b", 2, "roundrobin", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ],
    )
    def test_refusals(self, member_id: str, generation: int, protocol: str | None, error: ErrorCode) -> None:
        rig = completing()
        assert rig.sync("s", member_id, generation, protocol_name=protocol).error == error

    def test_a_superseded_sync_is_answered(self) -> None:
        rig = completing()
        rig.sync("first", "b")
        rig.sync("second", "b")
        assert rig.answers["first"].error == REBALANCING
        rig.sync("sa", "a", b=b"x")
        assert rig.answers["second"].assignment == b"x"

    def test_members_that_do_not_sync_in_time_are_dropped(self) -> None:
        rig = completing()
        rig.sync("sa", "a", a=b"1")
        assert rig.group.state is STABLE  # b is still expected
        for _ in range(7):
            rig.advance(5000)
            rig.heartbeat("a")
            if "b" in rig.group.members:
                rig.heartbeat("b")
        assert "b" not in rig.group.members
        assert rig.group.state is PREPARING


class TestLeave:
    def test_the_last_one_leaves_an_empty_group_and_is_answered_when_that_is_stored(self) -> None:
        rig = GroupShardRig().make_stable("a")
        rig.stores = False
        assert rig.leave(LeavingMember("a")) is None
        assert rig.group.state is EMPTY
        rig.store()
        assert rig.answers["leave"].error == NONE

    def test_a_leave_that_cannot_be_stored_says_so(self) -> None:
        rig = GroupShardRig().make_stable("a")
        rig.stores = False
        rig.leave(LeavingMember("a"))
        rig.store(ErrorCode.NOT_COORDINATOR)
        assert rig.answers["leave"] == ev.LeaveResult(ErrorCode.NOT_COORDINATOR)

    def test_many_with_an_error_each(self) -> None:
        rig = GroupShardRig().make_stable("a", "b")
        rig.join("s", instance_id="i", new_id="s-1")
        rig.join("p", version=4, new_id="pending")
        result = rig.leave(
            LeavingMember("nobody"), LeavingMember("", "i"), LeavingMember("", "j"), LeavingMember("pending"),
            LeavingMember("a", "i"), LeavingMember("b"),
        )  # fmt: skip
        assert result is not None
        assert [member.error for member in result.members] == [UNKNOWN, NONE, UNKNOWN, NONE, UNKNOWN, NONE]
        assert rig.answers["s"].error == UNKNOWN  # its parked join
        assert list(rig.group.members.by_id) == ["a"]

    def test_a_member_that_is_waited_for_leaves(self) -> None:
        rig = preparing()
        rig.leave(LeavingMember("a"))
        assert rig.answers["rejoin-b"].leader == "b"


class TestSessions:
    def test_a_heartbeat_keeps_a_member(self) -> None:
        rig = stable()
        for _ in range(5):
            rig.advance(9000)
            assert rig.heartbeat("a") == NONE
            assert rig.commit("b", 1) == NONE  # so does a commit
        assert rig.group.state is STABLE

    def test_a_silent_member_is_dropped(self) -> None:
        rig = stable()
        rig.advance(9000)
        rig.heartbeat("a")
        rig.advance(2000)
        assert "b" not in rig.group.members
        assert rig.heartbeat("a") == REBALANCING
        assert rig.heartbeat("b") == UNKNOWN

    def test_a_parked_member_is_not_dropped(self) -> None:
        rig = stable()
        rig.join("again", "b", protocols=ROUND_ROBIN_TOO, rebalance_ms=60_000)
        for _ in range(5):
            rig.advance(9000)
            rig.heartbeat("a")
        assert "b" in rig.group.members

    def test_a_new_member_whose_join_is_parked_too_long_is_dropped(self) -> None:
        rig = GroupShardRig(GroupSettings(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=5000)).make_stable(
            "a", "b"
        )
        rig.settings = GroupSettings(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=5000)
        rig.join("c")
        rig.advance(5001)
        assert rig.answers["c"].error == UNKNOWN


class TestStaticMembers:
    def stable(self) -> GroupShardRig:
        rig = GroupShardRig(GroupSettings(initial_rebalance_delay_ms=10))
        rig.join("s", instance_id="i", new_id="s-1")
        rig.join("a")
        rig.advance(100)
        rig.sync("sync-a", "a")
        rig.sync("sync-s", "s-1", **{"s-1": b"S", "a": b"A"})
        assert rig.group.state is STABLE
        return rig

    def test_comes_back_without_a_rebalance(self) -> None:
        rig = self.stable()
        back = rig.join("back", instance_id="i", new_id="s-2", version=9)
        assert (back.error, back.generation_id, back.member_id) == (NONE, 1, "s-2")
        assert (back.leader, back.skip_assignment, len(back.members)) == ("s-2", True, 2)
        assert rig.group.state is STABLE
        assert rig.sync("sync-back", "s-2", instance_id="i").assignment == b"S"
        assert rig.persisted[-1].assignments == {"s-2": b"S", "a": b"A"}

    def test_before_v9_a_returning_leader_does_not_learn_that_it_leads(self) -> None:
        rig = self.stable()
        back = rig.join("back", instance_id="i", new_id="s-2", version=8)
        assert (back.leader, back.skip_assignment, back.members) == ("s-1", False, ())

    def test_the_old_one_is_fenced(self) -> None:
        rig = self.stable()
        rig.join("back", instance_id="i", new_id="s-2")
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert rig.heartbeat("s-1", instance_id="i") == fenced
        assert rig.heartbeat("s-1") == UNKNOWN
        assert rig.commit("s-1", 1, "i") == fenced
        assert rig.sync("z", "s-1", instance_id="i").error == fenced
        assert rig.join("z2", "s-1", instance_id="i").error == fenced
        left = rig.leave(LeavingMember("s-1", "i"))
        assert left is not None
        assert left.members[0].error == fenced

    def test_returns_twice_before_the_first_return_is_stored(self) -> None:
        rig = self.stable()
        rig.stores = False
        assert rig.join("back1", instance_id="i", new_id="s-2", version=9) is None
        assert rig.join("back2", instance_id="i", new_id="s-3", version=9) is None
        assert rig.answers["back1"].error == ErrorCode.FENCED_INSTANCE_ID
        rig.store()
        assert rig.answers["back2"].member_id == "s-3"
        assert rig.heartbeat("s-2", instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
        assert rig.heartbeat("s-3", instance_id="i") == NONE
        assert max(rig.answer_counts[tag] for tag in ("back1", "back2")) == 1

    def test_a_return_that_cannot_be_stored_is_undone(self) -> None:
        rig = self.stable()
        rig.stores = False
        rig.join("back", instance_id="i", new_id="s-2", version=9, session_ms=20_000)
        rig.store(UNAVAILABLE)
        assert rig.answers["back"].error == UNAVAILABLE
        assert rig.heartbeat("s-1", instance_id="i") == NONE
        assert rig.group.members.by_id["s-1"].session_timeout_ms == 10_000
        assert rig.group.members.leader_id == "s-1"

    def test_a_return_that_changes_the_protocol_rebalances(self) -> None:
        rig = GroupShardRig().make_stable("a", protocols=(("range", b""), ("x", b"")))
        rig.join("s", instance_id="i", new_id="s-1", protocols=(("range", b""), ("x", b"")))
        rig.join("ra", "a", protocols=(("range", b""), ("x", b"")))
        rig.sync("ss", "s-1")
        rig.sync("sa", "a")
        assert rig.group.state is STABLE
        rig.join("back", instance_id="i", new_id="s-2", protocols=(("x", b""),))
        assert rig.group.state is PREPARING

    def test_a_return_while_the_assignment_is_awaited_rebalances(self) -> None:
        rig = self.stable()
        rig.join("ra", "a", protocols=ROUND_ROBIN_TOO)
        rig.join("rs", "s-1", instance_id="i")
        assert rig.group.state is COMPLETING
        rig.sync("parked", "a")
        rig.join("back", instance_id="i", new_id="s-2")
        assert rig.answers["parked"].error == REBALANCING
        assert rig.group.state is PREPARING

    def test_a_return_during_the_join_phase_counts_as_joined(self) -> None:
        rig = self.stable()
        rig.join("ra", "a", protocols=ROUND_ROBIN_TOO)
        rig.join("back", instance_id="i", new_id="s-2")
        assert rig.answers["ra"].generation_id == 2
        assert rig.answers["back"].member_id == "s-2"

    def test_stays_through_a_rebalance_it_misses_until_its_session_ends(self) -> None:
        rig = self.stable()
        rig.heartbeat("s-1", instance_id="i")
        rig.join("ra", "a", protocols=ROUND_ROBIN_TOO, rebalance_ms=1000)
        rig.group.members.by_id["s-1"].rebalance_timeout_ms = 1000
        rig.timers[ev.JOIN_TIMER] = (rig.now_ms + 1000, ev.JoinExpired())
        rig.advance(1001)
        assert rig.answers["ra"].generation_id == 2
        assert "s-1" in rig.group.members
        assert rig.answers["ra"].leader == "a"

    def test_a_join_phase_waits_on_when_only_absent_static_members_are_left(self) -> None:
        rig = GroupShardRig().make_stable("a")
        rig.join("s", instance_id="i", new_id="s-1", session_ms=300_000)
        rig.join("ra", "a")
        rig.sync("sync-s", "s-1")
        rig.sync("sync-a", "a")
        rig.leave(LeavingMember("a"))
        rig.advance(30_001)
        assert rig.group.state is PREPARING
        rig.join("back", instance_id="i", new_id="s-2")
        assert rig.answers["back"].generation_id == 3


class TestStories:
    def test_zombie_member(self) -> None:
        """A member that was away for longer than its session finds itself fenced by member id and generation."""
        rig = stable()
        rig.advance(9000)
        rig.heartbeat("a")
        rig.advance(2000)  # b is gone
        rig.join("ra", "a")
        rig.sync("sa", "a", a=b"everything")
        assert rig.heartbeat("b", 1) == UNKNOWN
        assert rig.commit("b", 1) == UNKNOWN
        assert rig.sync("zombie", "b", 1).error == UNKNOWN
        assert rig.join("zombie-join", "b").error == UNKNOWN
        assert rig.join("fresh") is None  # as a new member it is welcome
        rig.join("ra2", "a")
        assert rig.answers["fresh"].generation_id == 3

    def test_leader_dies_in_completing_rebalance(self) -> None:
        rig = completing()
        rig.sync("sb", "b")
        rig.advance(10_001)  # a's session ends, b's does not since it is parked
        assert rig.answers["sb"].error == REBALANCING
        assert "a" not in rig.group.members
        again = rig.join("rb", "b")
        assert (again.leader, again.generation_id) == ("b", 3)
        assert rig.sync("sb2", "b", b=b"all").assignment == b"all"

    def test_commit_from_an_old_generation(self) -> None:
        rig = stable()
        rig.join("ra", "a")
        assert rig.commit("b", 1) == NONE  # the last chance before it rejoins
        rig.join("rb", "b")
        assert rig.commit("b", 2) == REBALANCING
        rig.sync("sb", "b")
        rig.sync("sa", "a")
        assert rig.commit("b", 1) == ErrorCode.ILLEGAL_GENERATION
        assert rig.commit("b", 2) == NONE

    def test_coordinator_moves_in_mid_join(self) -> None:
        rig = preparing()
        rig.step(ev.Unload())
        assert rig.answers["rejoin-b"] == ev.JoinResult(ErrorCode.NOT_COORDINATOR, "b")

    def test_coordinator_moves_in_mid_sync(self) -> None:
        rig = completing()
        rig.sync("sb", "b")
        rig.step(ev.Unload())
        assert rig.answers["sb"].error == ErrorCode.NOT_COORDINATOR

    def test_cooperative_two_step(self) -> None:
        """Revoke in the first generation, hand over in the second: the members join twice in a row."""
        rig = GroupShardRig().make_stable("a")
        rig.join("b")
        assert rig.heartbeat("a") == REBALANCING
        rig.join("ra", "a", protocols=RANGE)
        rig.sync("sb", "b")
        rig.sync("sa", "a", a=b"half", b=b"")
        assert rig.join("ra2", "a") is None  # the leader asks for the second step at once
        assert rig.heartbeat("b") == REBALANCING
        rig.join("rb2", "b")
        rig.sync("sa2", "a", a=b"half", b=b"other half")
        assert rig.sync("sb2", "b").assignment == b"other half"
        assert rig.group.generation_id == 3

    def test_an_over_capacity_group_is_rebalanced_when_loaded(self) -> None:
        rig = stable()
        rig.settings = GroupSettings(initial_rebalance_delay_ms=0, max_size=1)
        rig.step(ev.Loaded())
        assert rig.group.state is PREPARING
