"""FindCoordinator, DescribeGroups, ListGroups, DeleteGroups on the wire, at every version.

Tests `apis/k10_find_coordinator.py`, `apis/k15_describe_groups.py`, `apis/k16_list_groups.py` and
`apis/k42_delete_groups.py`.
"""

from __future__ import annotations

import pytest

from barnabas.broker.apis import k10_find_coordinator, k15_describe_groups, k16_list_groups, k42_delete_groups
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k14_sync_group import SyncGroupRequestAssignment
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from barnabas.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from tests.broker.apis.group_rig import CONSUMER, Rig, SimpleSnapshot
from tests.broker.apis.test_group_membership_apis import join, joined, sync
from tests.broker.apis.test_offset_apis import commit

READ_DELETE_DESCRIBE_AND_CONFIGS = 0b1101_0100_1000


class TestFindCoordinator:
    @pytest.mark.parametrize("version", range(4))
    def test_one_key(self, version: int) -> None:
        answer = Rig().ask(k10_find_coordinator, FindCoordinatorRequest(key="g"), version)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 0, "broker0", 9092)

    @pytest.mark.parametrize("version", range(4, 7))
    def test_many_keys(self, version: int) -> None:
        answer = Rig().ask(k10_find_coordinator, FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
        rows = [(c.key, c.error_code, c.host) for c in answer.coordinators]
        assert rows == [("g", 0, "broker0"), ("h", 0, "broker0")]

    def test_the_address_of_the_listener_asked_on(self) -> None:
        answer = Rig().ask(k10_find_coordinator, FindCoordinatorRequest(key="g"), 3, "OTHER")
        assert (answer.host, answer.port) == ("other0", 9093)
        answer = Rig().ask(k10_find_coordinator, FindCoordinatorRequest(key="g"), 3, "THIRD")
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    @pytest.mark.parametrize("version", range(7))
    def test_the_topic_is_created_when_first_asked_for(self, version: int) -> None:
        rig = Rig()
        rig.world.cache.snapshot = SimpleSnapshot.with_broker({}, {"t": 1})
        message = FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest(key="g")
        answer = rig.ask(k10_find_coordinator, message, version)
        row = answer.coordinators[0] if version >= 4 else answer
        assert (row.error_code, row.node_id, row.host, row.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
        assert rig.creation.internal == ["__consumer_offsets"]

    @pytest.mark.parametrize("key_type", [2, 9])
    def test_other_coordinators_are_not_pretended(self, key_type: int) -> None:
        answer = Rig().ask(k10_find_coordinator, FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type))
        assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
        old = Rig().ask(k10_find_coordinator, FindCoordinatorRequest(key="x", key_type=key_type), 2)
        assert old.error_code == ErrorCode.INVALID_REQUEST
        assert old.error_message


class TestDescribe:
    @pytest.mark.parametrize("version", range(7))
    def test_a_stable_group(self, version: int) -> None:
        rig = Rig()
        member_id = joined(rig).member_id
        sync(rig, member_id, 1, assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"x")])
        (group,) = rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"]), version).groups
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "/10.0.0.9")
        assert (member.member_metadata, member.member_assignment) == (CONSUMER, b"x")

    def test_an_unstable_group_keeps_its_subscriptions_to_itself(self) -> None:
        rig = Rig()
        joined(rig)
        (group,) = rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"])).groups
        assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
        assert group.members[0].member_metadata == b""

    def test_one_that_is_named_often_is_described_once(self) -> None:
        rig = Rig()
        joined(rig)
        answer = rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g", "h", "g", "g"]))
        assert [group.group_id for group in answer.groups] == ["g", "h"]

    def test_instance_ids(self) -> None:
        rig = Rig()
        join(rig, group_instance_id="i")
        (group,) = rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"])).groups
        assert group.members[0].group_instance_id == "i"
        rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"]), 3)

    @pytest.mark.parametrize(("version", "error"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
    def test_no_group(self, version: int, error: int) -> None:
        (group,) = Rig().ask(k15_describe_groups, DescribeGroupsRequest(groups=["x"]), version).groups
        assert (group.error_code, group.group_state) == (error, "Dead")

    def test_a_group_elsewhere(self) -> None:
        rig = Rig()
        for partition in (0, 1):
            rig.world.coordinator.on_resignation(rig.world.tp(partition), None)
        (group,) = rig.ask(k15_describe_groups, DescribeGroupsRequest(groups=["g"])).groups
        assert (group.error_code, group.group_state) == (ErrorCode.NOT_COORDINATOR, "")

    @pytest.mark.parametrize(("asks", "expected"), [(True, READ_DELETE_DESCRIBE_AND_CONFIGS), (False, -(2**31))])
    def test_authorized_operations(self, asks: bool, expected: int) -> None:
        rig = Rig()
        joined(rig)
        message = DescribeGroupsRequest(groups=["g"], include_authorized_operations=asks)
        assert rig.ask(k15_describe_groups, message, 3).groups[0].authorized_operations == expected


class TestList:
    @pytest.mark.parametrize("version", range(6))
    def test_every_version(self, version: int) -> None:
        rig = Rig()
        joined(rig)
        (group,) = rig.ask(k16_list_groups, ListGroupsRequest(), version).groups
        assert (group.group_id, group.protocol_type) == ("g", "consumer")
        assert group.group_state == ("CompletingRebalance" if version >= 4 else "")
        assert group.group_type == ("classic" if version >= 5 else "")

    def test_filters(self) -> None:
        rig = Rig()
        commit(rig)
        for states, types, count in (
            (["empty"], [], 1), (["Stable"], [], 0), ([], ["Classic"], 1), ([], ["consumer"], 0), ([], ["what"], 0),
        ):  # fmt: skip
            message = ListGroupsRequest(states_filter=states, types_filter=types)
            assert len(rig.ask(k16_list_groups, message).groups) == count


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(version: int) -> None:
    rig = Rig()
    joined(rig)
    message = DeleteGroupsRequest(groups_names=["g", "nobody", "g"])
    answer = rig.ask(k42_delete_groups, message, version)
    assert [(r.group_id, r.error_code) for r in answer.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP), ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]  # fmt: skip
    rig.world.advance_ms(10_001)
    answer = rig.ask(k42_delete_groups, DeleteGroupsRequest(groups_names=["g"]), version)
    assert answer.results[0].error_code == 0
