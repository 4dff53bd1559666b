"""`replication/hosted_partitions.py`: lookups of online, offline and foreign partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.support.broker.broker_rig import BrokerRig, state

LED, FOLLOWED, FOREIGN, UNKNOWN = (TopicPartition("t", index) for index in range(4))


@pytest.fixture
def rig() -> Iterator[BrokerRig]:
    """Broker 1 leads t-0, follows t-1 and does not hold t-2."""
    made = BrokerRig()
    made.push({"t": [state(1), state(2, (1, 2)), state(2, (2, 3))]})
    yield made
    made.close()


def error_of(rig: BrokerRig, tp: TopicPartition) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        rig.manager.hosted.get(tp)
    return caught.value.code


def test_hosted_partitions_are_found(rig: BrokerRig) -> None:
    hosted = rig.manager.hosted
    assert hosted.get(LED).tp == LED
    assert [partition.tp for partition in hosted.online()] == [LED, FOLLOWED]
    assert hosted.count() == 2
    assert [partition.tp for partition in hosted.led()] == [LED]


def test_missing_partitions_have_their_errors(rig: BrokerRig) -> None:
    assert error_of(rig, FOREIGN) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(rig, UNKNOWN) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.manager.hosted.find(FOREIGN) is None


def test_broken_invariants_are_listed_by_partition(rig: BrokerRig) -> None:
    hosted = rig.manager.hosted
    assert hosted.violations() == []
    partition = hosted.get(LED)
    partition.role = replace(partition.role, isr=frozenset())
    (line,) = hosted.violations()
    assert line.startswith("t-0: inv. 3")


def test_an_offline_partition_is_a_storage_error_until_it_is_added_or_removed(rig: BrokerRig) -> None:
    hosted = rig.manager.hosted
    partition = hosted.get(LED)
    hosted.mark_offline(LED)
    assert error_of(rig, LED) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (hosted.find(LED), hosted.offline_count()) == (None, 1)
    hosted.add(partition)
    assert (hosted.get(LED), hosted.offline_count()) == (partition, 0)
    hosted.mark_offline(LED)
    assert hosted.remove(LED) is None
    assert error_of(rig, LED) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_name_of_a_hosted_partition_is_made_once(rig: BrokerRig) -> None:
    hosted = rig.manager.hosted
    assert hosted.name_of("t", 0) is hosted.get(LED).tp
    assert [hosted.name_of("t", index) for index in range(4)] == [LED, FOLLOWED, FOREIGN, UNKNOWN]
    assert isinstance(hosted.name_of("t", 3), TopicPartition)
