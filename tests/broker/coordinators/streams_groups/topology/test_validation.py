"""What a topology must be, whatever topics exist."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.streams_groups.topology.validation import check
from barnabas.broker.coordinators.streams_groups.values import CopartitionGroup, InternalTopic, Subtopology, Topology
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (subtopology("0", "a", changelogs="c=3"), "Changelog topic c must have an undefined partition count, but it "),
        (subtopology("0", "a", changelogs="c=-1"), "Changelog topic c must have an undefined partition count"),
        (subtopology("0", "a", reads="r=-1"), "Repartition topic r must not have a negative partition count: -1."),
        (subtopology("0", "a", reads=[InternalTopic("r", 1, -2)]), "Internal topic r has an invalid replication"),
        (Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((1,)),)), "A copartition group of subtopology"),
        (Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((-1,)),)), "names a topic that does not exist"),
        (
            Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((), (), (0,)),)),
            "A copartition group of subtopology 0 names a topic that does not exist.",
        ),
    ],
)
def test_invalid_topologies(found: Subtopology, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        check(topology(subtopology("9", "a"), found))
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert message in str(caught.value)


def test_an_epoch_is_not_negative() -> None:
    with pytest.raises(ApiError) as caught:
        check(Topology(-1))
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH


def test_valid_topologies() -> None:
    check(Topology(0))
    check(topology(subtopology("0", "a b", reads="r s=3", writes="r t", changelogs="c", together=["a r", "b s"])))
