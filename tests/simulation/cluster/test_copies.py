"""What a power failure takes of a batch, on a disk made for it."""

from __future__ import annotations

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.simulation.cluster.copies import lost_without_power, place_of

TP = TopicPartition("t", 0)
LOG, EPOCHS = "/data/t-0/00000000000000000000.log", "/data/t-0/leader-epoch-checkpoint"


class FakeDisk:
    """Files, and what of them was flushed."""

    def __init__(self, written: bytes, flushed: bytes, epochs: bytes) -> None:
        self._flushed = {LOG: flushed, EPOCHS: epochs}
        self._written = {LOG: written, EPOCHS: epochs}

    def files(self) -> list[str]:
        return list(self._written)

    def written(self, path: str) -> bytes:
        return self._written[path]

    def flushed(self, path: str) -> bytes:
        return self._flushed[path]


def batch(offset: int) -> bytes:
    """A batch of leader epoch 3."""
    return build_batch([SimpleRecord(0, None, b"x" * 20)], base_offset=offset, leader_epoch=3)


def test_a_batch_is_found_by_its_offset() -> None:
    content = batch(0) + batch(1) + batch(256)
    assert [place_of(content, offset) for offset in (0, 1, 2, 256)] == [0, len(batch(0)), -1, 2 * len(batch(0))]


def test_a_batch_and_its_epoch_must_be_flushed() -> None:
    content = batch(0) + batch(1)
    epochs = b"0\n1\n3 0\n"
    assert lost_without_power(FakeDisk(content, content, epochs), TP, 1) == ""
    assert lost_without_power(FakeDisk(content, batch(0), epochs), TP, 0) == ""
    assert lost_without_power(FakeDisk(content, batch(0), epochs), TP, 1) == "it"
    assert lost_without_power(FakeDisk(content, content, b"0\n1\n2 0\n"), TP, 1) == "its leader epoch"
    assert lost_without_power(FakeDisk(content, b"", b""), TopicPartition("u", 0), 1) == ""
