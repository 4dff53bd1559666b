"""What `barnabas quorum` says, from answers made here."""

from __future__ import annotations

import pytest

from barnabas.cli.admin.quorum_words import as_dict, refusal, sentences, table_rows, view_of
from barnabas.common.ids import uuid_to_string
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k55_describe_quorum as wire
from barnabas.protocol.push_tags import TAG_ACTIVE_SINCE, set_active_since, set_check_quorum, set_tag

NOW_MS = 1_700_000_000_000
DIRECTORY = bytes(15) + b"\1"


def replica(node_id: int, end: int, fetched_ms: int = 100, caught_up_ms: int = 100) -> wire.ReplicaState:
    return wire.ReplicaState(
        replica_id=node_id,
        replica_directory_id=DIRECTORY,
        log_end_offset=end,
        last_fetch_timestamp=-1 if fetched_ms < 0 else NOW_MS - fetched_ms,
        last_caught_up_timestamp=-1 if caught_up_ms < 0 else NOW_MS - caught_up_ms,
    )


def answer(
    *voters: wire.ReplicaState, observers: tuple[wire.ReplicaState, ...] = (), leader: int = 100
) -> wire.DescribeQuorumResponse:
    for state in voters:
        if state.replica_id == leader:  # it tells its own time
            state.last_fetch_timestamp = state.last_caught_up_timestamp = NOW_MS
    partition = wire.ResponsePartitionData(
        leader_id=leader, leader_epoch=7, high_watermark=50, current_voters=list(voters), observers=list(observers)
    )
    nodes = [
        wire.Node(node_id=state.replica_id, listeners=[wire.Listener(name="C", host="h", port=9000 + state.replica_id)])
        for state in voters
    ]
    return wire.DescribeQuorumResponse(topics=[wire.ResponseTopicData(partitions=[partition])], nodes=nodes)


def words(response: wire.DescribeQuorumResponse) -> list[str]:
    return sentences(view_of(response, NOW_MS))


def test_a_whole_quorum() -> None:
    response = answer(replica(100, 51), replica(101, 51), replica(102, 50))
    set_active_since(response, NOW_MS - 65_000)
    first, *others = words(response)
    assert first.startswith("Controller 100 leads in epoch 7, since 2023-11-1")
    assert first.endswith(" (1 min 5 s).")
    assert others == ["3 of 3 voters take part; 1 more voter may fail.", "Controller 102 is 1 record behind."]


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 5_000, 3_600_000])
def test_the_clock_of_this_machine_does_not_matter(ahead_ms: int) -> None:
    response = answer(replica(100, 51), replica(101, 51), replica(102, 51, fetched_ms=7_000))
    set_active_since(response, NOW_MS - 65_000)
    assert sentences(view_of(response, NOW_MS + ahead_ms)) == words(response)
    assert words(response)[1] == "2 of 3 voters take part, without 102; no other voter may fail."


@pytest.mark.parametrize("raw", [b"", b"\1", bytes(9)])
def test_a_leader_that_does_not_say_since_when(raw: bytes) -> None:
    response = answer(replica(100, 51))
    set_tag(response, TAG_ACTIVE_SINCE, raw)
    assert words(response) == [
        "Controller 100 leads in epoch 7.",
        "It is the only voter: without it nothing is decided.",
    ]


def test_the_leader_says_when_a_voter_is_silent() -> None:
    response = answer(replica(100, 51), replica(101, 51, fetched_ms=4_000), replica(102, 51, fetched_ms=7_000))
    assert "without 101 and 102" in words(response)[1]
    set_check_quorum(response, 5_000)
    assert words(response)[1] == "2 of 3 voters take part, without 102; no other voter may fail."
    set_check_quorum(response, 7_000)
    assert words(response)[1] == "3 of 3 voters take part; 1 more voter may fail."


def test_a_voter_that_is_silent_does_not_count() -> None:
    response = answer(replica(100, 1_051), replica(101, 1_051), replica(102, 51, fetched_ms=90_000))
    assert words(response)[1:] == [
        "2 of 3 voters take part, without 102; no other voter may fail.",
        "Controller 102 last fetched 1 min 30 s ago, and is 1,000 records behind.",
    ]
    response = answer(replica(100, 51), replica(101, -1, fetched_ms=-1), replica(102, 51, fetched_ms=4_000))
    assert words(response)[1:] == [
        "1 of 3 voters take part, without 101 and 102, and 2 are needed: nothing is decided.",
        "Controller 101 has not fetched in this epoch, and is 51 records behind.",
        "Controller 102 last fetched 4.0 s ago, and is 0 records behind.",
    ]


def test_observers_follow() -> None:
    response = answer(replica(100, 51), observers=(replica(103, 40), replica(0, 51)))
    assert words(response)[-2:] == [
        "Node 0 follows and does not vote.",
        "Node 103 follows and does not vote; it is 11 records behind.",
    ]
    response = answer(replica(100, 51), observers=(replica(0, 51), replica(1, 51), replica(2, 51)))
    assert words(response)[-1] == "Nodes 0, 1 and 2 follow and do not vote."


def test_a_leader_that_is_no_voter_any_more() -> None:
    view = view_of(answer(replica(101, 40), replica(102, 50), leader=100), NOW_MS)
    assert [member.behind for member in view.voters] == [10, 0]


def test_the_rows_and_the_json() -> None:
    view = view_of(answer(replica(100, 51), replica(101, 49), observers=(replica(103, 9, -1, -1),)), NOW_MS)
    directory = uuid_to_string(DIRECTORY)
    rows = [tuple(row.values()) for row in table_rows(view)]
    assert rows == [
        (100, "leader", "h:9100", 51, 0, None, None, directory),
        (101, "voter", "h:9101", 49, 2, "100 ms ago", "100 ms ago", directory),
        (103, "observer", None, 9, 42, "never", "never", directory),
    ]
    found = as_dict(view)
    assert (found["leader"], found["epoch"], found["since_ms"], found["high_watermark"]) == (100, 7, None, 50)
    assert [member["id"] for member in found["voters"] + found["observers"]] == [100, 101, 103]
    assert found["words"] == sentences(view)


@pytest.mark.parametrize(
    ("error", "message", "said"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, None, "the voters are static, since kraft.version is 0"),
        (ErrorCode.DUPLICATE_VOTER, None, "controller 3 is a voter already"),
        (ErrorCode.VOTER_NOT_FOUND, None, "controller 3 with directory d is no voter"),
        (ErrorCode.REQUEST_TIMED_OUT, None, "the quorum did not decide in time"),
        (
            ErrorCode.REQUEST_TIMED_OUT,
            "The new voter is behind\nthe log's end.",
            "The new voter is behind the log's end",
        ),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, None, "no controller leads"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "x", "this user may not"),
        (ErrorCode.INVALID_REQUEST, None, "controller 3 with directory d cannot be a voter"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "odd", "odd"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, None, "the quorum refused"),
    ],
)
def test_each_refusal_is_one_line(error: ErrorCode, message: str | None, said: str) -> None:
    line = refusal(error, message, 3, "d")
    assert line.startswith(said)
    assert line.endswith(f"({error.name})")
    assert "\n" not in line
