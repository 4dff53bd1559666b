"""The group's state machine: every state x event of the table, then the hard stories as transcripts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.coordinators import group_events as ev
from barnabas.broker.coordinators.group import REJOINS, STEPS, Group
from barnabas.broker.coordinators.group_events import GroupSettings, GroupState, LeavingMember
from barnabas.broker.coordinators.group_phases import TRANSITIONS
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.group_room import RANGE, ROUND_ROBIN_TOO, Room

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

OTHER = (("other", b"x"),)


def empty() -> Room:
    return Room()


def preparing() -> Room:
    """Two members, of which only b has rejoined."""
    room = stable()
    room.join("rejoin-b", "b", protocols=ROUND_ROBIN_TOO)
    assert room.group.state is PREPARING
    return room


def completing() -> Room:
    room = stable()
    room.join("rejoin-a", "a")
    room.join("rejoin-b", "b")
    assert room.group.state is COMPLETING
    return room


def stable() -> Room:
    return Room().make_stable("a", "b")


def dead() -> Room:
    room = stable()
    room.step(ev.Unload())
    assert room.group.state is DEAD
    return room


ROOMS: dict[GroupState, Callable[[], Room]] = {
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
DEEDS: dict[str, Callable[[Room, int], object]] = {
    "join_new": lambda room, _: room.join("c", protocols=ROUND_ROBIN_TOO),
    "join_new_v4": lambda room, _: room.join("c", version=4),
    "join_same": lambda room, _: room.join("again", "b", protocols=_protocols_of(room, "b")),
    "join_changed": lambda room, _: room.join("again", "b", protocols=(("range", b"new"),)),
    "join_inconsistent": lambda room, _: room.join("again", "b", protocols=OTHER),
    "sync": lambda room, _: room.sync("again", "b"),
    "heartbeat": lambda room, _: room.heartbeat("b"),
    "leave": lambda room, _: room.leave(LeavingMember("b")),
    "commit": lambda room, generation: room.commit("b", generation),
    "commit_simple": lambda room, _: room.commit("", -1),
    "commit_in_txn": lambda room, _: room.commit("", -1, transactional=True),
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


def perform(room: Room, name: str) -> object:
    """Do what the row's name says; returns the error answered, PARKED, or None where nobody is answered."""
    generation = room.group.generation_id
    if name in EVENTS:
        room.step(EVENTS[name](generation))
        return None
    answer = DEEDS[name](room, generation)
    if isinstance(answer, ev.LeaveResult):
        return answer.error or answer.members[0].error
    if isinstance(answer, ev.JoinResult | ev.SyncResult):
        return answer.error
    return PARKED if answer is None else answer


def _protocols_of(room: Room, member_id: str) -> ev.Protocols:
    member = room.group.members.by_id.get(member_id)
    return RANGE if member is None else member.protocols


@pytest.mark.parametrize("state", list(GroupState), ids=lambda state: state.value)
@pytest.mark.parametrize("name", TABLE)
def test_every_event_in_every_state(name: str, state: GroupState) -> None:
    room = ROOMS[state]()
    if (name, state) == ("session_expired", PREPARING):
        # a, the leader, is the one waited for: with it gone everybody has joined.
        assert perform(room, name) is None
        assert room.group.state is COMPLETING
        return
    if name == "leave" and state is PREPARING:
        assert perform(room, name) == NONE
        assert room.answers["rejoin-b"].error == UNKNOWN  # what it had parked
        assert room.group.state is PREPARING
        return
    assert (perform(room, name), room.group.state) == TABLE[name][state]


def test_the_tables_are_full() -> None:
    for event, row in STEPS.items():
        assert set(row) == set(GroupState), event
        assert all(hasattr(Group, f"_{name}") for name in row.values())
    assert set(STEPS) == set(ev.Event.__args__)  # type: ignore[attr-defined]
    assert set(TRANSITIONS) == set(GroupState)
    assert set(REJOINS) == set(GroupState) - {DEAD}
    assert set(TABLE["join_same"]) == set(GroupState)


