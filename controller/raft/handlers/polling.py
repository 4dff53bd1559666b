"""The actions of each role as time passes: its requests, its timeouts, and the time of its next poll.

Source: KafkaRaftClient.poll (Kafka 4.3).
"""

from __future__ import annotations

from barnabas.controller.raft.handlers.fetching import answer_due_fetches
from barnabas.controller.raft.handlers.voter_changes import expire_change, join_request
from barnabas.controller.raft.leader_state import CHECK_QUORUM_FACTOR, Leader
from barnabas.controller.raft.messages import (
    begin_quorum_epoch_request,
    end_quorum_epoch_request,
    fetch_request,
    fetch_snapshot_request,
    update_voter_request,
    vote_request,
)
from barnabas.controller.raft.quorum import FOREVER, Quorum
from barnabas.controller.raft.roles import Candidate, Follower, Prospective, Resigned
from barnabas.controller.raft.voter_set import Listener
from barnabas.protocol.schema import Message

BOOTSTRAP_ID = -2
"""The node id of the first place to ask for the leader; the others follow below it."""


def poll(q: Quorum, now_ms: int) -> int:
    """Do what is due; return when to poll again, unless something happens before."""
    while True:
        role = q.role
        if isinstance(role, Follower):
            next_ms = _poll_follower(q, role, now_ms)
        elif isinstance(role, Leader):
            next_ms = _poll_leader(q, role, now_ms)
        elif isinstance(role, Candidate | Prospective):
            next_ms = _poll_nominee(q, role, now_ms)
        elif isinstance(role, Resigned):
            next_ms = _poll_resigned(q, role, now_ms)
        elif q.is_voter and role.deadline_ms <= now_ms:
            q.become_prospective(now_ms)
            continue
        else:
            next_ms = min(_fetch_anywhere(q, now_ms), role.deadline_ms if q.is_voter else FOREVER)
        if q.role is role:
            break
    if q.parked:
        answer_due_fetches(q, now_ms)
        next_ms = min([next_ms, *(parked.deadline_ms for parked in q.parked)])
    return next_ms


def _poll_follower(q: Quorum, role: Follower, now_ms: int) -> int:
    is_voter = q.is_voter
    is_late = role.deadline_ms <= now_ms
    if is_voter and is_late:
        q.become_prospective(now_ms)
        return now_ms
    deadline = role.deadline_ms if is_voter else FOREVER
    if role.snapshot is not None and role.snapshot.is_whole:
        return deadline
    listener = next((found for found in role.leader_endpoints if found.name == q.config.listener_name), None)
    if listener is None or is_late:  # an observer that lost its leader
        return min(deadline, _fetch_anywhere(q, now_ms))
    ready_ms = q.requests.ready_at(role.leader_id)
    if ready_ms > now_ms:
        return min(deadline, ready_ms)
    if role.snapshot is not None:
        request: Message = fetch_snapshot_request(q, role.snapshot.id, role.snapshot.position)
    elif role.update_voter_ms <= now_ms and is_voter and _must_update(q, role):
        role.update_voter_ms = now_ms + q.config.fetch_timeout_ms
        request = update_voter_request(q)
    elif role.update_voter_ms <= now_ms and not is_voter and _must_join(q):
        role.update_voter_ms = now_ms + q.config.fetch_timeout_ms
        request = join_request(q)
    else:
        request = fetch_request(q)
    q.send(role.leader_id, listener, request, now_ms)
    return min(deadline, q.requests.ready_at(role.leader_id))


def _must_update(q: Quorum, role: Follower) -> bool:
    if q.outline.membership.kraft_version == 0:
        return not role.is_described
    return q.outline.voters.get(q.key.id) != q.local


def _must_join(q: Quorum) -> bool:
    return q.config.joins and q.outline.membership.kraft_version > 0


def _poll_leader(q: Quorum, role: Leader, now_ms: int) -> int:
    expire_change(q, now_ms)
    alone = role.voters.keys() <= {q.key.id}
    if alone:  # Why: the first other voter needs time for its first fetch
        role.check_quorum_ms = now_ms + int(q.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
    if role.is_resigning or (not alone and role.check_quorum_ms <= now_ms):
        lost = f"no majority fetched for {int(q.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)} ms"
        q.become_resigned(now_ms, "it is no voter any more" if role.is_resigning else lost)
        return now_ms
    if role.begin_epoch_ms <= now_ms:
        every = max(q.config.fetch_timeout_ms // 2, 1)
        role.begin_epoch_ms = now_ms + every
        for key, state in ((state.key, state) for state in role.voters.values()):
            # Why not all: a voter that fetches knows the leader.
            if key.id != q.key.id and (state.last_fetch_ms < 0 or state.last_fetch_ms + every <= now_ms):
                _send_to_voter(q, key.id, begin_quorum_epoch_request(q, key), now_ms)
    role.forget_inactive_observers(now_ms, q.key)
    deadlines = [role.begin_epoch_ms]
    if not alone:
        deadlines.append(role.check_quorum_ms)
    if role.change is not None:
        deadlines.append(role.change.deadline_ms)
    return min(deadlines)


def _poll_nominee(q: Quorum, role: Candidate | Prospective, now_ms: int) -> int:
    is_pre_vote = isinstance(role, Prospective)
    if role.deadline_ms <= now_ms:
        if is_pre_vote:
            q.lose_pre_vote(now_ms)
        else:
            q.become_prospective(now_ms)
        return now_ms
    next_ms = role.deadline_ms
    if not role.votes.is_rejected:
        for key in role.votes.unrecorded:
            if q.requests.ready_at(key.id) <= now_ms:
                _send_to_voter(q, key.id, vote_request(q, key, is_pre_vote=is_pre_vote), now_ms)
            next_ms = min(next_ms, max(q.requests.ready_at(key.id), now_ms + 1))
    return next_ms


def _poll_resigned(q: Quorum, role: Resigned, now_ms: int) -> int:
    if role.deadline_ms <= now_ms:
        q.resigned_timed_out(now_ms)
        return now_ms
    next_ms = role.deadline_ms
    for voter_id in sorted(role.unacknowledged):
        if q.requests.ready_at(voter_id) <= now_ms:
            _send_to_voter(q, voter_id, end_quorum_epoch_request(q, role), now_ms)
        next_ms = min(next_ms, max(q.requests.ready_at(voter_id), now_ms + 1))
    return next_ms


def _send_to_voter(q: Quorum, voter_id: int, request: Message, now_ms: int) -> None:
    node = q.outline.voters.get(voter_id)
    listener = None if node is None else node.listener(q.config.listener_name)
    if listener is not None and q.requests.ready_at(voter_id) <= now_ms:
        q.send(voter_id, listener, request, now_ms)


def _fetch_anywhere(q: Quorum, now_ms: int) -> int:
    """Ask the bootstrap servers and the voters in turn for the leader; return when to ask the next.

    Why the voters, which Kafka does not ask: a removed leader may be its own only bootstrap server.
    """
    servers = q.places_to_ask()
    if not servers:
        return FOREVER
    ready = [q.requests.ready_at(BOOTSTRAP_ID - index) for index in range(len(servers))]
    # Why one at a time: each of them knows the leader, or none does.
    if any(time > now_ms for time in ready):
        return min(time for time in ready if time > now_ms)
    index = q.next_turn(len(servers))
    host, port = servers[index]
    q.send(BOOTSTRAP_ID - index, Listener(q.config.listener_name, host, port), fetch_request(q), now_ms)
    return q.requests.ready_at(BOOTSTRAP_ID - index)
