"""ControllerView: a controller's /live.json, with its threads and sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.clock.hand import ClockHand
from barnabas.client.connection import NodeConnection
from barnabas.common.clock import SystemClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.controller.decision import Decision
from barnabas.controller.event_loop import Event
from barnabas.controller.live import ControllerView, quorum_view
from barnabas.controller.main import ControllerServer
from barnabas.controller.raft.client.status import Entry, Member, RaftStatus
from barnabas.controller.raft.quorum import Transition
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.messages.k19_create_topics import CreateTopicsRequest
from tests.controller.rig import CLUSTER_ID, make_config, registration, topic
from tests.support.waiting import eventually


@pytest.fixture
def server() -> Iterator[ControllerServer]:
    config = make_config(barnabas_metrics_port="-1", barnabas_live_peers="controller-100=h:2,broker-0=h:1")
    made = ControllerServer(config, SystemClock(), MemoryFileSystem(), CLUSTER_ID)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def view(server: ControllerServer) -> ControllerView:
    return server.view


@pytest.fixture
def connection(server: ControllerServer) -> Iterator[NodeConnection]:
    with NodeConnection("127.0.0.1", server.port, timeout_ms=60_000) as opened:
        yield opened


def test_the_node_section(view: ControllerView) -> None:
    node = view.look({})["node"]
    assert (node["id"], node["role"], node["state"], node["cluster_id"]) == (100, "controller", "serving", CLUSTER_ID)
    assert [(peer["address"], peer["is_self"]) for peer in node["peers"]] == [("h:1", False), ("h:2", True)]


def test_a_clock_that_was_moved(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    config = make_config(barnabas_metrics_port="0", barnabas_clock_enable="true", barnabas_clock_file=str(file))
    clock = SystemClock()
    hand = ClockHand(config, clock)
    server = ControllerServer(config, clock, MemoryFileSystem(), CLUSTER_ID, hand=hand)
    try:
        assert server.view.look({})["clock_offset_ms"] == 0
        file.write_text("604800000\n")  # others are moved while it starts
        server.start()
        live = server.view.look({})
        assert (live["clock_offset_ms"], abs(live["at_ms"] - clock.wall_ms()) < 60_000) == (604_800_000, True)
    finally:
        server.stop()


def test_a_registered_broker_and_its_pending_push(view: ControllerView, connection: NodeConnection) -> None:
    assert view.look({})["brokers"] == []
    epoch = connection.send(registration(0), 4).broker_epoch
    (broker,) = view.look({})["brokers"]
    assert (broker["id"], broker["epoch"], broker["state"]) == (0, epoch, "fenced")
    assert broker["address"].count(":") == 1
    (broker,) = eventually("the push fails", lambda: [b for b in view.look({})["brokers"] if b["push_failures"]])
    assert broker["push_queue"] > 0
    assert broker["push_age_ms"] > 0
    assert broker["metadata_lag"] > 0
    assert (broker["leads"], broker["replicas"]) == (0, 0)


def test_a_single_controller_is_its_own_quorum(view: ControllerView) -> None:
    quorum = view.look({})["quorum"]
    assert (quorum["role"], quorum["leader"], quorum["changes"]) == ("leader", 100, [])
    ((member),) = quorum["members"]
    assert (member["id"], member["role"], member["behind"], member["vote"]) == (100, "leader", 0, None)


def test_the_quorum_has_votes_lag_and_reasons() -> None:
    one, two, three = (ReplicaKey(100 + n) for n in range(3))
    members = (Member(one, "a:1", 9, 0, 0), Member(two, "b:1", 4, 20, -1), Member(three))
    leader = RaftStatus(one, "leader", 7, 100, one, 8, 9, 7, 1, members, (Member(ReplicaKey(103), "", 1, 5, 5),))
    entries = [Entry(n, Transition("follower", n, None, f"reason {n}")) for n in range(3)]
    shown = quorum_view(leader, entries, 2)
    assert [(m["id"], m["role"], m["behind"]) for m in shown["members"]] == [
        (100, "leader", 0),
        (101, "voter", 5),
        (102, "voter", -1),
        (103, "observer", 8),
    ]
    assert [change["reason"] for change in shown["changes"]] == ["reason 2", "reason 1"]
    candidate = leader._replace(role="candidate", leader_id=None, granted=(100,), rejected=(101,), observers=())
    shown = quorum_view(candidate, entries, 50)
    assert [(m["role"], m["behind"], m["vote"]) for m in shown["members"]] == [
        ("voter", -1, "granted"),
        ("voter", -1, "rejected"),
        ("voter", -1, None),
    ]


def test_events_wait_behind_the_one_that_is_decided(server: ControllerServer, view: ControllerView) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def decide() -> Decision[None]:
        begun.set()
        assert go_on.wait(20)
        return Decision([], None)

    loop = server.controller.loop
    loop.submit(Event("slow", decide, lambda _: None, lambda _: None))
    assert begun.wait(20)
    loop.submit(Event("next", lambda: Decision([], None), lambda _: done.set(), lambda _: None))
    events = view.look({})["events"]
    assert (events["deciding"], events["total"], [event["name"] for event in events["items"]]) == ("slow", 1, ["next"])
    assert events["items"][0]["age_ms"] > 0
    go_on.set()
    assert done.wait(20)
    assert view.look({})["events"]["total"] == 0
    eventually("it sleeps", lambda: view.look({})["events"]["deciding"] is None)


def test_requests_wait_for_the_event_thread(
    server: ControllerServer, view: ControllerView, connection: NodeConnection
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def decide() -> Decision[None]:
        begun.set()
        assert go_on.wait(20)
        return Decision([], None)

    server.controller.loop.submit(Event("slow", decide, lambda _: None, lambda _: None))
    assert begun.wait(20)
    asking = threading.Thread(target=lambda: connection.send(CreateTopicsRequest(topics=[topic("a", 1)]), 7))
    asking.start()
    items = eventually("it is parked", lambda: view.look({"section": "elsewhere"})["elsewhere"]["items"])
    go_on.set()
    asking.join()
    assert items[0]["sentence"].startswith("create topics of client ")
    assert items[0]["sentence"].endswith(" waits for the event thread to decide")
    metadata = view.look({})["metadata"]
    assert (metadata["topics"], metadata["partitions"], metadata["offline"]) == (0, 0, 0), "there is no broker for it"
