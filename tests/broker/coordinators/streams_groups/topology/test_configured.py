"""A topology with the topics that exist: every problem, what is missing, and the tasks."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.streams_groups.topology.configured import TASKS_MAX, configure
from barnabas.broker.coordinators.streams_groups.values import InternalTopic, Status, StatusCode, Subtopology, Topology
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology

COUNTING = topology(
    subtopology("0", "a b", writes="r"),
    subtopology("1", reads=[InternalTopic("r", 0, 2, (("x", "y"),))], changelogs="c"),
)
SOURCES = {"a": 3, "b": 5}
ALL = {**SOURCES, "r": 5, "c": 5}


def test_a_topology_whose_topics_exist_is_ready() -> None:
    found = configure(COUNTING, ALL.get)
    assert found.is_ready
    assert (found.missing, found.problem) == ((), None)
    assert {id_: (each.number_of_tasks, each.sources) for id_, each in found.subtopologies.items()} == {
        "0": (5, {"a", "b"}),
        "1": (5, {"r"}),
    }
    assert [each.is_stateful for each in found.subtopologies.values()] == [False, True]


def test_the_topology_has_the_counts() -> None:
    found = configure(COUNTING, ALL.get).topology
    assert found.epoch == COUNTING.epoch
    assert found.subtopologies["0"] == COUNTING.subtopologies["0"]
    assert found.subtopologies["1"].repartition_sources == (InternalTopic("r", 5, 2, (("x", "y"),)),)
    assert found.subtopologies["1"].changelogs == (InternalTopic("c", 5),)


def test_internal_topics_are_to_be_created() -> None:
    found = configure(COUNTING, SOURCES.get)
    assert not found.is_ready
    assert found.problem == Status(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: c, r")
    assert found.missing == (InternalTopic("c", 5), InternalTopic("r", 5, 2, (("x", "y"),)))
    assert found.subtopologies.keys() == {"0", "1"}


def test_only_what_does_not_exist_is_created() -> None:
    assert configure(COUNTING, {**SOURCES, "r": 5}.get).missing == (InternalTopic("c", 5),)


@pytest.mark.parametrize(
    ("existing", "code", "detail"),
    [
        ({}, StatusCode.MISSING_SOURCE_TOPICS, "Source topics a, b are missing."),
        ({"b": 1}, StatusCode.MISSING_SOURCE_TOPICS, "Source topics a are missing."),
        (
            {**ALL, "c": 4}, StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            "Existing topic c has different number of partitions: expected 5, found 4",
        ),
        (
            {**SOURCES, "r": 4}, StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            "Existing topic r has different number of partitions: expected 5, found 4",
        ),
    ],
)  # fmt: skip
def test_topics_that_do_not_fit(existing: dict[str, int], code: StatusCode, detail: str) -> None:
    found = configure(COUNTING, existing.get)
    assert found.problem == Status(code, detail)
    assert (found.topology, found.subtopologies, found.missing) == (COUNTING, {}, ())


def test_topics_that_are_not_copartitioned() -> None:
    found = configure(topology(subtopology("0", "a b", together=["a b"])), SOURCES.get)
    detail = "Following topics do not have the same number of partitions: [{a=3, b=5}]"
    assert found.problem == Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_a_source_that_is_named_many_times_is_one() -> None:
    found = configure(topology(subtopology("0", "a a a", reads="r=3 r=3")), {"a": 3, "r": 3}.get)
    assert found.subtopologies["0"].sources == {"a", "r"}


def test_three_topics_are_named_and_the_others_counted() -> None:
    found = configure(topology(subtopology("0", "e d c b a")), {}.get)
    assert found.problem is not None
    assert found.problem.detail == "Source topics a, b, c and 2 additional topics are missing."


def test_a_count_that_the_application_names_is_kept() -> None:
    made = topology(subtopology("0", "a", writes="r"), subtopology("1", reads="r=7", changelogs="c"))
    found = configure(made, {"a": 3}.get)
    assert found.missing == (InternalTopic("c", 7), InternalTopic("r", 7))
    assert found.subtopologies["1"].number_of_tasks == 7


def test_without_subtopologies_there_is_nothing_to_do() -> None:
    found = configure(Topology(0), {}.get)
    assert found.is_ready
    assert found.subtopologies == {}


def test_subtopologies_are_in_the_order_of_their_ids() -> None:
    found = configure(topology(*(subtopology(id_, "a") for id_ in ("2", "10", "0"))), {"a": 1}.get)
    assert list(found.subtopologies) == ["0", "10", "2"]


@pytest.mark.parametrize("found", [subtopology("0", writes="r"), subtopology("0", "a", changelogs="c=3")])
def test_an_invalid_topology_of_the_log_is_refused(found: Subtopology) -> None:
    with pytest.raises(ApiError) as caught:
        configure(topology(found), {"a": 3}.get)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_missing_source_topics_are_named_before_what_else_is_wrong() -> None:
    found = configure(topology(subtopology("0", "a"), subtopology("1")), {}.get)
    assert found.problem == Status(StatusCode.MISSING_SOURCE_TOPICS, "Source topics a are missing.")


def test_a_topology_has_not_too_many_tasks() -> None:
    """A topic in many subtopologies, or a repartition topic of as many partitions as a number can say."""
    each = TASKS_MAX // 10
    many = topology(*(subtopology(str(i), "a") for i in range(10)))
    assert configure(many, {"a": each}.get).is_ready
    large = topology(subtopology("0", "a", writes="r"), subtopology("1", reads=f"r={2**31 - 1}"))
    for found, existing in ((many, {"a": each + 1}), (large, {"a": 1})):
        with pytest.raises(ApiError, match=f"and can have at most {TASKS_MAX}") as caught:
            configure(found, existing.get)
        assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
