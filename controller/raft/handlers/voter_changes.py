"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter: one change of the voters at a time.

Rules
1. A change waits for nothing: while another one is not committed, or the leader does not know its high watermark yet,
   it is refused with REQUEST_TIMED_OUT. So the voter sets in a log differ by one voter, and at most the last one is not
   committed.
2. A new voter has reached the log's end within the hour, and supports the kraft.version.
3. A leader that removes itself leads on until the change is committed, does not count itself, and then resigns.
4. UpdateRaftVoter under kraft.version 0 changes no record: the leader notes the voter's directory for the upgrade.
5. A voter has at most LISTENERS_MAX listeners, with short names. (Apache Kafka writes what the request has.)

Source: AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler (Kafka 4.3); KIP-853.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.common.ids import ZERO_UUID, uuid_to_string
from barnabas.controller.raft.handlers.common import is_handled, leader_error
from barnabas.controller.raft.leader_state import UNKNOWN, Leader, VoterChange
from barnabas.controller.raft.messages import update_voter_response
from barnabas.controller.raft.quorum import Quorum
from barnabas.controller.raft.roles import Follower
from barnabas.controller.raft.voter_set import KRAFT_VERSION_FEATURE, Listener, ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.k80_add_raft_voter import Listener as JoinListener
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.messages.k82_update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse

#: Bounds on a voter's listeners, since they go into the log and into each snapshot.
LISTENERS_MAX: Final = 16
NAME_LENGTH_MAX: Final = 255  # of a listener, and of a host
_NO_VOTER: Final = "The request needs the id of a controller, and that of its directory."

STATIC_VOTERS: Final = "The voters are static, since kraft.version is 0: controller.quorum.voters has them."


class _Refusal(NamedTuple):
    """Why a request is refused; UpdateRaftVoter answers with the error alone."""

    error: ErrorCode
    message: str


def _can_be_reached(q: Quorum, voter: VoterNode) -> bool:
    """Return whether a request names the controllers' listener of a voter, and no more than a voter has."""
    return (
        voter.listener(q.config.listener_name) is not None
        and len(voter.listeners) <= LISTENERS_MAX
        and all(max(len(name), len(host)) <= NAME_LENGTH_MAX for name, host, _ in voter.listeners)
    )


def another_cluster(own: str) -> str:
    """Return the message of INCONSISTENT_CLUSTER_ID. Why without the other id: that may be longer than a message."""
    return f"The request is for another cluster: the id of this one is {own}."


def _refused_change(q: Quorum, cluster_id: str | None, epoch: int, *, may_be_static: bool = False) -> _Refusal | None:
    """Return why the voters cannot change now (rule 1)."""
    if cluster_id is not None and cluster_id != q.config.cluster_id:
        return _Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, another_cluster(q.config.cluster_id))
    if error := leader_error(q, epoch):
        return _Refusal(error, f"This controller does not lead the quorum in epoch {epoch}.")
    leader = q.role
    assert isinstance(leader, Leader)
    membership = q.outline.membership
    if leader.change is not None:
        return _Refusal(ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is under way.")
    if leader.high_watermark == UNKNOWN:
        return _Refusal(ErrorCode.REQUEST_TIMED_OUT, "The leader does not know yet what is committed.")
    if membership.kraft_version < 1:
        return None if may_be_static else _Refusal(ErrorCode.UNSUPPORTED_VERSION, STATIC_VOTERS)
    if membership.offset >= leader.high_watermark:
        return _Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"The last change of the voters, at offset {membership.offset}, is not committed yet: "
            f"the high watermark is {leader.high_watermark}.",
        )
    return None


def _refused_voter(q: Quorum, voter: VoterNode, now_ms: int) -> _Refusal | None:
    """Return why a voter cannot be added."""
    key = voter.key
    if key.id < 0 or key.directory_id == ZERO_UUID:
        return _Refusal(ErrorCode.INVALID_REQUEST, _NO_VOTER)
    if not _can_be_reached(q, voter):
        return _Refusal(
            ErrorCode.INVALID_REQUEST,
            f"The new voter needs an endpoint of the listener {q.config.listener_name}, at most {LISTENERS_MAX} "
            f"listeners, and names of at most {NAME_LENGTH_MAX} characters.",
        )
    if q.outline.voters.get(key.id) is not None:
        return _Refusal(ErrorCode.DUPLICATE_VOTER, f"Controller {key.id} is one of the voters already: {_listed(q)}.")
    if q.requests.ready_at(key.id) > now_ms:
        return _Refusal(ErrorCode.REQUEST_TIMED_OUT, f"Controller {key.id} cannot be asked at the moment.")
    return None


