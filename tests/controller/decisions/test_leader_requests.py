"""ElectLeaders: preferred and unclean elections."""

from __future__ import annotations

import pytest

from barnabas.controller.decisions.leader_requests import PREFERRED, UNCLEAN, elect_leaders
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k43_elect_leaders as wire
from tests.controller.rig import Rig


def elect(rig: Rig, kind: int, *wanted: tuple[str, int], everything: bool = False) -> dict[tuple[str, int], ErrorCode]:
    topics = [wire.TopicPartitions(topic=name, partitions=[index]) for name, index in wanted]
    request = wire.ElectLeadersRequest(election_type=kind, topic_partitions=None if everything else topics)
    response = rig.decide(lambda view: elect_leaders(view, request))
    return {
        (topic.topic, result.partition_id): ErrorCode(result.error_code)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


@pytest.fixture
def rig() -> Rig:
    """0 was away: 1 leads what 0 should lead."""
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1], [1, 0]])
    rig.create("u", [[0]])
    rig.heartbeat(0, want_fence=True)
    return rig


def test_preferred_elections(rig: Rig) -> None:
    assert elect(rig, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(rig, PREFERRED, ("t", 1)) == {("t", 1): ErrorCode.ELECTION_NOT_NEEDED}
    assert elect(rig, PREFERRED, ("t", 9)) == {("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert elect(rig, PREFERRED, ("x", 0)) == {("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    ("kind", "topic", "index", "words"),
    [
        (PREFERRED, "t", 1, "Leader election not needed for topic partition."),
        (PREFERRED, "t", 0, "The preferred leader was not available."),
        (UNCLEAN, "u", 0, "Eligible topic partition leaders are not available."),
    ],
)
def test_an_election_that_is_not_held_has_the_words_of_apache_kafka(
    rig: Rig, kind: int, topic: str, index: int, words: str
) -> None:
    topics = [wire.TopicPartitions(topic=topic, partitions=[index])]
    request = wire.ElectLeadersRequest(election_type=kind, topic_partitions=topics)
    response = rig.decide(lambda view: elect_leaders(view, request))
    (result,) = response.replica_election_results[0].partition_result
    assert result.error_message == words


def test_unclean_elections(rig: Rig) -> None:
    assert elect(rig, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    assert elect(rig, UNCLEAN, ("u", 0)) == {("u", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_a_request_for_all_partitions_reports_only_needed_elections(rig: Rig) -> None:
    assert elect(rig, UNCLEAN, everything=True) == {("u", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_an_unknown_type(rig: Rig) -> None:
    with pytest.raises(ApiError) as caught:
        elect(rig, 7)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_an_unclean_election_may_lose_data() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    rig.heartbeat(1, want_fence=True)
    rig.heartbeat(0, want_fence=True)
    rig.heartbeat(1)
    assert rig.partition("t").leader == -1
    assert elect(rig, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.NONE}
    assert rig.partition("t").leader == 1
    assert rig.partition("t").isr == (1,)
