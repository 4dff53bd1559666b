"""ControllerNodes: the first push of another controller says where requests go."""

from __future__ import annotations

from barnabas.broker.channels.controller_nodes import Address, ControllerNodes
from barnabas.protocol.metadata_records import ControllerEndpoint, RegisterControllerRecord
from tests.support.broker.broker_rig import PUSH_OFFSET, BrokerRig


def record(controller_id: int, *endpoints: tuple[str, str, int]) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller_id,
        end_points=[ControllerEndpoint(name=name, host=host, port=port) for name, host, port in endpoints],
    )


def make(voters: dict[int, Address], *names: str) -> tuple[ControllerNodes, list[Address]]:
    nodes, followed = ControllerNodes(voters, names), []
    nodes.followers.append(followed.append)
    return nodes, followed


def test_each_new_sender_is_followed_once() -> None:
    nodes, followed = make({100: ("a", 1), 101: ("b", 2)}, "CONTROLLER")
    for controller_id in (100, 100, 101, 101, 100):
        nodes.pushed(controller_id)
    assert followed == [("a", 1), ("b", 2), ("a", 1)]
    assert nodes.active_id == 100


def test_pushes_bring_the_addresses() -> None:
    nodes, followed = make({}, "Second", "FIRST")
    nodes.pushed(7, [record(8, ("other", "x", 1), ("first", "b", 2)), record(7, ("FIRST", "c", 3), ("SECOND", "d", 4))])
    nodes.pushed(8)
    nodes.pushed(9)
    nodes.pushed(10, [record(10, ("other", "x", 1))])
    assert followed == [("d", 4), ("b", 2)]
    assert nodes.active_id == 10


def test_a_single_controller_is_not_followed() -> None:
    nodes, followed = make({}, "CONTROLLER")
    nodes.pushed(100, [record(100, ("CONTROLLER", "unreachable", 1))])
    nodes.pushed(100, [record(101, ("CONTROLLER", "b", 2))])
    assert (nodes.active_id, followed) == (100, [])
    nodes.pushed(101)
    assert (nodes.active_id, followed) == (101, [("b", 2)])


def test_a_push_that_is_obeyed_names_the_active_controller() -> None:
    rig = BrokerRig()
    nodes = rig.services.controllers
    followed: list[Address] = []
    nodes.followers.append(followed.append)
    registrations = [record(100, ("CONTROLLER", "c", 3)), record(101, ("CONTROLLER", "d", 3))]
    push = rig.update_metadata({}, registrations=registrations)
    late = rig.update_metadata({}, registrations=[record(100, ("CONTROLLER", "late", 3))], offset=PUSH_OFFSET - 1)
    rig.answer(push, 8)
    rig.answer(late, 8)
    assert (nodes.active_id, followed) == (100, [("c", 3)])