class TestJoin:
    def test_a_group_of_one(self) -> None:
        room = Room()
        joined = room.join("a")
        assert joined == ev.JoinResult(
            NONE, "a", 1, "consumer", "range", "a", False, (ev.JoinedMember("a", None, RANGE[0][1]),)
        )
        assert room.sync("sync", "a", a=b"mine") == ev.SyncResult(NONE, "consumer", "range", b"mine")
        assert room.group.state is STABLE
        assert room.group.topics == {"t"}

    def test_initial_delay_gathers_members_and_is_extended_up_to_the_rebalance_timeout(self) -> None:
        room = Room(GroupSettings(initial_rebalance_delay_ms=1000))
        room.join("a", rebalance_ms=2500)
        room.advance(900)
        room.join("b", rebalance_ms=2500)
        room.advance(200)  # the first delay is over; b came, so it goes on
        assert "a" not in room.answers
        room.advance(800)
        assert "a" not in room.answers
        room.join("c", rebalance_ms=2500)
        room.advance(2000)
        assert {room.answers[name].generation_id for name in "abc"} == {1}
        assert [m.member_id for m in room.answers["a"].members] == ["a", "b", "c"]
        assert room.answers["b"].members == ()

    def test_member_id_required_then_joins_under_that_name(self) -> None:
        room = Room()
        assert room.join("j1", version=4, new_id="named").error == ErrorCode.MEMBER_ID_REQUIRED
        assert room.group.members.pending_join == {"named"}
        assert room.join("j2", "named", version=4).generation_id == 1

    def test_a_named_member_that_never_joins_is_forgotten(self) -> None:
        room = Room()
        room.join("j1", version=4, new_id="named", session_ms=6000)
        room.advance(6001)
        assert room.group.members.pending_join == set()
        assert room.join("j2", "named", version=4).error == UNKNOWN

    def test_a_pending_member_holds_up_the_join_phase_until_its_session_ends(self) -> None:
        room = stable()
        room.join("j1", version=4, new_id="c", session_ms=6000)
        room.join("rejoin-a", "a")
        room.join("rejoin-b", "b")
        assert room.group.state is PREPARING
        room.advance(6001)
        assert room.answers["rejoin-a"].generation_id == 2

    def test_a_pending_member_is_never_static(self) -> None:
        room = Room()
        room.join("j1", version=4, new_id="named")
        assert room.join("j2", "named", instance_id="i").error == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_the_protocol_is_voted_for_among_those_all_speak(self) -> None:
        room = Room(GroupSettings(initial_rebalance_delay_ms=10))
        room.join("a", protocols=(("x", b""), ("y", b"ya"), ("z", b"")))
        room.join("b", protocols=(("z", b""), ("y", b"yb")))
        room.join("c", protocols=(("y", b"yc"), ("z", b"")))
        room.advance(100)
        assert room.answers["a"].protocol_name == "y"
        assert [m.metadata for m in room.answers["a"].members] == [b"ya", b"yb", b"yc"]

    @pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
    def test_no_protocol_is_no_way_in(self, protocol_type: str, protocols: ev.Protocols) -> None:
        room = Room()
        answer = room.join("a", protocol_type=protocol_type, protocols=protocols)
        assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_max_size_counts_members(self) -> None:
        room = Room(GroupSettings(initial_rebalance_delay_ms=0, max_size=2)).make_stable("a", "b")
        assert room.join("c").error == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert room.join("again", "b").error == NONE

    def test_max_size_counts_those_who_joined_while_gathering_and_drops_the_last(self) -> None:
        room = Room().make_stable("a", "b", "c")
        room.settings = GroupSettings(initial_rebalance_delay_ms=0, max_size=2)
        room.join("ra", "a")
        room.join("rb", "b")
        assert room.join("rc", "c").error == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert "c" not in room.group.members

    def test_a_leader_that_joins_again_forces_a_rebalance(self) -> None:
        room = stable()
        assert room.join("again", "a") is None
        assert room.group.state is PREPARING
        assert room.heartbeat("b") == REBALANCING
        room.join("rejoin-b", "b")
        assert room.answers["again"].generation_id == 2

    def test_a_follower_that_missed_its_answer_gets_it_again(self) -> None:
        room = completing()
        again = room.join("again", "b")
        assert (again.error, again.generation_id, again.members) == (NONE, 2, ())
        assert len(room.join("again-a", "a").members) == 2

    def test_a_superseded_join_is_answered(self) -> None:
        room = preparing()
        room.join("again", "b", protocols=ROUND_ROBIN_TOO)
        assert room.answers["rejoin-b"].error == REBALANCING
        room.join("ra", "a")
        assert room.answers["again"].generation_id == 2
        assert max(room.answer_counts.values()) == 1

    def test_those_who_do_not_rejoin_in_time_are_dropped(self) -> None:
        room = preparing()
        room.heartbeat("a")
        for _ in range(7):
            room.advance(5000)
            if "a" in room.group.members:
                room.heartbeat("a", 1)
        assert room.answers["rejoin-b"].generation_id == 2
        assert room.answers["rejoin-b"].leader == "b"
        assert list(room.group.members.by_id) == ["b"]

    def test_a_group_that_nobody_rejoins_becomes_empty(self) -> None:
        room = stable()
        room.advance(10_001)
        assert room.group.state is EMPTY
        assert room.group.generation_id == 2
        assert room.group.topics == set()
        assert room.persisted[-1].assignments == {}


