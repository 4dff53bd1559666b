"""Replicas without a network: what one is given, and what it asks for."""

from __future__ import annotations

from random import Random
from typing import Any

from barnabas.controller.raft.effects import Effect, Reply, Send
from barnabas.controller.raft.election_state import ElectionState
from barnabas.controller.raft.log_outline import LogOutline, Membership
from barnabas.controller.raft.raft_config import RaftConfig
from barnabas.controller.raft.replica import RaftReplica
from barnabas.controller.raft.voter_set import ReplicaKey, VoterSet
from tests.controller.raft.simulator.node import CLUSTER, batches, directory, listeners_of, voter_of


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, directory(node_id))


def replica(node_id: int, voters: int = 3, election: ElectionState | None = None) -> RaftReplica:
    """A replica of a quorum of voters 1, 2, …, with an empty log; it has not started."""
    bootstrap = Membership(-1, 1, VoterSet(voter_of(key(number)) for number in range(1, voters + 1)))
    config = RaftConfig(CLUSTER, listeners_of(node_id))
    return RaftReplica(config, key(node_id), LogOutline(bootstrap), election, Random(node_id), batches)


def leader_alone() -> RaftReplica:
    """The only voter, which leads; the time is 2000."""
    found = replica(1, voters=1)
    found.start(0)
    found.poll(2_000)
    assert found.is_leader
    return found


def sent(effects: list[Effect], kind: type) -> list[Any]:
    """The requests of this kind that the effects send."""
    return [effect.request for effect in effects if isinstance(effect, Send) and isinstance(effect.request, kind)]


def answers(effects: list[Effect]) -> list[Any]:
    """The responses among the effects."""
    return [effect.response for effect in effects if isinstance(effect, Reply)]
