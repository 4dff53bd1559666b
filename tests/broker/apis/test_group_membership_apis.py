"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup on the wire, at every version.

Tests `apis/k11_join_group.py`, `apis/k12_heartbeat.py`, `apis/k13_leave_group.py` and `apis/k14_sync_group.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis import k11_join_group, k12_heartbeat, k13_leave_group, k14_sync_group
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.apis.group_rig import CONSUMER, Pending, Rig

JOIN_VERSIONS = range(10)


def join(rig: Rig, version: int = 9, member_id: str = "", **fields: Any) -> Pending:
    message = JoinGroupRequest(
        group_id=fields.pop("group_id", "g"), member_id=member_id, session_timeout_ms=10_000, protocol_type="consumer",
        protocols=fields.pop("protocols", [JoinGroupRequestProtocol(name="range", metadata=CONSUMER)]), **fields,
    )  # fmt: skip
    if version >= 1:
        message.rebalance_timeout_ms = 30_000
    return rig.send(k11_join_group, message, version)


def joined(rig: Rig, version: int = 9) -> Any:
    """Join as a client of this version does: twice if it must be named first."""
    answer = join(rig, version).get()
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = join(rig, version, answer.member_id).get()
    assert answer.error_code == 0
    return answer


def sync(rig: Rig, member_id: str, generation_id: int, version: int = 5, **fields: Any) -> Any:
    if version >= 5:
        fields = {"protocol_type": "consumer", "protocol_name": "range", **fields}
    return rig.ask(
        k14_sync_group,
        SyncGroupRequest(group_id="g", member_id=member_id, generation_id=generation_id, **fields),
        version,
    )


class TestJoin:
    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_a_group_of_one_at_every_version(self, version: int) -> None:
        rig = Rig()
        first = join(rig, version).get()
        if version >= 4:
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert first.protocol_name == (None if version >= 7 else "")
            assert first.generation_id == -1
            first = join(rig, version, first.member_id).get()
        assert first.error_code == 0
        assert first.member_id.startswith("client-")
        assert first.leader == first.member_id
        assert (first.generation_id, first.protocol_name) == (1, "range")
        assert [(m.member_id, m.metadata) for m in first.members] == [(first.member_id, CONSUMER)]
        assert first.protocol_type == ("consumer" if version >= 7 else None)

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_an_error_at_every_version(self, version: int) -> None:
        answer = join(Rig(), version, group_id="").get()
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID
        assert answer.protocol_name == (None if version >= 7 else "")
        assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])

    def test_v0_rebalances_within_its_session_timeout(self) -> None:
        rig = Rig()
        member_id = joined(rig, 0).member_id
        _, timeout_ms = rig.world.coordinator.describe(
            "g", lambda group: group.members.by_id[member_id].rebalance_timeout_ms
        )
        assert timeout_ms == 10_000

    def test_a_member_id_fits_its_record_however_long_the_instance_id_is(self) -> None:
        answer = join(Rig(), 5, group_instance_id="i" * 32_767).get()
        assert answer.error_code == 0
        assert len(answer.member_id.encode()) < 5000

    def test_a_static_member_is_named_after_its_instance(self) -> None:
        answer = join(Rig(), 5, group_instance_id="i").get()
        assert answer.member_id.startswith("i-")
        assert answer.members[0].group_instance_id == "i"

    @pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
    def test_a_static_leader_that_comes_back(self, version: int, skips: bool) -> None:
        rig = Rig()
        first = join(rig, version, group_instance_id="i").get()
        assignment = SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"x")
        sync(rig, first.member_id, 1, assignments=[assignment])
        back = join(rig, version, group_instance_id="i").get()
        assert back.member_id != first.member_id
        assert back.skip_assignment is skips
        assert back.leader == (back.member_id if skips else first.member_id)
        assert sync(rig, back.member_id, 1).assignment == b"x"

    def test_a_join_waits(self) -> None:
        rig = Rig(group_initial_rebalance_delay_ms=3000)
        waiting = join(rig, 3)
        assert not waiting.is_there
        rig.world.advance_ms(3001)
        assert waiting.get().generation_id == 1

    def test_a_long_reason_is_cut(self) -> None:
        answer = join(Rig(), 8, reason="x" * 3000).get()
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED

    @pytest.mark.parametrize(("address", "shown"), [("10.0.0.9", "/10.0.0.9"), ("::1", "/0:0:0:0:0:0:0:1")])
    def test_members_are_described_by_host_as_java_prints_it(self, address: str, shown: str) -> None:
        rig = Rig()
        rig.client_address = address
        member_id = joined(rig).member_id
        _, host = rig.world.coordinator.describe("g", lambda group: group.members.by_id[member_id].client_host)
        assert host == shown


class TestSync:
    @pytest.mark.parametrize("version", range(6))
    def test_every_version(self, version: int) -> None:
        rig = Rig()
        member_id = joined(rig).member_id
        assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")]
        answer = sync(rig, member_id, 1, version, assignments=assignments)
        assert (answer.error_code, answer.assignment) == (0, b"mine")
        names = ("consumer", "range") if version >= 5 else (None, None)
        assert (answer.protocol_type, answer.protocol_name) == names

    @pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
    def test_v5_must_name_the_protocol(self, missing: str) -> None:
        rig = Rig()
        member_id = joined(rig).member_id
        answer = sync(rig, member_id, 1, **{missing: None})
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    @pytest.mark.parametrize("version", range(6))
    def test_an_error_at_every_version(self, version: int) -> None:
        answer = sync(Rig(), "ghost", 1, version)
        assert (answer.error_code, answer.assignment) == (ErrorCode.UNKNOWN_MEMBER_ID, b"")


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_at_every_version(version: int) -> None:
    rig = Rig()
    member_id = joined(rig).member_id
    for generation_id, error in ((1, 0), (2, ErrorCode.ILLEGAL_GENERATION)):
        message = HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation_id)
        assert rig.ask(k12_heartbeat, message, version).error_code == error


class TestLeave:
    @pytest.mark.parametrize("version", range(3))
    def test_one_member(self, version: int) -> None:
        rig = Rig()
        member_id = joined(rig).member_id
        message = LeaveGroupRequest(group_id="g", member_id=member_id)
        assert rig.ask(k13_leave_group, message, version).error_code == 0
        assert rig.ask(k13_leave_group, message, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("version", range(3, 6))
    def test_many_members(self, version: int) -> None:
        rig = Rig()
        member_id = joined(rig).member_id
        members = [MemberIdentity(member_id=member_id), MemberIdentity(member_id="", group_instance_id="i")]
        answer = rig.ask(k13_leave_group, LeaveGroupRequest(group_id="g", members=members), version)
        assert answer.error_code == 0
        assert [(m.member_id, m.group_instance_id, m.error_code) for m in answer.members] == [
            (member_id, None, 0), ("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ]  # fmt: skip

    def test_an_error_of_the_group_stands_alone(self) -> None:
        message = LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="x")])
        answer = Rig().ask(k13_leave_group, message)
        assert (answer.error_code, answer.members) == (ErrorCode.INVALID_GROUP_ID, [])