class TestSync:
    def test_members_without_an_assignment_get_an_empty_one(self) -> None:
        room = completing()
        room.sync("sb", "b")
        room.sync("sa", "a", a=b"all")
        assert room.answers["sb"].assignment == b""
        assert room.persisted[-1].assignments == {"a": b"all", "b": b""}

    def test_nobody_is_answered_before_the_assignment_is_stored(self) -> None:
        room = completing()
        room.stores = False
        room.sync("sb", "b")
        room.sync("sa", "a", a=b"1", b=b"2")
        assert "sa" not in room.answers
        assert room.group.state is COMPLETING
        room.store()
        assert (room.answers["sa"].assignment, room.answers["sb"].assignment) == (b"1", b"2")
        assert room.group.state is STABLE

    def test_a_failed_write_is_told_and_rebalances(self) -> None:
        room = completing()
        room.stores = False
        room.sync("sa", "a", a=b"1")
        room.store(UNAVAILABLE)
        assert room.answers["sa"].error == UNAVAILABLE
        assert room.group.state is PREPARING

    def test_an_assignment_stored_too_late_is_ignored(self) -> None:
        room = completing()
        room.stores = False
        room.sync("sa", "a", a=b"1")
        room.join("c")
        assert room.answers["sa"].error == REBALANCING
        room.store()
        assert room.group.state is PREPARING
        assert room.answer_counts["sa"] == 1

    @pytest.mark.parametrize(
        ("member_id", "generation", "protocol", "error"),
        [
            ("zombie", 2, None, UNKNOWN),
            ("b", 1, None, ErrorCode.ILLEGAL_GENERATION),
            ("b", 2, "roundrobin", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ],
    )
    def test_refusals(self, member_id: str, generation: int, protocol: str | None, error: ErrorCode) -> None:
        room = completing()
        assert room.sync("s", member_id, generation, protocol_name=protocol).error == error

    def test_a_superseded_sync_is_answered(self) -> None:
        room = completing()
        room.sync("first", "b")
        room.sync("second", "b")
        assert room.answers["first"].error == REBALANCING
        room.sync("sa", "a", b=b"x")
        assert room.answers["second"].assignment == b"x"

    def test_members_that_do_not_sync_in_time_are_dropped(self) -> None:
        room = completing()
        room.sync("sa", "a", a=b"1")
        assert room.group.state is STABLE  # b is still expected
        for _ in range(7):
            room.advance(5000)
            room.heartbeat("a")
            if "b" in room.group.members:
                room.heartbeat("b")
        assert "b" not in room.group.members
        assert room.group.state is PREPARING


class TestLeave:
    def test_the_last_one_leaves_an_empty_group_and_is_answered_when_that_is_stored(self) -> None:
        room = Room().make_stable("a")
        room.stores = False
        assert room.leave(LeavingMember("a")) is None
        assert room.group.state is EMPTY
        room.store()
        assert room.answers["leave"].error == NONE

    def test_a_leave_that_cannot_be_stored_says_so(self) -> None:
        room = Room().make_stable("a")
        room.stores = False
        room.leave(LeavingMember("a"))
        room.store(ErrorCode.NOT_COORDINATOR)
        assert room.answers["leave"] == ev.LeaveResult(ErrorCode.NOT_COORDINATOR)

    def test_many_with_an_error_each(self) -> None:
        room = Room().make_stable("a", "b")
        room.join("s", instance_id="i", new_id="s-1")
        room.join("p", version=4, new_id="pending")
        result = room.leave(
            LeavingMember("nobody"), LeavingMember("", "i"), LeavingMember("", "j"), LeavingMember("pending"),
            LeavingMember("a", "i"), LeavingMember("b"),
        )  # fmt: skip
        assert result is not None
        assert [member.error for member in result.members] == [UNKNOWN, NONE, UNKNOWN, NONE, UNKNOWN, NONE]
        assert room.answers["s"].error == UNKNOWN  # its parked join
        assert list(room.group.members.by_id) == ["a"]

    def test_a_member_that_is_waited_for_leaves(self) -> None:
        room = preparing()
        room.leave(LeavingMember("a"))
        assert room.answers["rejoin-b"].leader == "b"


class TestSessions:
    def test_a_heartbeat_keeps_a_member(self) -> None:
        room = stable()
        for _ in range(5):
            room.advance(9000)
            assert room.heartbeat("a") == NONE
            assert room.commit("b", 1) == NONE  # so does a commit
        assert room.group.state is STABLE

    def test_a_silent_member_is_dropped(self) -> None:
        room = stable()
        room.advance(9000)
        room.heartbeat("a")
        room.advance(2000)
        assert "b" not in room.group.members
        assert room.heartbeat("a") == REBALANCING
        assert room.heartbeat("b") == UNKNOWN

    def test_a_parked_member_is_not_dropped(self) -> None:
        room = stable()
        room.join("again", "b", protocols=ROUND_ROBIN_TOO, rebalance_ms=60_000)
        for _ in range(5):
            room.advance(9000)
            room.heartbeat("a")
        assert "b" in room.group.members

    def test_a_new_member_whose_join_is_parked_too_long_is_dropped(self) -> None:
        room = Room(GroupSettings(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=5000)).make_stable("a", "b")
        room.settings = GroupSettings(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=5000)
        room.join("c")
        room.advance(5001)
        assert room.answers["c"].error == UNKNOWN


class TestStaticMembers:
    def stable(self) -> Room:
        room = Room(GroupSettings(initial_rebalance_delay_ms=10))
        room.join("s", instance_id="i", new_id="s-1")
        room.join("a")
        room.advance(100)
        room.sync("sync-a", "a")
        room.sync("sync-s", "s-1", **{"s-1": b"S", "a": b"A"})
        assert room.group.state is STABLE
        return room

    def test_comes_back_without_a_rebalance(self) -> None:
        room = self.stable()
        back = room.join("back", instance_id="i", new_id="s-2", version=9)
        assert (back.error, back.generation_id, back.member_id) == (NONE, 1, "s-2")
        assert (back.leader, back.skip_assignment, len(back.members)) == ("s-2", True, 2)
        assert room.group.state is STABLE
        assert room.sync("sync-back", "s-2", instance_id="i").assignment == b"S"
        assert room.persisted[-1].assignments == {"s-2": b"S", "a": b"A"}

    def test_before_v9_a_leader_that_comes_back_is_not_told_that_it_leads(self) -> None:
        room = self.stable()
        back = room.join("back", instance_id="i", new_id="s-2", version=8)
        assert (back.leader, back.skip_assignment, back.members) == ("s-1", False, ())

    def test_the_old_one_is_fenced(self) -> None:
        room = self.stable()
        room.join("back", instance_id="i", new_id="s-2")
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert room.heartbeat("s-1", instance_id="i") == fenced
        assert room.heartbeat("s-1") == UNKNOWN
        assert room.commit("s-1", 1, "i") == fenced
        assert room.sync("z", "s-1", instance_id="i").error == fenced
        assert room.join("z2", "s-1", instance_id="i").error == fenced
        left = room.leave(LeavingMember("s-1", "i"))
        assert left is not None
        assert left.members[0].error == fenced

    def test_returns_twice_before_the_first_return_is_stored(self) -> None:
        room = self.stable()
        room.stores = False
        assert room.join("back1", instance_id="i", new_id="s-2", version=9) is None
        assert room.join("back2", instance_id="i", new_id="s-3", version=9) is None
        assert room.answers["back1"].error == ErrorCode.FENCED_INSTANCE_ID
        room.store()
        assert room.answers["back2"].member_id == "s-3"
        assert room.heartbeat("s-2", instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
        assert room.heartbeat("s-3", instance_id="i") == NONE
        assert max(room.answer_counts[tag] for tag in ("back1", "back2")) == 1

    def test_a_return_that_cannot_be_stored_is_undone(self) -> None:
        room = self.stable()
        room.stores = False
        room.join("back", instance_id="i", new_id="s-2", version=9, session_ms=20_000)
        room.store(UNAVAILABLE)
        assert room.answers["back"].error == UNAVAILABLE
        assert room.heartbeat("s-1", instance_id="i") == NONE
        assert room.group.members.by_id["s-1"].session_timeout_ms == 10_000
        assert room.group.members.leader_id == "s-1"

    def test_a_return_that_changes_the_protocol_rebalances(self) -> None:
        room = Room().make_stable("a", protocols=(("range", b""), ("x", b"")))
        room.join("s", instance_id="i", new_id="s-1", protocols=(("range", b""), ("x", b"")))
        room.join("ra", "a", protocols=(("range", b""), ("x", b"")))
        room.sync("ss", "s-1")
        room.sync("sa", "a")
        assert room.group.state is STABLE
        room.join("back", instance_id="i", new_id="s-2", protocols=(("x", b""),))
        assert room.group.state is PREPARING

    def test_a_return_while_the_assignment_is_awaited_rebalances(self) -> None:
        room = self.stable()
        room.join("ra", "a", protocols=ROUND_ROBIN_TOO)
        room.join("rs", "s-1", instance_id="i")
        assert room.group.state is COMPLETING
        room.sync("parked", "a")
        room.join("back", instance_id="i", new_id="s-2")
        assert room.answers["parked"].error == REBALANCING
        assert room.group.state is PREPARING

    def test_a_return_during_the_join_phase_counts_as_joined(self) -> None:
        room = self.stable()
        room.join("ra", "a", protocols=ROUND_ROBIN_TOO)
        room.join("back", instance_id="i", new_id="s-2")
        assert room.answers["ra"].generation_id == 2
        assert room.answers["back"].member_id == "s-2"

    def test_stays_through_a_rebalance_it_misses_until_its_session_ends(self) -> None:
        room = self.stable()
        room.heartbeat("s-1", instance_id="i")
        room.join("ra", "a", protocols=ROUND_ROBIN_TOO, rebalance_ms=1000)
        room.group.members.by_id["s-1"].rebalance_timeout_ms = 1000
        room.timers[ev.JOIN_TIMER] = (room.now_ms + 1000, ev.JoinExpired())
        room.advance(1001)
        assert room.answers["ra"].generation_id == 2
        assert "s-1" in room.group.members
        assert room.answers["ra"].leader == "a"

    def test_a_join_phase_waits_on_when_only_absent_static_members_are_left(self) -> None:
        room = Room().make_stable("a")
        room.join("s", instance_id="i", new_id="s-1", session_ms=300_000)
        room.join("ra", "a")
        room.sync("sync-s", "s-1")
        room.sync("sync-a", "a")
        room.leave(LeavingMember("a"))
        room.advance(30_001)
        assert room.group.state is PREPARING
        room.join("back", instance_id="i", new_id="s-2")
        assert room.answers["back"].generation_id == 3


class TestStories:
    def test_zombie_member(self) -> None:
        """A member that was away for longer than its session finds itself fenced by member id and generation."""
        room = stable()
        room.advance(9000)
        room.heartbeat("a")
        room.advance(2000)  # b is gone
        room.join("ra", "a")
        room.sync("sa", "a", a=b"everything")
        assert room.heartbeat("b", 1) == UNKNOWN
        assert room.commit("b", 1) == UNKNOWN
        assert room.sync("zombie", "b", 1).error == UNKNOWN
        assert room.join("zombie-join", "b").error == UNKNOWN
        assert room.join("fresh") is None  # as a new member it is welcome
        room.join("ra2", "a")
        assert room.answers["fresh"].generation_id == 3

    def test_leader_dies_in_completing_rebalance(self) -> None:
        room = completing()
        room.sync("sb", "b")
        room.advance(10_001)  # a's session ends, b's does not since it is parked
        assert room.answers["sb"].error == REBALANCING
        assert "a" not in room.group.members
        again = room.join("rb", "b")
        assert (again.leader, again.generation_id) == ("b", 3)
        assert room.sync("sb2", "b", b=b"all").assignment == b"all"

    def test_commit_from_an_old_generation(self) -> None:
        room = stable()
        room.join("ra", "a")
        assert room.commit("b", 1) == NONE  # the last chance before it rejoins
        room.join("rb", "b")
        assert room.commit("b", 2) == REBALANCING
        room.sync("sb", "b")
        room.sync("sa", "a")
        assert room.commit("b", 1) == ErrorCode.ILLEGAL_GENERATION
        assert room.commit("b", 2) == NONE

    def test_coordinator_moves_in_mid_join(self) -> None:
        room = preparing()
        room.step(ev.Unload())
        assert room.answers["rejoin-b"] == ev.JoinResult(ErrorCode.NOT_COORDINATOR, "b")

    def test_coordinator_moves_in_mid_sync(self) -> None:
        room = completing()
        room.sync("sb", "b")
        room.step(ev.Unload())
        assert room.answers["sb"].error == ErrorCode.NOT_COORDINATOR

    def test_cooperative_two_step(self) -> None:
        """Revoke in the first generation, hand over in the second: the members join twice in a row."""
        room = Room().make_stable("a")
        room.join("b")
        assert room.heartbeat("a") == REBALANCING
        room.join("ra", "a", protocols=RANGE)
        room.sync("sb", "b")
        room.sync("sa", "a", a=b"half", b=b"")
        assert room.join("ra2", "a") is None  # the leader asks for the second step at once
        assert room.heartbeat("b") == REBALANCING
        room.join("rb2", "b")
        room.sync("sa2", "a", a=b"half", b=b"other half")
        assert room.sync("sb2", "b").assignment == b"other half"
        assert room.group.generation_id == 3

    def test_an_over_capacity_group_is_rebalanced_when_loaded(self) -> None:
        room = stable()
        room.settings = GroupSettings(initial_rebalance_delay_ms=0, max_size=1)
        room.step(ev.Loaded())
        assert room.group.state is PREPARING
