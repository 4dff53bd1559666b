"""What is left over once nothing breaks and every client has gone. Looks at the real objects of the nodes.

1. No request is parked, in a purgatory or elsewhere, apart from the fetches of followers.
2. No request is queued, and no client is connected.
3. No transaction is open or prepared, no partition waits for a marker, and no request waits for a transaction.
4. No group has members, and no timer of a group runs.
5. Every log's last stable offset is its high watermark, and that is its end.
6. No two threads of a process have one name: a thread that was replaced has ended.
7. No timer of a purgatory runs without its request, and no background task that runs once is due.
8. Every controller knows all that is committed.
9. No accepted connection is open whose other end has gone. (One's own may be: the next request finds that out.)

Threads: the driver's task. It looks at the processes from outside, and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators.transactions.transaction import TxnState
from barnabas.testing.simulation.machine.network.sockets import Socket

if TYPE_CHECKING:
    from barnabas.testing.simulation.nodes import Nodes, SimulatedController, SimulatedNode

WAITING_MAX = 100  # requests that are looked at
OPEN = (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)


def leftovers(nodes: Nodes) -> list[str]:
    """Return what is left over, one line each."""
    hosts = {node.node.host for node in nodes.by_id.values()}
    found: list[str] = []
    for broker in nodes.brokers:
        services = getattr(broker.server, "services", None)
        if services is None or not broker.is_running:
            found.append(f"{broker.name}: it does not serve yet")  # its disk was repaired a moment ago
            continue
        found += [
            f"{broker.name}: {what}"
            for looking in (
                _threads(broker),
                _tasks(broker.server),
                _requests(broker.server),
                _connections(broker, hosts),
                _transactions(services),
                _groups(services),
                _logs(services),
            )
            for what in looking
        ]
    for controller in nodes.controllers:
        looking = (_threads(controller), _connections(controller, hosts), _behind(controller, nodes.committed_offset))
        found += [f"{controller.name}: {what}" for each in looking for what in each]
    return found


def _behind(controller: SimulatedController, committed_offset: int) -> Iterator[str]:
    if controller.committed_offset != committed_offset:
        yield f"it knows what is committed up to {controller.committed_offset}, and others up to {committed_offset}"


def _threads(node: SimulatedNode) -> Iterator[str]:
    assert node.process is not None
    tasks = node.process.scheduler.tasks  # type: ignore[attr-defined]
    names = Counter(task.name for task in tasks if task.process is node.process)
    for name, count in names.items():
        if count > 1:
            yield f"{count} threads are {name}"


def _tasks(server: Any) -> Iterator[str]:
    if server._scheduler.next_once_ms() is not None:
        names = [task.name for task in server._scheduler._heap.tasks if not task.period_ms and not task.cancelled]
        yield f"background tasks are due once: {names}"


def _requests(server: Any) -> Iterator[str]:
    purgatories = server.services.purgatories
    of_requests = (purgatories.produce, purgatories.delete_records, purgatories.topic, purgatories.share_fetch)
    for purgatory in (*of_requests, purgatories.fetch):
        for operation, keys in purgatory.waiting(WAITING_MAX):
            request = operation.request
            if request is None or not request.is_follower:
                yield f"the purgatory {purgatory.name} has {operation!r} for {keys}"
    waiting = len(purgatories.fetch.waiting(WAITING_MAX))
    if waiting < WAITING_MAX and purgatories.fetch.delayed() > waiting:
        yield f"the purgatory {purgatories.fetch.name} has {purgatories.fetch.delayed()} timers for {waiting} requests"
    for purgatory in of_requests:
        if purgatory.delayed():
            yield f"the purgatory {purgatory.name} has {purgatory.delayed()} timers"
    network = server.network
    if network.channel.request_queue_size():
        yield f"{network.channel.request_queue_size()} requests are queued"


def _connections(node: SimulatedNode, hosts: set[str]) -> Iterator[str]:
    assert node.process is not None
    for number, descriptor in node.process.descriptors.items():
        end = getattr(descriptor, "_end", None) if isinstance(descriptor, Socket) else None
        if end is None:
            continue
        if end.remote[0] not in hosts:
            yield f"descriptor {number} is a connection with {end.remote[0]}"
        elif end.local in end.network.listeners and (end.is_at_end or end.is_reset):
            yield f"descriptor {number} is a connection that {end.remote[0]} has closed"


def _transactions(services: Any) -> Iterator[str]:
    coordinator = services.transaction_coordinator
    if coordinator.count(OPEN):
        yield f"{coordinator.count(OPEN)} transactions are open"
    if coordinator.unwritten_ends():
        yield f"{coordinator.unwritten_ends()} ends of transactions are not written"


def _groups(services: Any) -> Iterator[str]:
    for shard in services.group_coordinator.shards():
        for group_id, group in shard.groups.items():
            if group.members.by_id:
                yield f"group {group_id} has members {sorted(group.members.by_id)}"
        for group_id, consumer_group in shard.consumer_groups.items():
            if consumer_group.members:
                yield f"group {group_id} has members {sorted(consumer_group.members)}"
        for group_id, share_group in shard.share_groups.items():
            if share_group.members:
                yield f"group {group_id} has members {sorted(share_group.members)}"
        if len(shard._core.timers):
            yield f"{len(shard._core.timers)} timers of groups run in {shard.tp}"


def _logs(services: Any) -> Iterator[str]:
    for partition in services.replica_manager.partitions():
        tp, log = partition.tp, partition.log
        if log is not None and not log.last_stable_offset == log.high_watermark == log.log_end_offset:
            yield (
                f"{tp} ends at {log.log_end_offset}, with high watermark {log.high_watermark} "
                f"and last stable offset {log.last_stable_offset}"
            )
