"""The settings of a replica in a configuration: `controller.quorum.*`.

Source: QuorumConfig, KafkaRaftManager (Kafka 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config.listeners import parse_voters
from barnabas.controller.raft.log_outline import Membership
from barnabas.controller.raft.raft_config import RaftConfig
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterNode, VoterSet

if TYPE_CHECKING:
    from barnabas.config.config import Config


def raft_config(config: Config, cluster_id: str, listeners: tuple[Listener, ...]) -> RaftConfig:
    """Return the settings of a replica that others reach at these listeners."""
    own = {(listener.host, listener.port) for listener in listeners}
    return RaftConfig(
        cluster_id=cluster_id,
        listeners=listeners,
        listener_name=controller_listener(config),
        bootstrap_servers=tuple(server for server in config.controller_bootstrap() if server not in own),
        election_timeout_ms=int(config.controller_quorum_election_timeout_ms),
        election_backoff_max_ms=int(config.controller_quorum_election_backoff_max_ms),
        fetch_timeout_ms=int(config.controller_quorum_fetch_timeout_ms),
        request_timeout_ms=int(config.controller_quorum_request_timeout_ms),
        retry_backoff_ms=int(config.controller_quorum_retry_backoff_ms),
        fetch_max_bytes=int(config.controller_quorum_fetch_max_bytes),
        snapshot_max_bytes=int(config.controller_quorum_fetch_snapshot_max_bytes),
        joins=bool(config.controller_quorum_auto_join_enable),
    )


def configured_voters(config: Config) -> Membership:
    """Return the voters of `controller.quorum.voters`, which have no directory ids (kraft.version 0).

    Without that key there are none, until the replica reads them in a snapshot or in the log of the leader.
    """
    name = controller_listener(config)
    voters = parse_voters(config.controller_quorum_voters)
    return Membership(
        -1,
        0,
        VoterSet(
            VoterNode(ReplicaKey(voter_id), (Listener(name, host, port),)) for voter_id, (host, port) in voters.items()
        ),
    )


def controller_listener(config: Config) -> str:
    """Return the name of the listener by which controllers reach each other."""
    return str(config.controller_listener_names[0]).upper()
