"""Brokers as observers of the quorum, as Kafka's tools expect them in DescribeQuorum.

In Kafka, a broker fetches the metadata log and so is an observer. Here it is pushed to. What it acknowledges says as
much: the offset up to which it has applied the metadata, and when it was last heard.

Threads: any; it reads what the event thread replaces.

Source: LeaderState.observerStates (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.messages.k55_describe_quorum import ReplicaState

if TYPE_CHECKING:
    from barnabas.controller.image import Broker
    from barnabas.controller.quorum_controller import QuorumController

SILENT_MS: Final = 300_000  # Kafka forgets an observer that has not fetched for five minutes


def observing_brokers(
    controller: QuorumController, others: Container[int], end_offset: int, now_ms: int, wall_ms: int
) -> list[ReplicaState]:
    """Return the registered brokers that were heard in the last five minutes.

    `others` are the ids of the replicas that fetch. A broker in the process of one is no observer of its own.
    `end_offset` is the leader's: a broker that has applied all that is pushed has it, too.
    """
    found = []
    for broker in controller.committed_image.brokers.values():
        age_ms = max(0, controller.sessions.contact_age_ms(broker.id, now_ms))
        applied = _applied_offset(controller, broker)
        # Why the second: at a failover each broker gets a new session, also one that has been gone for long.
        is_gone = age_ms > SILENT_MS or (broker.is_fenced and applied < 0)
        if broker.id not in others and not is_gone:
            is_behind = applied < controller.pushed_offset
            behind_ms = controller.sessions.behind_ms(broker.id, now_ms) if is_behind else age_ms
            found.append(
                ReplicaState(
                    replica_id=broker.id,
                    replica_directory_id=broker.log_dirs[0] if broker.log_dirs else ZERO_UUID,
                    log_end_offset=applied + 1 if is_behind else end_offset,
                    last_fetch_timestamp=wall_ms - age_ms,
                    last_caught_up_timestamp=-1 if behind_ms is None else wall_ms - behind_ms,
                )
            )
    return found


def _applied_offset(controller: QuorumController, broker: Broker) -> int:
    channels = controller.channels  # Why once: the event thread replaces it
    acknowledged = -1 if channels is None else channels.applied_offset(broker)
    return max(acknowledged, controller.sessions.metadata_offset(broker.id))
