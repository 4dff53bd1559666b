"""Partition directories change hands: Apache Kafka 4.3.1 reads one that we wrote and compacted, we read one that it
wrote and compacted, and `kafka-dump-log` agrees with ours, compacted and recovered. The text files around them too,
with the checksums that we put into them.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from barnabas.broker.storage.directories import checkpoints
from barnabas.broker.storage.directories.names import HIGH_WATERMARK_FILE, LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE
from barnabas.broker.storage.log.log import AppendOrigin, FetchIsolation, Log
from barnabas.common.clock import SystemClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.records.batch import ControlType, end_txn_marker, iter_headers, iter_records
from barnabas.protocol.records.compression import CompressionType
from tests.clients.test_dump_log import COMPLAINTS
from tests.support.broker.compaction import append_keyed, compact, segment_bytes
from tests.support.broker.storage_bench import Bench
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.clients import list_offsets
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

SEGMENT_BYTES = 1024 * 1024  # Kafka's minimum
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3600000",
}
BROKER_CONFIG = {"log.cleaner.backoff.ms": "200", "log.cleaner.dedupe.buffer.size": str(4 << 20)}
KEYS = 60
Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


@pytest.fixture(scope="module")
def node(apache_runtime: KafkaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A node of Apache Kafka whose cleaner runs without delays."""
    with ApacheKafka(apache_runtime, tmp_path_factory.mktemp("apache"), BROKER_CONFIG) as running:
        yield running


def create(node: ApacheKafka, topic: str) -> None:
    """Create a topic with one partition on a node of Apache Kafka."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=TOPIC_CONFIG)])[topic].result(20)


def consumed(node: ApacheKafka, topic: str, isolation: str, start: int = 0) -> list[Row]:
    """Read all records of the topic's partition with a consumer from Apache Kafka's broker."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "exchange",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    rows: list[Row] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, start)])
        while True:
            message = consumer.poll(20)
            assert message is not None, "the partition has no end"
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return rows
            headers = tuple((name, value) for name, value in message.headers() or [])
            rows.append((message.offset(), message.key(), message.value(), headers, message.timestamp()[1]))
    finally:
        consumer.close()


def stored(target: Log, isolation: FetchIsolation) -> list[Row]:
    """Read all records from our log, as a consumer filters them by the aborted transactions."""
    rows: list[Row] = []
    offset = target.log_start_offset
    while offset < target.log_end_offset:
        data = target.read(offset, 1 << 20, isolation=isolation, min_one_message=True)
        if data.slice is None:
            break
        ahead = sorted(data.aborted_transactions or [], key=lambda each: each.first_offset)
        aborted: set[int] = set()
        raw = data.slice.read()
        for position, header in iter_headers(raw):
            offset = header.next_offset
            while ahead and ahead[0].first_offset <= header.last_offset:
                aborted.add(ahead.pop(0).producer_id)
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                rows += [
                    (record.offset, record.key, record.value, record.headers, record.timestamp)
                    for record in iter_records(raw, position)
                ]
    return rows


def test_we_read_what_apache_kafka_wrote_and_compacted(node: ApacheKafka, tmp_path: Path) -> None:
    create(node, "theirs")
    chance = random.Random(5)
    plain = Producer({"bootstrap.servers": node.bootstrap, "compression.type": "lz4", "linger.ms": 5})
    transactional = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "t", "linger.ms": 5})
    transactional.init_transactions(20)
    for number in range(240):
        for _ in range(20):
            value = None if chance.random() < 0.1 else b"%d " % number + chance.randbytes(chance.randint(0, 900))
            plain.produce("theirs", value, b"k%d" % chance.randrange(KEYS), headers={"n": str(number)})
        assert plain.flush(20) == 0
        if number % 20 == 7:
            transactional.begin_transaction()
            transactional.produce("theirs", b"in transaction %d" % number, b"t%d" % (number % 3))
            transactional.flush(20)
            (transactional.commit_transaction if number % 40 == 7 else transactional.abort_transaction)(20)
    del plain, transactional
    partition = node.data_directory / "theirs-0"
    eventually("its cleaner has cleaned the log", lambda: _is_clean(node, "theirs"))
    committed = consumed(node, "theirs", "read_committed")
    uncommitted = consumed(node, "theirs", "read_uncommitted")
    node.stop()
    shutil.copytree(partition, tmp_path / "theirs-0")
    for clean in (True, False):
        target = Bench(OsFileSystem(), str(tmp_path / "theirs-0")).open(clean=clean, compact=True)
        target.update_high_watermark(target.log_end_offset)
        assert stored(target, FetchIsolation.TXN_COMMITTED) == committed
        assert stored(target, FetchIsolation.HIGH_WATERMARK) == uncommitted
        target.close()
    node.start()
    # Our cleaner continues where Apache Kafka's ended: a second round over the same keys drops nothing that must stay.
    bench = Bench(OsFileSystem(), str(tmp_path / "theirs-0"))
    bench.clock.advance_ms(max(0, max(row[4] for row in committed) - bench.clock.wall_ms()))
    target = bench.open(compact=True, segment_bytes=SEGMENT_BYTES)
    target.update_high_watermark(target.log_end_offset)
    target.roll()
    compact(target, bench)
    latest = {row[1]: row for row in committed}
    assert sorted(stored(target, FetchIsolation.TXN_COMMITTED)) == sorted(latest.values())