def _listed(q: Quorum) -> str:
    return ", ".join(f"{node.key.id} ({uuid_to_string(node.key.directory_id)})" for node in q.outline.voters)


def handle_add_voter(q: Quorum, request: AddRaftVoterRequest, token: object, now_ms: int) -> None:
    """Ask the new voter for its versions; it is added when it answers."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    listeners = tuple(Listener(found.name, found.host, found.port) for found in request.listeners)
    voter = VoterNode(key, listeners)
    listener = voter.listener(q.config.listener_name)
    refused = _refused_change(q, request.cluster_id, q.epoch) or _refused_voter(q, voter, now_ms)
    if refused is not None:
        q.reply(token, AddRaftVoterResponse(error_code=refused.error, error_message=refused.message))
        return
    leader = q.role
    assert isinstance(leader, Leader)
    assert listener is not None
    timeout = min(max(request.timeout_ms, 0), q.config.request_timeout_ms)
    is_early = not request.ack_when_committed
    leader.change = VoterChange(token, now_ms + timeout, voter, is_acknowledged_early=is_early)
    q.send(key.id, listener, ApiVersionsRequest(), now_ms)


def handle_api_versions_response(q: Quorum, sender_id: int, response: ApiVersionsResponse, now_ms: int) -> bool:
    """Add the voter that answers (rule 2); return whether the response is no failure."""
    leader = q.role
    change = leader.change if isinstance(leader, Leader) else None
    if change is None or change.joining is None or change.joining.key.id != sender_id:
        return True
    assert isinstance(leader, Leader)
    if response.error_code:
        q.finish_change(ErrorCode.REQUEST_TIMED_OUT, "The new voter did not answer ApiVersions.")
        return False
    named = next((found for found in response.supported_features if found.name == KRAFT_VERSION_FEATURE), None)
    lowest, highest = (0, 0) if named is None else (named.min_version, named.max_version)
    voter = change.joining._replace(kraft_versions=(lowest, highest))
    voters = q.outline.voters.add(voter)
    if not lowest <= q.outline.membership.kraft_version <= highest:
        q.finish_change(ErrorCode.INVALID_REQUEST, "The new voter does not support the kraft.version.")
    elif voters is None or not leader.is_caught_up(voter.key, now_ms):
        q.finish_change(ErrorCode.REQUEST_TIMED_OUT, "The new voter is behind the log's end.")
    else:
        change.joining = None
        _append_voters(q, voters, change, now_ms)
    return True


def handle_failed_request(q: Quorum, node_id: int) -> None:
    """Refuse a new voter that cannot be reached. Why at once: no other change can be made meanwhile."""
    leader = q.role
    change = leader.change if isinstance(leader, Leader) else None
    if change is not None and change.joining is not None and change.joining.key.id == node_id:
        q.finish_change(ErrorCode.REQUEST_TIMED_OUT, "The new voter cannot be reached at its listener.")


def handle_remove_voter(q: Quorum, request: RemoveRaftVoterRequest, token: object, now_ms: int) -> None:
    """Remove a voter, perhaps this leader (rule 3)."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    refused = _refused_change(q, request.cluster_id, q.epoch)
    if refused is None and (key.id < 0 or key.directory_id == ZERO_UUID):
        refused = _Refusal(ErrorCode.INVALID_REQUEST, _NO_VOTER)
    voters = None if refused else q.outline.voters.remove(key)
    if voters is None:
        named = f"{key.id} ({uuid_to_string(key.directory_id)})"
        refused = refused or _Refusal(
            ErrorCode.VOTER_NOT_FOUND,
            f"Controller {named} is none of the voters, or the only one: {_listed(q)}.",
        )
        q.reply(token, RemoveRaftVoterResponse(error_code=refused.error, error_message=refused.message))
        return
    leader = q.role
    assert isinstance(leader, Leader)
    leader.change = VoterChange(token, now_ms + q.config.request_timeout_ms, is_removal=True)
    _append_voters(q, voters, leader.change, now_ms)


