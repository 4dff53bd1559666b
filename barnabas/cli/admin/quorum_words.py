"""What `barnabas quorum` says: a description of the quorum as sentences, rows and JSON. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

from barnabas.common.ids import uuid_to_string
from barnabas.common.pages.phrases import count, duration, listed
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k55_describe_quorum import DescribeQuorumResponse, ReplicaState
from barnabas.protocol.push_tags import active_since_of, check_quorum_of

COLUMNS: Final = ("id", "role", "address", "log_end", "behind", "last_fetch", "caught_up", "directory_id")
#: A voter that has not fetched for so long does not count: a leader gives up after that time. The leader says how long
#: it is; this is 1.5 times the default of controller.quorum.fetch.timeout.ms, for a leader that does not.
SILENT_MS: Final = 3_000
NEVER: Final = -1


class MemberView(NamedTuple):
    """A voter or an observer; times are ages in ms, -1 for never."""

    id: int
    role: str
    address: str
    directory_id: str
    log_end: int
    behind: int
    fetched_ms: int
    caught_up_ms: int
    #: Whether it does not fetch from the leader.
    is_silent: bool


class QuorumView(NamedTuple):
    """The quorum as its leader describes it."""

    leader_id: int
    epoch: int
    since_ms: int | None
    now_ms: int
    high_watermark: int
    voters: tuple[MemberView, ...]
    observers: tuple[MemberView, ...]

    @property
    def majority(self) -> int:
        """How many voters must run."""
        return len(self.voters) // 2 + 1


def view_of(response: DescribeQuorumResponse, now_ms: int) -> QuorumView:
    """Return what an answer without errors says; `now_ms` counts if the leader does not tell its own time."""
    partition = response.topics[0].partitions[0]
    addresses = {
        node.node_id: f"{node.listeners[0].host}:{node.listeners[0].port}" for node in response.nodes if node.listeners
    }
    # Why its clock: ages by another one would say that voters are silent, or are not.
    leads = (
        state.last_fetch_timestamp for state in partition.current_voters if state.replica_id == partition.leader_id
    )
    now_ms = next((time_ms for time_ms in leads if time_ms >= 0), now_ms)
    ends = {state.replica_id: state.log_end_offset for state in partition.current_voters}
    # Why not without it: a leader that is being removed is no voter any more.
    end = ends.get(partition.leader_id, partition.high_watermark)

    silent_ms = check_quorum_of(response) or SILENT_MS

    def member(state: ReplicaState, role: str) -> MemberView:
        fetched_ms = _age(state.last_fetch_timestamp, now_ms)
        return MemberView(
            state.replica_id,
            "leader" if state.replica_id == partition.leader_id else role,
            addresses.get(state.replica_id, ""),
            uuid_to_string(state.replica_directory_id),
            state.log_end_offset,
            max(0, end - max(0, state.log_end_offset)),
            fetched_ms,
            _age(state.last_caught_up_timestamp, now_ms),
            not 0 <= fetched_ms <= silent_ms,
        )

    return QuorumView(
        partition.leader_id,
        partition.leader_epoch,
        active_since_of(response),
        now_ms,
        partition.high_watermark,
        tuple(member(state, "voter") for state in partition.current_voters),
        tuple(member(state, "observer") for state in partition.observers),
    )


def _age(time_ms: int, now_ms: int) -> int:
    return NEVER if time_ms < 0 else max(0, now_ms - time_ms)


def sentences(view: QuorumView) -> list[str]:
    """Return the state of the quorum in words."""
    said = [_leader(view), _strength(view)]
    for member in view.voters:
        if member.role == "leader":
            continue
        if member.is_silent:
            never = "has not fetched in this epoch"
            since = never if member.fetched_ms < 0 else f"last fetched {_ago(member.fetched_ms)}"
            said.append(f"Controller {member.id} {since}, and is {_records(member.behind)} behind.")
        elif member.behind:
            said.append(f"Controller {member.id} is {_records(member.behind)} behind.")
    return said + _observers(view)


def _observers(view: QuorumView) -> list[str]:
    """Return who follows and does not vote: brokers, and controllers that no one has added."""
    whole = [str(member.id) for member in view.observers if not member.behind]
    said = []
    if whole:
        verbs = "follows and does" if len(whole) == 1 else "follow and do"
        said.append(f"Node{'s' * (len(whole) > 1)} {listed(whole)} {verbs} not vote.")
    return said + [
        f"Node {member.id} follows and does not vote; it is {_records(member.behind)} behind."
        for member in view.observers
        if member.behind
    ]


def _leader(view: QuorumView) -> str:
    if view.since_ms is None:
        return f"Controller {view.leader_id} leads in epoch {view.epoch}."
    time = datetime.fromtimestamp(view.since_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    age = duration(max(0, view.now_ms - view.since_ms))
    return f"Controller {view.leader_id} leads in epoch {view.epoch}, since {time} ({age})."


def _strength(view: QuorumView) -> str:
    if len(view.voters) == 1:
        return "It is the only voter: without it nothing is decided."
    running = [member for member in view.voters if member.role == "leader" or not member.is_silent]
    spare = len(running) - view.majority
    silent = [str(member.id) for member in view.voters if member not in running]
    state = f"{len(running)} of {len(view.voters)} voters take part"
    if silent:
        state += f", without {listed(silent)}"
    if spare > 0:
        return f"{state}; {count(spare, 'more voter')} may fail."
    if spare == 0:
        return f"{state}; no other voter may fail."
    return f"{state}, and {view.majority} are needed: nothing is decided."


def _records(number: int) -> str:
    return count(number, "record")


def _ago(ms: int) -> str:
    return "never" if ms < 0 else f"{duration(ms)} ago"


def table_rows(view: QuorumView) -> list[dict[str, Any]]:
    """Return a row of COLUMNS for each member."""
    return [
        {
            "id": member.id,
            "role": member.role,
            "address": member.address or None,
            "log_end": member.log_end,
            "behind": member.behind,
            "last_fetch": None if member.role == "leader" else _ago(member.fetched_ms),
            "caught_up": None if member.role == "leader" else _ago(member.caught_up_ms),
            "directory_id": member.directory_id,
        }
        for member in (*view.voters, *view.observers)
    ]


def as_dict(view: QuorumView) -> dict[str, Any]:
    """Return everything for `--json`."""
    return {
        "leader": view.leader_id,
        "epoch": view.epoch,
        "since_ms": view.since_ms,
        "high_watermark": view.high_watermark,
        "voters": [member._asdict() for member in view.voters],
        "observers": [member._asdict() for member in view.observers],
        "words": sentences(view),
    }


def refusal(error: ErrorCode, message: str | None, node_id: int = -1, directory_id: str = "") -> str:
    """Return why the quorum refused, in one line."""
    who = f"controller {node_id} with directory {directory_id}"
    lines = {
        ErrorCode.UNSUPPORTED_VERSION: (
            "the voters are static, since kraft.version is 0: upgrade it first (kafka-features upgrade --feature "
            "kraft.version=1)"
        ),
        ErrorCode.DUPLICATE_VOTER: f"controller {node_id} is a voter already: see barnabas quorum status",
        ErrorCode.VOTER_NOT_FOUND: f"{who} is no voter, or the only one",
        ErrorCode.REQUEST_TIMED_OUT: (
            message
            if message and node_id >= 0
            else "the quorum did not decide in time: no leader, or another change is under way"
        ),
        ErrorCode.NOT_LEADER_OR_FOLLOWER: "no controller leads at the moment: try again, or see the controllers' logs",
        ErrorCode.NOT_CONTROLLER: "no controller leads at the moment: try again, or see the controllers' logs",
        ErrorCode.INCONSISTENT_CLUSTER_ID: f"{who} belongs to another cluster",
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
            "this user may not: it needs DESCRIBE on the cluster to look, and ALTER to change voters"
        ),
        ErrorCode.INVALID_REQUEST: message or f"{who} cannot be a voter: it needs a directory id and an address",
    }
    text = " ".join((lines.get(error) or message or "the quorum refused").split()).rstrip(".")
    return f"{text} ({error.name})"