def _is_clean(node: ApacheKafka, topic: str) -> bool:
    """Check whether all but the active segment were cleaned."""
    path = node.data_directory / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    offsets = [int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")]
    active = max(int(file.stem) for file in (node.data_directory / f"{topic}-0").glob("*.log"))
    return 0 < active <= max(offsets, default=-1)


def write_ours(directory: Path) -> Log:
    """A compacted partition: all codecs, headers, tombstones, transactions, producers whose last batches are empty."""
    bench = Bench(OsFileSystem(), str(directory))
    bench.clock.advance_ms(SystemClock().wall_ms() - bench.clock.wall_ms())  # its cleaner uses this clock
    target = bench.open(compact=True, delete=False, segment_bytes=40_000, index_interval_bytes=500)
    chance = random.Random(6)
    sequence = clean = 0
    append_keyed(target, bench, ("k0", "superseded"), producer_id=77, producer_epoch=0, base_sequence=0)
    for number in range(400):
        pairs: list[tuple[str | None, str | None]] = [
            (
                f"k{chance.randrange(KEYS)}",
                None if chance.random() < 0.1 else f"{number} " + "v" * chance.randrange(300),
            )
            for _ in range(chance.randint(1, 9))
        ]
        kind = list(CompressionType)[number % 5]
        options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence} if number % 3 else {}
        sequence += len(pairs) if number % 3 else 0
        append_keyed(target, bench, *pairs, epoch=number // 150, compression=kind, **options)
        bench.clock.advance_ms(11)
        if number % 25 == 4:
            _transaction(target, bench, number)
        if number in (150, 300, 399):
            target.roll()
            clean = compact(target, bench, first_dirty=clean)
    append_keyed(target, bench, ("last", "one"), epoch=3)
    target.flush()
    return target


def _transaction(target: Log, bench: Bench, number: int) -> None:
    append_keyed(
        target,
        bench,
        (f"t{number % 4}", f"in transaction {number}"),
        epoch=number // 150,
        producer_id=9,
        producer_epoch=1,
        base_sequence=number // 25,
        is_transactional=True,
    )
    marker = end_txn_marker(
        ControlType.ABORT if number % 50 == 4 else ControlType.COMMIT,
        producer_id=9,
        producer_epoch=1,
        coordinator_epoch=2,
        timestamp_ms=bench.clock.wall_ms(),
    )
    target.append_as_leader(memoryview(bytearray(marker)), leader_epoch=number // 150, origin=AppendOrigin.COORDINATOR)
    target.update_high_watermark(target.log_end_offset)


def test_apache_kafka_reads_what_we_wrote_and_compacted(node: ApacheKafka, tmp_path: Path) -> None:
    target = write_ours(tmp_path / "ours-0")
    committed = stored(target, FetchIsolation.TXN_COMMITTED)
    uncommitted = stored(target, FetchIsolation.HIGH_WATERMARK)
    assert len(committed) <= KEYS + 5 < target.log_end_offset / 10
    assert 0 in {header.record_count for data in segment_bytes(target) for _, header in iter_headers(data)}
    target.close()
    create(node, "ours")
    node.stop()
    partition = node.data_directory / "ours-0"
    for path in partition.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in (tmp_path / "ours-0").iterdir():
        if not path.name.endswith(".deleted"):
            shutil.copy(path, partition)
    node.start()
    assert consumed(node, "ours", "read_committed") == committed
    assert consumed(node, "ours", "read_uncommitted") == uncommitted
    producer = Producer({"bootstrap.servers": node.bootstrap})
    try:
        producer.produce("ours", b"theirs now", b"k0")
        assert producer.flush(20) == 0
    except KafkaException as error:
        raise AssertionError("the partition takes no records") from error
    assert consumed(node, "ours", "read_committed")[-1][2] == b"theirs now"
    log = node.log_file.read_text()
    assert "corrupt" not in log.lower(), "it found fault with a file of ours"


def _text_files(node: ApacheKafka) -> list[Path]:
    """Return all text files of a log directory, with those of the metadata partition."""
    names = ("*-checkpoint", "*/leader-epoch-checkpoint", "*/partition.metadata", "meta.properties")
    return sorted(path for name in names for path in node.data_directory.glob(name))


def _add_checksum(path: Path, offsets: dict[TopicPartition, int]) -> None:
    """Rewrite a text file with our code; offset checkpoints with `offsets` added."""
    fs, name = OsFileSystem(), str(path)
    if path.name == "meta.properties":
        found = checkpoints.read_meta_properties(fs, name)
        assert found is not None
        identity = {"cluster_id": found["cluster.id"], "directory_id": found["directory.id"]}
        checkpoints.write_meta_properties(fs, name, node_id=int(found["node.id"]), **identity)
    elif path.name == "partition.metadata":
        topic_id = checkpoints.read_partition_metadata(fs, name)
        assert topic_id is not None
        checkpoints.write_partition_metadata(fs, name, topic_id)
    elif path.name == "leader-epoch-checkpoint":
        checkpoints.write_epochs(fs, name, checkpoints.read_epochs(fs, name))
    else:
        checkpoints.OffsetCheckpoint(fs, name).write(checkpoints.OffsetCheckpoint(fs, name).read() | offsets)


def test_apache_kafka_reads_our_text_files_and_we_read_its(node: ApacheKafka) -> None:
    create(node, "checksums")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(10):
        producer.produce("checksums", b"%d" % number, b"k%d" % number, partition=0)
        assert producer.flush(20) == 0
    del producer
    node.stop()
    tp = TopicPartition("checksums", 0)
    for path in _text_files(node):
        if path.stat().st_size:  # Kafka creates some of them empty
            _add_checksum(path, {tp: 3} if path.name == LOG_START_OFFSET_FILE else {})
    names = {path.name: path.read_bytes() for path in _text_files(node)}
    with_checksum = {name for name, content in names.items() if b"crc32c" in content or content.count(b"\t") > 5}
    assert with_checksum >= {
        "leader-epoch-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
        "partition.metadata",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    node.start()
    partition = confluent_kafka.TopicPartition("checksums", 0)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    assert list_offsets(admin, {partition: OffsetSpec.earliest()}) == {partition: 3}
    assert [row[0] for row in consumed(node, "checksums", "read_committed", 3)] == list(range(3, 10))
    node.stop()
    log = node.log_file.read_text()
    assert "Malformed" not in log
    assert "corrupt" not in log.lower()
    fs, directory = OsFileSystem(), node.data_directory
    for name, offset in ((LOG_START_OFFSET_FILE, 3), (RECOVERY_POINT_FILE, 10), (HIGH_WATERMARK_FILE, 10)):
        written = directory / name
        assert written.read_bytes() != names[name], "Apache Kafka has written it again"
        assert checkpoints.OffsetCheckpoint(fs, str(written)).read()[tp] == offset
    node.start()


@pytest.fixture
def dump(tools: KafkaTools) -> Callable[..., str]:
    """Runs kafka-dump-log, checks that it has no complaint and returns its output."""

    def run(files: list[Path], *arguments: str) -> str:
        assert files
        names = ",".join(str(file) for file in sorted(files))
        result = tools.run("kafka-dump-log", "--files", names, *arguments).check()
        lines = [line for line in (result.stdout + result.stderr).splitlines() if not line.lstrip().startswith("-1 ")]
        # A compacted log has gaps; the tool calls them non-consecutive.
        lines = [line for line in lines if " is followed by " not in line and "Non-consecutive" not in line]
        assert COMPLAINTS.findall("\n".join(lines)) == []
        return result.stdout

    return run


@pytest.mark.parametrize("recovered", [False, True], ids=["compacted", "compacted and recovered"])
def test_kafka_dump_log_agrees(tmp_path: Path, dump: Callable[..., str], recovered: bool) -> None:
    directory = tmp_path / "ours-0"
    target = write_ours(directory)
    expected = stored(target, FetchIsolation.HIGH_WATERMARK)
    target.close()
    if recovered:
        for path in [*directory.glob("*.index"), *directory.glob("*.timeindex"), *directory.glob("*.txnindex")]:
            path.unlink()
        again = Bench(OsFileSystem(), str(directory)).open(compact=True, index_interval_bytes=500)
        again.flush()
        again.close()
    output = dump(sorted(directory.glob("*.log")), "--deep-iteration", "--print-data-log")
    printed = [int(line.split("offset: ")[1].split()[0]) for line in output.splitlines() if " key: k" in line]
    assert printed == [row[0] for row in expected if row[1] is not None and row[1].startswith(b"k")]
    assert "deleteHorizonMs: OptionalLong[" in output
    dump(sorted(directory.glob("*.index")), "--index-sanity-check")
    dump(sorted(directory.glob("*.timeindex")), "--verify-index-only")
    if not recovered:  # recovery indexes no aborted transaction for a marker without remaining data
        assert "producerId: 9" in dump(sorted(directory.glob("*.txnindex")))
    assert "producerId: 5" in dump(sorted(directory.glob("*.snapshot")))
