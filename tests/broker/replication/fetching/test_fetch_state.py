"""`fetching/fetch_state.py`: decisions of a replica fetcher, without a socket."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.fetching.fetch_state import ClientSession, Wanted, truncation_offset
from barnabas.broker.replication.role import EpochEnd
from barnabas.common.topic_partition import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
ID_A, ID_B = b"a" * 16, b"b" * 16


def wanted(topic_id, offset=0):
    return Wanted(topic_id, offset, 0, 1, -1)


@pytest.mark.parametrize(
    ("leader", "own", "expected"),
    [
        (EpochEnd(3, 50), EpochEnd(3, 60), 50),  # the follower has more of the epoch
        (EpochEnd(3, 50), EpochEnd(3, 40), 40),  # the leader has more: the follower's next epoch is dropped
        (EpochEnd(3, 50), EpochEnd(2, 30), 30),  # the follower lacks the epoch: down to the end of its older one
        (EpochEnd(-1, 20), EpochEnd(-1, -1), 20),  # the leader knows no epoch
        (EpochEnd(-1, -1), EpochEnd(-1, -1), 10),  # the leader knows no end either: the high watermark
        (EpochEnd(3, 500), EpochEnd(3, 500), 100),  # never beyond the follower's end
    ],
)
def test_truncation_offset(leader, own, expected):
    assert truncation_offset(leader, own=own, log_end_offset=100, high_watermark=10) == expected


def test_a_session_names_only_changes():
    session = ClientSession()
    first = session.build({A: wanted(ID_A), B: wanted(ID_B)})
    assert (first.session_id, first.session_epoch, set(first.changed)) == (0, 0, {A, B})
    session.accepted(77)
    second = session.build({A: wanted(ID_A, 5), B: wanted(ID_B)})
    assert (second.session_id, second.session_epoch, set(second.changed), second.forgotten) == (77, 1, {A}, {})
    session.accepted(77)
    third = session.build({A: wanted(ID_A, 5)})
    assert (third.session_epoch, third.changed, third.forgotten) == (2, {}, {B: ID_B})


def test_a_recreated_topic_is_another_partition_of_the_session():
    session = ClientSession()
    session.build({A: wanted(ID_A)})
    session.accepted(1)
    build = session.build({A: wanted(ID_B)})
    assert (set(build.changed), build.forgotten) == ({A}, {A: ID_A})


def test_without_a_session_every_request_names_all_partitions():
    session = ClientSession()
    session.build({A: wanted(ID_A)})
    session.accepted(0)
    assert set(session.build({A: wanted(ID_A)}).changed) == {A}
    session.accepted(9)
    session.reset()
    assert session.build({A: wanted(ID_A)}).session_epoch == 0
