"""DescribeLogDirs and `broker/log_dirs.py`: sizes, volumes, filters, failed directories."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis.k35_describe_log_dirs import API
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.broker.apis.config_rig import answer_of


def fail() -> tuple[int, int]:
    raise OSError("gone")


def log(directory: str, topic: str, partition: int, size: int) -> Any:
    return SimpleNamespace(
        directory=f"{directory}/{topic}-{partition}",
        topic_partition=TopicPartition(topic, partition),
        size_in_bytes=size,
        high_watermark=5,
        log_end_offset=4 if partition else 5,
    )


def cache(metadata_version: int) -> Any:
    return SimpleNamespace(finalized_features=FinalizedFeatures({"metadata.version": metadata_version}, 1))


SERVICES = SimpleNamespace(
    metadata_cache=cache(30),
    log_manager=SimpleNamespace(
        all_logs=lambda: [log("/d1", "t", 1, 20), log("/d2", "u", 0, 30), log("/d1", "t", 0, 10)],
        future_logs=lambda: [log("/d2", "t", 0, 7)],
        is_cordoned=lambda directory: directory.path in ("/d2", "/d4"),
        get_log=lambda _tp: SimpleNamespace(log_end_offset=9),
        directories=[
            SimpleNamespace(path="/d1", is_offline=False, usage=lambda: (1000, 2**63)),
            SimpleNamespace(path="/d2", is_offline=False, usage=lambda: (2000, 20)),
            SimpleNamespace(path="/d3", is_offline=True, usage=fail),
            SimpleNamespace(path="/d4", is_offline=False, usage=fail),
        ],
    ),
)


def test_nothing_is_cordoned_below_metadata_version_4_3() -> None:
    """As in Kafka: the controller does not know of it before, so replicas still get there."""
    services = SimpleNamespace(log_manager=SERVICES.log_manager, metadata_cache=cache(29))
    response = answer_of(API, services, DescribeLogDirsRequest(topics=None), 5)
    assert not any(result.is_cordoned for result in response.results)


def described(topics: list[DescribableLogDirTopic] | None, version: int = 5) -> Any:
    return answer_of(API, SERVICES, DescribeLogDirsRequest(topics=topics), version)


@pytest.mark.parametrize("version", range(1, 6))
def test_all_directories_and_partitions(version: int) -> None:
    results = described(None, version).results
    assert [(r.log_dir, r.error_code) for r in results] == [
        ("/d1", 0),
        ("/d2", 0),
        ("/d3", ErrorCode.KAFKA_STORAGE_ERROR),
        ("/d4", ErrorCode.KAFKA_STORAGE_ERROR),
    ]
    assert [r.is_cordoned for r in results] == [False, version >= 5, False, False]
    (topic,) = results[0].topics
    assert [(p.partition_index, p.partition_size, p.offset_lag, p.is_future_key) for p in topic.partitions] == [
        (0, 10, 0, False),
        (1, 20, 1, False),
    ]
    moving, other = results[1].topics
    assert [(p.partition_index, p.partition_size, p.offset_lag, p.is_future_key) for p in moving.partitions] == [
        (0, 7, 4, True),
    ]
    assert [p.is_future_key for p in other.partitions] == [False]
    volumes = [(r.total_bytes, r.usable_bytes) for r in results]
    assert volumes == ([(1000, 2**63 - 1), (2000, 20), (-1, -1), (-1, -1)] if version >= 4 else [(-1, -1)] * 4)


def test_only_requested_partitions() -> None:
    results = described([DescribableLogDirTopic(topic="t", partitions=[1, 7])]).results
    assert [p.partition_index for p in results[0].topics[0].partitions] == [1]
    assert results[1].topics == []
    assert all(result.topics == [] for result in described([]).results)
