from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker, read_header
from barnabas.testing import Cluster
from barnabas.testing.topic_reader import Aborted, TopicReader


def values(cluster: Cluster, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, isolation=isolation)]


def produce(cluster: Cluster, topic: str, *contents: str, partition: int = 0, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for content in contents:
        producer.produce(topic, content, key=f"key of {content}", partition=partition, headers={"h": content})
    assert producer.flush(30) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_read_as_they_were_produced(kafka: Cluster, topic: str, codec: str) -> None:
    produce(kafka, topic, "a" * 200, "b", partition=1, **{"compression.type": codec})
    produce(kafka, topic, "c")
    first, second, third = kafka.records(topic)
    assert (first.topic, first.partition, first.offset, first.value, first.key) == (topic, 0, 0, b"c", b"key of c")
    assert (second.partition, second.offset, second.value) == (1, 0, b"a" * 200)
    assert (third.partition, third.offset, third.value) == (1, 1, b"b")
    assert third.headers == (("h", b"b"),)
    assert third.timestamp_ms >= second.timestamp_ms > 1_600_000_000_000


def test_each_record_is_read_once(kafka: Cluster, topic: str) -> None:
    with TopicReader(kafka.bootstrap, topic, committed_only=True) as reader:
        assert reader.read()
        assert reader.records == []
        produce(kafka, topic, "a")
        assert reader.read()
        produce(kafka, topic, "b")
        assert reader.read()
        assert [record.value for record in reader.records] == [b"a", b"b"]


def test_isolation_levels_work_as_in_consumers(kafka: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for content, ends in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, content, partition=0)
        producer.flush(30)  # else librdkafka drops what it aborts
        ends(30)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(30)
    produce(kafka, topic, "later")
    assert values(kafka, topic) == [b"committed"]
    assert values(kafka, topic, "read_uncommitted") == [b"aborted", b"committed", b"open", b"later"]
    producer.abort_transaction(30)
    assert values(kafka, topic) == [b"committed", b"later"]


def test_a_log_is_read_from_its_log_start_offset(kafka: Cluster, topic: str) -> None:
    produce(kafka, topic, "a", "b", "c")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([Position(topic, 0, 2)]).values():
        future.result(30)
    assert values(kafka, topic) == [b"c"]


def test_reading_an_unknown_topic_does_not_create_it(kafka: Cluster) -> None:
    with TopicReader(kafka.bootstrap, "not-there", committed_only=True) as reader:
        assert not reader.read()
    assert "not-there" not in AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics


def test_a_leader_that_does_not_answer_is_found_again(topic: str, kafka: Cluster) -> None:
    with TopicReader("127.0.0.1:1", topic, committed_only=True) as reader:
        assert not reader.read()
    with TopicReader(f"127.0.0.1:1,{kafka.bootstrap}", topic, committed_only=True) as reader:
        assert reader.read()
        for partition in reader._partitions.values():
            partition.address = ("127.0.0.1", 1)
        assert not reader.read()
        assert reader.read()


def data_batch(base_offset: int, producer_id: int, *, transactional: bool = True) -> bytes:
    return build_batch(
        [SimpleRecord(0, None, b"v")],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=transactional,
    )


def test_batches_from_the_first_offset_to_the_marker_are_hidden() -> None:
    aborted = Aborted([(20, 7), (10, 8)])

    def hides(batch: bytes) -> bool:
        return aborted.hides(read_header(batch), batch)

    assert not hides(data_batch(5, 7))  # committed before
    assert hides(data_batch(10, 8))
    assert not hides(data_batch(11, 7))
    assert not hides(data_batch(12, 8, transactional=False))
    assert hides(data_batch(20, 7))
    assert hides(
        end_txn_marker(
            ControlType.ABORT, producer_id=8, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=21
        )
    )
    assert not hides(data_batch(22, 8))
    assert hides(data_batch(23, 7))
