"""The words for replicas that are not in sync, on objects made for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.replication.fetching.fetch_state import FetchState
from barnabas.broker.replication.in_sync.isr import ReplicaState
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.role import Role
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from tests.simulation.cluster.out_of_sync import out_of_sync

T0 = TopicPartition("t", 0)
NOW_MS = 5_000
LEADING = Role(
    is_leader=True, leader_id=0, leader_epoch=3, partition_epoch=7, isr=frozenset({0}), maximal_isr=frozenset({0}),
    replicas=(0, 1), leader_epoch_start_offset=2,
)  # fmt: skip
FOLLOWING = Role(leader_id=0, leader_epoch=3, partition_epoch=7, replicas=(0, 1))


def node(broker_id: int, role: Role | None, end: int = 0, fetchers: tuple[Any, ...] = ()) -> Any:
    """A broker of epoch 10, which hosts t-0 if it has a role."""
    partition = None
    if role is not None:
        follower = ReplicaState(1, 4, 0, last_caught_up_ms=1_000, last_fetch_ms=4_900, broker_epoch=10)
        followers = SimpleNamespace(states={1: follower}, is_eligible=lambda _state: True)
        log = SimpleNamespace(log_start_offset=0, log_end_offset=end, high_watermark=end)
        partition = SimpleNamespace(role=role, log=log, _followers=followers)
    server = SimpleNamespace(
        link=SimpleNamespace(lifecycle=SimpleNamespace(epoch=10)),
        services=SimpleNamespace(replica_manager=SimpleNamespace(find=lambda _tp: partition)),
        _replication=SimpleNamespace(fetchers=SimpleNamespace(fetchers=lambda: fetchers)),
    )
    process = SimpleNamespace(monotonic_ns=lambda: NOW_MS * 1_000_000)
    return SimpleNamespace(
        name=f"broker-{broker_id}", node=SimpleNamespace(node_id=broker_id), server=server, process=process,
        is_running=True,
    )  # fmt: skip


def cluster(brokers: list[Any], isr: tuple[int, ...], **registered: Any) -> Any:
    """A cluster whose controller has t-0 with this ISR; every broker has epoch 10 there, unless it is given."""
    partition = SimpleNamespace(leader=0, leader_epoch=3, isr=isr, replicas=(0, 1), partition_epoch=7)
    known = {"epoch": 10, "is_active": True, "is_fenced": False, **registered}
    image = SimpleNamespace(
        brokers={broker.node.node_id: SimpleNamespace(**known) for broker in brokers},
        each_partition=lambda: [(SimpleNamespace(name="t"), 0, partition)],
    )
    controller = SimpleNamespace(name="controller-100", is_running=True)
    by_id = {100: controller} | {broker.node.node_id: broker for broker in brokers}
    return SimpleNamespace(controllers=[controller], brokers=brokers, by_id=by_id, committed_image=lambda: image)


def test_replicas_that_are_in_sync_need_no_words() -> None:
    assert out_of_sync(cluster([node(0, LEADING, 9), node(1, FOLLOWING, 9)], (0, 1))) == []


def test_each_side_of_a_missing_replica_is_shown() -> None:
    state = FetchState(Partition(T0, bytes(16), 1, FakeClock()), 3, 6, 3, delayed_until_ms=NOW_MS + 20, refusals=2)
    fetcher = SimpleNamespace(
        leader_id=0, _states={T0: state}, _session=SimpleNamespace(_id=44), lags={T0: 3}, failed=set()
    )
    found = out_of_sync(cluster([node(0, LEADING, 9), node(1, FOLLOWING, 6, (fetcher,))], (0,)))
    assert found == [
        "t-0: the controller has leader 0 of epoch 3, ISR [0] of [0, 1], partition epoch 7; [1] are missing",
        "t-0: broker-0 has leader 0 of epoch 3 from 2, ISR [0], maximal [0], partition epoch 7, a change in flight: "
        "False; offsets 0 to 9, high watermark 9",
        "t-0: broker-0 knows that 1 of broker epoch 10 had 4 offsets 100 ms ago, and caught up 4000 ms ago; "
        "eligible: True",
        "t-0: broker-1 follows 0 in epoch 3, partition epoch 7; offsets 0 to 6, high watermark 6",
        "t-0: broker-1 fetches from 0 in epoch 3 at 6, 1 partitions in session 44, delayed for 20 ms, 2 refusals, "
        "lag 3",
    ]


def test_a_replica_that_nobody_fetches_is_shown() -> None:
    gave_up = SimpleNamespace(leader_id=0, _states={}, failed={T0})
    found = out_of_sync(cluster([node(0, LEADING, 9), node(1, FOLLOWING, 6, (gave_up,))], (0,)))
    assert found[-1] == "t-0: broker-1 does not fetch it; fetchers that gave it up: [0]"
    found = out_of_sync(cluster([node(0, None), node(1, None)], (0,)))
    assert found[-2:] == ["t-0: broker-0 should lead, and hosts no log of it", "t-0: broker-1 hosts no log of it"]


def test_nodes_that_do_not_serve_are_shown() -> None:
    brokers = [node(0, LEADING, 9), node(1, FOLLOWING, 9)]
    assert out_of_sync(cluster(brokers, (0, 1), epoch=9, is_active=False, is_fenced=True)) == [
        f"broker-{broker_id} has epoch 10; the controller has epoch 9, fenced=True, active=False"
        for broker_id in (0, 1)
    ]
    nodes = cluster(brokers, (0, 1))
    nodes.controllers[0].is_running = False
    nodes.committed_image = lambda: None
    assert out_of_sync(nodes) == ["controller-100 does not run", "no controller has the committed image"]


def test_each_of_several_controllers_is_shown() -> None:
    quorum = SimpleNamespace(role=LEADING, epoch=4, outline=SimpleNamespace(end_offset=9), high_watermark=8)
    raft = SimpleNamespace(_replica=SimpleNamespace(quorum=quorum))
    active = SimpleNamespace(
        name="controller-100", is_running=True, raft=raft, controller=SimpleNamespace(leader=100), committed_offset=7,
        is_active=True,
    )  # fmt: skip
    other = SimpleNamespace(name="controller-101", is_running=True, raft=None, controller=None)
    nodes = SimpleNamespace(
        controllers=[active, other], brokers=[], by_id={100: active, 101: other}, committed_image=lambda: None
    )
    assert out_of_sync(nodes) == [
        "controller-100 is role in epoch 4 with 9 offsets, high watermark 8; it has committed up to 7, active: True, "
        "leader: 100",
        "controller-101 has no replica of the quorum",
        "no controller has the committed image",
    ]