def handle_update_voter(q: Quorum, request: UpdateRaftVoterRequest, token: object, now_ms: int) -> None:
    """Replace a voter's endpoints and versions, or note them (rule 4)."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    listeners = tuple(Listener(found.name, found.host, found.port) for found in request.listeners)
    feature = request.kraft_version_feature
    voter = VoterNode(key, listeners, (feature.min_supported_version, feature.max_supported_version))
    refused = _refused_change(q, request.cluster_id, request.current_leader_epoch, may_be_static=True)
    error = ErrorCode.NONE if refused is None else refused.error
    if not error and (
        key.directory_id == ZERO_UUID
        or key.id == q.key.id  # Why: the leader knows itself; another process with its id would take its vote
        or not _can_be_reached(q, voter)
        or not 0 <= voter.kraft_versions[0] <= q.outline.membership.kraft_version <= voter.kraft_versions[1]
    ):
        error = ErrorCode.INVALID_REQUEST
    leader = q.role
    described = leader.described if isinstance(leader, Leader) else None
    if described is not None and not error:
        voters = described.describe(voter)
        if voters is not None and isinstance(leader, Leader):
            leader.described = voters
        q.reply(token, update_voter_response(q, ErrorCode.VOTER_NOT_FOUND if voters is None else ErrorCode.NONE))
        return
    voters = None if error else q.outline.voters.update(voter)
    if voters is not None and voters != q.outline.voters:
        q.append_control((voters.to_record(),), now_ms)
    elif not error and voters is None:
        error = ErrorCode.VOTER_NOT_FOUND
    q.reply(token, update_voter_response(q, error))


def handle_update_voter_response(q: Quorum, response: UpdateRaftVoterResponse, now_ms: int) -> bool:
    """Learn of a later epoch; return whether the response is no failure."""
    current = response.current_leader
    role = q.role
    # Why UNSUPPORTED_VERSION: a leader of an earlier release does not note it.
    is_answer = response.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
    if (
        is_answer
        and isinstance(role, Follower)
        and (role.epoch, role.leader_id)
        == (
            current.leader_epoch,
            current.leader_id,
        )
    ):
        role.is_described = True
    is_handled(q, response.error_code, current.leader_epoch, current.leader_id, [], now_ms)
    return response.error_code != ErrorCode.BROKER_NOT_AVAILABLE


def handle_join_response(q: Quorum, response: AddRaftVoterResponse | RemoveRaftVoterResponse, now_ms: int) -> bool:
    """Go on after a request of this observer to become a voter, which is sent again while it is none."""
    if response.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
        name = ErrorCode.of(response.error_code).name
        q.note(f"This controller does not join the voters yet: {name} {response.error_message or ''}".rstrip())
        if isinstance(q.role, Follower):  # Why: its own change must not take all the time of the others'
            q.role.update_voter_ms = now_ms + q.config.fetch_timeout_ms
    return not response.error_code


def join_request(q: Quorum) -> AddRaftVoterRequest | RemoveRaftVoterRequest:
    """Ask the leader to make this observer a voter; before that, to remove the directory that it had.

    Source: KafkaRaftClient.pollFollowerAsObserver (Kafka 4.3).
    """
    former = q.outline.voters.get(q.key.id)
    if former is not None:
        return RemoveRaftVoterRequest(
            cluster_id=q.config.cluster_id, voter_id=former.key.id, voter_directory_id=former.key.directory_id
        )
    return AddRaftVoterRequest(
        cluster_id=q.config.cluster_id,
        timeout_ms=q.config.request_timeout_ms,
        voter_id=q.key.id,
        voter_directory_id=q.key.directory_id,
        listeners=[JoinListener(name=name, host=host, port=port) for name, host, port in q.config.listeners],
        ack_when_committed=False,
    )


def expire_change(q: Quorum, now_ms: int) -> None:
    """Answer a client whose change took too long. A voter set that is in the log already stays there."""
    leader = q.role
    if isinstance(leader, Leader) and leader.change is not None and leader.change.deadline_ms <= now_ms:
        missing = "it was not committed" if leader.change.joining is None else "the new voter did not answer"
        q.finish_change(ErrorCode.REQUEST_TIMED_OUT, f"The change of the voters took too long: {missing}.")


def _append_voters(q: Quorum, voters: VoterSet, change: VoterChange, now_ms: int) -> None:
    record = voters.to_record()
    change.offset = q.outline.end_offset
    q.append_control((record,), now_ms)
    leader = q.role
    if isinstance(leader, Leader) and leader.change is change and change.is_acknowledged_early:
        q.finish_change(ErrorCode.NONE)
