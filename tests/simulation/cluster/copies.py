"""Who has a record that was acknowledged with acks=all, as only a view from above can check it.

1. When it is acknowledged, at least min.insync.replicas brokers have it.
2. Then, and at each look, every member of the committed ISR has it, whether its process runs or not.
3. Where brokers flush each batch, a power failure at that moment would leave every member of the ISR the batch and its
   leader epoch.
4. At each look, a broker that is fenced or about to stop leads nothing, and is in no ISR with others.

A broker whose log is not open yet after a start counts as having it. So does every broker while one has lost power, and
is not in sync again: its unflushed records are gone, and its place in the ISR ends with its session.

Threads: the task of the producer that was answered; a task that looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.storage.directories.names import LEADER_EPOCH_FILE
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import CorruptBatchError, read_header, verify_crc

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.common.topic_partition import TopicPartition


SEGMENT: Final = ".log"


class Copies:
    """The check at each acknowledgement."""

    def __init__(
        self, nodes: Any, min_in_sync: int, is_power_out: Callable[[], bool], *, is_flushed: bool = False
    ) -> None:
        self._nodes = nodes
        self._min_in_sync = min_in_sync
        self._is_power_out = is_power_out
        self._is_flushed = is_flushed
        self._acknowledged: dict[TopicPartition, int] = {}  # the highest offset
        self.problems: list[str] = []

    def acknowledged(self, tp: TopicPartition, offset: int) -> None:
        """Check a record that a client was told to be safe."""
        self._acknowledged[tp] = max(offset, self._acknowledged.get(tp, -1))
        if self._is_power_out():
            return
        lacking = [broker for broker in self._nodes.brokers if not _may_have(broker, tp, offset)]
        if len(self._nodes.brokers) - len(lacking) < self._min_in_sync:
            self.problems.append(f"{tp}: offset {offset} was acknowledged, but {_names(lacking)} lack it")
        self._check_isr(tp, offset)
        if self._is_flushed:
            self._check_flushed(tp, offset)

    def look(self) -> None:
        """Check what was acknowledged before, and who is in ISRs."""
        image = self._nodes.committed_image()
        if image is None or self._is_power_out():
            return
        for tp, offset in self._acknowledged.items():
            self._check_isr(tp, offset)
        for topic, index, state in image.each_partition():
            for member in {state.leader} | (set(state.isr) if len(state.isr) > 1 else set()):
                broker = image.brokers.get(member)
                if broker is not None and not broker.is_active:
                    is_what = "fenced" if broker.is_fenced else "about to stop"
                    self.problems.append(f"{topic.name}-{index}: broker {member} is {is_what}, but in {state}")

    def _check_flushed(self, tp: TopicPartition, offset: int) -> None:
        for broker in self._nodes.in_isr(tp):
            lost = lost_without_power(broker.disk, tp, offset)
            if lost:
                self.problems.append(
                    f"{tp}: offset {offset} was acknowledged, but without power {broker.name} of the ISR loses {lost}"
                )

    def _check_isr(self, tp: TopicPartition, offset: int) -> None:
        lacking = [broker for broker in self._nodes.in_isr(tp) if not _may_have(broker, tp, offset)]
        if lacking:
            self.problems.append(f"{tp}: offset {offset} was acknowledged, but {_names(lacking)} of the ISR lack it")


def lost_without_power(disk: Any, tp: TopicPartition, base_offset: int) -> str:
    """Return what a power failure would take of the batch at an offset; empty if nothing, or it is not there."""
    inside = f"/{tp.topic}-{tp.partition}/"
    directory = next((path.rpartition("/")[0] for path in disk.files() if inside in path), "none")
    names = [path for path in disk.files() if path.startswith(f"{directory}/") and path.endswith(SEGMENT)]
    names = [path for path in names if int(path[: -len(SEGMENT)].rpartition("/")[2]) <= base_offset]
    if not names:
        return ""
    path = max(names)
    content = disk.written(path)
    begin = place_of(content, base_offset)
    if begin < 0:
        return ""
    header = read_header(content, begin)
    end = begin + header.size_in_bytes
    if disk.flushed(path)[begin:end] != content[begin:end]:
        return "it"
    epochs = disk.flushed(f"{directory}/{LEADER_EPOCH_FILE}").split(b"\n")
    is_known = any(line.startswith(b"%d " % header.partition_leader_epoch) for line in epochs)
    return "" if is_known else "its leader epoch"


def place_of(content: bytes, base_offset: int) -> int:
    """Return where the batch begins in a segment that has this first offset; -1 if there is none.

    Why a search: a segment may have a thousand batches, and each acknowledgement asks.
    """
    begin, pattern = len(content), base_offset.to_bytes(8, "big")
    while (begin := content.rfind(pattern, 0, begin + len(pattern) - 1)) >= 0:
        try:
            verify_crc(content, begin, read_header(content, begin))
        except (MalformedMessageError, CorruptBatchError):
            continue  # these bytes are in another field
        return begin
    return -1


def _may_have(broker: Any, tp: TopicPartition, offset: int) -> bool:
    services = getattr(broker.server, "services", None)
    partition = None if services is None else services.replica_manager.find(tp)
    return partition is None or partition.log is None or partition.log.log_end_offset > offset


def _names(brokers: list[Any]) -> str:
    return " and ".join(broker.name for broker in brokers)
