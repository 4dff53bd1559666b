"""Why the replicas of a cluster are not in sync: what each side of a partition knows, one line each.

A partition whose ISR lacks a replica has a line for the controller, one for its leader, one for each replica that is
missing as the leader knows it, and one as it knows itself: its log, and the state of its fetcher.

Threads: the driver's task. It looks at the processes from outside, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.testing.simulation.nodes import SimulatedNode

NS_PER_MS: Final = 1_000_000


def out_of_sync(nodes: Any) -> list[str]:
    """Return why `Nodes.are_in_sync` is false, one line each; none if it is true."""
    found = [f"{node.name} does not run" for node in nodes.by_id.values() if not node.is_running]
    found += [_of_controller(controller) for controller in nodes.controllers if len(nodes.controllers) > 1]
    image = nodes.committed_image()
    if image is None:
        return [*found, "no controller has the committed image"]
    brokers = {broker.node.node_id: broker for broker in nodes.brokers}
    for broker_id, broker in brokers.items():
        found += _registration(broker, image.brokers.get(broker_id))
    for topic, index, state in image.each_partition():
        tp = TopicPartition(topic.name, index)
        missing = [replica for replica in state.replicas if replica not in state.isr]
        if not missing:
            continue
        found.append(
            f"{tp}: the controller has leader {state.leader} of epoch {state.leader_epoch}, ISR {list(state.isr)} of "
            f"{list(state.replicas)}, partition epoch {state.partition_epoch}; {missing} are missing"
        )
        if state.leader in brokers:
            found += _of_leader(brokers[state.leader], tp, missing)
        for replica in missing:
            found += _of_follower(brokers[replica], tp)
    return found


def _of_controller(node: Any) -> str:
    """What a controller of several knows of the quorum."""
    if node.raft is None or node.controller is None:
        return f"{node.name} has no replica of the quorum"
    quorum = node.raft._replica.quorum
    return (
        f"{node.name} is {type(quorum.role).__name__.lower()} in epoch {quorum.epoch} with "
        f"{quorum.outline.end_offset} offsets, high watermark {quorum.high_watermark}; it has committed up to "
        f"{node.committed_offset}, active: {node.is_active}, leader: {node.controller.leader}"
    )


def _registration(broker: SimulatedNode, registered: Any) -> Iterator[str]:
    if registered is None:
        yield f"{broker.name} is not registered"
        return
    link = getattr(broker.server, "link", None)
    epoch = None if link is None else link.lifecycle.epoch
    if not registered.is_active or registered.epoch != epoch:
        yield (
            f"{broker.name} has epoch {epoch}; the controller has epoch {registered.epoch}, "
            f"fenced={registered.is_fenced}, active={registered.is_active}"
        )


def _partition(broker: SimulatedNode, tp: TopicPartition) -> Any:
    services = getattr(broker.server, "services", None) if broker.is_running else None
    return None if services is None else services.replica_manager.find(tp)


def _of_leader(broker: SimulatedNode, tp: TopicPartition, missing: list[int]) -> Iterator[str]:
    partition = _partition(broker, tp)
    if partition is None or partition.log is None:
        yield f"{tp}: {broker.name} should lead, and hosts no log of it"
        return
    role, log, now_ms = partition.role, partition.log, broker.process.monotonic_ns() // NS_PER_MS
    yield (
        f"{tp}: {broker.name} has leader {role.leader_id} of epoch {role.leader_epoch} from "
        f"{role.leader_epoch_start_offset}, ISR {sorted(role.isr)}, maximal {sorted(role.maximal_isr)}, "
        f"partition epoch {role.partition_epoch}, a change in flight: {role.is_isr_change_in_flight}; {_offsets(log)}"
    )
    for follower in map(partition._followers.states.get, missing):
        if follower is not None:
            yield (
                f"{tp}: {broker.name} knows that {follower.broker_id} of broker epoch {follower.broker_epoch} had "
                f"{follower.log_end_offset} offsets {now_ms - follower.last_fetch_ms} ms ago, and caught up "
                f"{now_ms - follower.last_caught_up_ms} ms ago; "
                f"eligible: {partition._followers.is_eligible(follower)}"
            )


def _of_follower(broker: SimulatedNode, tp: TopicPartition) -> Iterator[str]:
    partition = _partition(broker, tp)
    if partition is None or partition.log is None:
        yield f"{tp}: {broker.name} hosts no log of it"
        return
    role = partition.role
    yield (
        f"{tp}: {broker.name} follows {role.leader_id} in epoch {role.leader_epoch}, partition epoch "
        f"{role.partition_epoch}; {_offsets(partition.log)}"
    )
    fetchers = broker.server._replication.fetchers.fetchers()
    held = [(fetcher, fetcher._states[tp]) for fetcher in fetchers if tp in fetcher._states]
    now_ms = broker.process.monotonic_ns() // NS_PER_MS
    for fetcher, state in held:
        yield (
            f"{tp}: {broker.name} fetches from {fetcher.leader_id} in epoch {state.leader_epoch} at "
            f"{state.fetch_offset}, {len(fetcher._states)} partitions in session {fetcher._session._id}, "
            f"delayed for {max(0, state.delayed_until_ms - now_ms)} ms, {state.refusals} refusals, "
            f"lag {fetcher.lags.get(tp)}"
        )
    if not held:
        failed = [fetcher.leader_id for fetcher in fetchers if tp in fetcher.failed]
        yield f"{tp}: {broker.name} does not fetch it; fetchers that gave it up: {failed}"


def _offsets(log: Any) -> str:
    return f"offsets {log.log_start_offset} to {log.log_end_offset}, high watermark {log.high_watermark}"
