"""session.py: what is read at a request, and what is not. `test_alike.py` compares the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.fetch_sessions import session as module
from barnabas.broker.fetch_sessions.session import Session
from barnabas.broker.replication.delayed.delayed_fetch import DelayedFetch
from barnabas.broker.replication.idle_partitions import REVISIT_MS
from barnabas.broker.replication.reading import FetchReader
from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from tests.support.broker.broker_rig import BrokerRig, batch, fetch_changes, produce, state
from tests.support.broker.parked import Waiting

COUNT = 40

pytestmark = pytest.mark.skipif(
    not str(module.__file__).endswith(".py"), reason="calls of compiled code cannot be counted: see `make unit`"
)


class Consumer:
    """A consumer of a topic of COUNT partitions, in a session."""

    def __init__(self, rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.read: list[int] = []  # the number of partitions, for each pass over them
        self._session_id = 0
        self._epoch = 0
        read = FetchReader._read_in_order

        def counted(reader: FetchReader, params: Any, due: Any, moved: Any) -> Any:
            self.read.append(len(due))
            return read(reader, params, due, moved)

        monkeypatch.setattr(FetchReader, "_read_in_order", counted)

    def fetch(self, *changed: tuple[int, int], wait_ms: int = 500, **about: Any) -> Any:
        """Ask for these (partition, offset) and what the session has; returns the response, or a `Waiting`."""
        request = fetch_changes(
            ((partition, offset, -1, -1) for partition, offset in changed),
            max_wait_ms=wait_ms,
            session_id=self._session_id,
            session_epoch=self._epoch,
            **about,
        )
        answer = self.rig.answer(request, 13)
        self._epoch += 1
        if not isinstance(answer, Waiting):
            self._session_id = answer.session_id
        return answer

    @property
    def session(self) -> Session:
        (found,) = self.rig.services.fetch_sessions._sessions.values()
        return found


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    """Its session is open, and all partitions are idle."""
    rig = BrokerRig()
    rig.push({"t": [state(1) for _ in range(COUNT)]})
    made = Consumer(rig, monkeypatch)
    made.fetch(*((partition, 0) for partition in range(COUNT)), wait_ms=0)
    made.fetch(wait_ms=0)
    made.read.clear()
    assert (len(made.session.idle), len(made.session.due)) == (COUNT, 0)
    yield made
    rig.close()


def partitions(response: Any) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions]


def test_a_request_for_idle_partitions_waits_and_reads_nothing(consumer: Consumer) -> None:
    waiting = consumer.fetch()
    assert waiting.response is None
    consumer.rig.advance_ms(501)
    assert partitions(waiting.response) == []
    assert sum(consumer.read) == 0


def test_what_is_woken_is_read_alone(consumer: Consumer) -> None:
    waiting = consumer.fetch()
    consumer.rig.answer(produce(batch(b"news"), partition=7), 9)
    assert partitions(waiting.response) == [7]
    assert consumer.read == [0, 1]
    consumer.fetch((7, 1), wait_ms=0)
    assert consumer.read == [0, 1, 1]
    assert len(consumer.session.idle) == COUNT


def test_a_failed_disk_is_told_at_once(consumer: Consumer) -> None:
    waiting = consumer.fetch()
    consumer.rig.leadership.take_offline([TopicPartition("t", 7), TopicPartition("t", 9)])
    codes = {data.partition_index: data.error_code for data in waiting.response.responses[0].partitions}
    assert codes == {7: ErrorCode.KAFKA_STORAGE_ERROR, 9: ErrorCode.KAFKA_STORAGE_ERROR}


def test_small_sessions_are_read_whole(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_FROM", COUNT)
    consumer.rig.answer(produce(batch(b"news"), partition=7), 9)
    consumer.fetch((7, 1), wait_ms=0)
    assert len(consumer.session.due) == 1


def test_each_is_compared_again_in_time(consumer: Consumer) -> None:
    """Retention moves a log's start and wakes nobody."""
    log = consumer.rig.manager.partition(TopicPartition("t", 3)).log
    assert log is not None
    consumer.rig.answer(produce(batch(b"old"), partition=3), 9)
    consumer.fetch((3, 1), wait_ms=0)
    log.maybe_increment_log_start_offset(1, "retention")
    told = []
    for _ in range(21):
        consumer.rig.clock.advance_ms(REVISIT_MS // 20)
        told += partitions(consumer.fetch(wait_ms=0))
    assert told == [3]
    assert sum(consumer.read) < COUNT / 2


def test_another_kind_of_request_reads_everything(consumer: Consumer) -> None:
    consumer.fetch(wait_ms=0, isolation_level=1)
    assert consumer.read == [COUNT]


def test_a_reader_with_a_rack_may_be_sent_elsewhere_at_any_time(consumer: Consumer) -> None:
    for _ in range(2):
        consumer.fetch(wait_ms=0, rack_id="r1")
    assert consumer.read == [COUNT, COUNT]


def test_a_closed_session_is_woken_no_more(consumer: Consumer) -> None:
    idle = consumer.rig.manager.idle_partitions
    waiting = consumer.fetch()
    consumer._epoch = 0
    consumer.fetch((0, 0), wait_ms=0)
    consumer.rig.advance_ms(501)
    assert waiting.response is not None, "it makes nothing idle when it is answered late"
    assert not any(idle.has(TopicPartition("t", partition)) for partition in range(COUNT))


def test_requests_for_idle_partitions_are_counted(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    monkeypatch.setattr(type(consumer.rig.manager.stats.topic("t")), "fetched", lambda _, n=1: counted.append(n))
    waiting = consumer.fetch()
    consumer.rig.advance_ms(501)
    assert waiting.response is not None
    consumer.fetch(wait_ms=0, isolation_level=1)
    assert sum(counted) == COUNT * (1 + 1), (
        "one for the request that waited, though it read twice, and one for the last"
    )


def test_a_push_of_many_partitions_tries_the_waiting_request_once(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    try_complete = DelayedFetch.try_complete
    waiting = consumer.fetch(min_bytes=1000)
    for partition in range(COUNT):  # each is woken, and has too little to complete the request
        consumer.rig.manager.append_one(
            TopicPartition("t", partition),
            memoryview(bytearray(batch(b"x"))),
            required_acks=1,
            origin=AppendOrigin.CLIENT,
        )

    def counted(operation: DelayedFetch) -> bool:
        tries.append(operation)
        return try_complete(operation)

    monkeypatch.setattr(DelayedFetch, "try_complete", counted)
    consumer.rig.push({"t": [state(1, partition_epoch=1) for _ in range(COUNT)]})
    assert len(tries) == 1
    assert partitions(waiting.response) == list(range(COUNT))


def test_the_live_page_tells_what_the_request_waits_for(consumer: Consumer) -> None:
    consumer.fetch()
    ((operation, keys),) = consumer.rig.purgatories.fetch.waiting(5)
    assert keys == [consumer.session]
    (reason,) = operation.waits_for()
    assert reason["partition_count"] == COUNT


def test_a_late_partition_of_a_waiting_request_completes_it(consumer: Consumer) -> None:
    """A first event that is not enough must not hide a second one."""
    waiting = consumer.fetch(min_bytes=100)
    consumer.rig.answer(produce(batch(b"a"), partition=7), 9)
    assert waiting.response is None
    consumer.rig.answer(produce(batch(bytes(100)), partition=7), 9)
    assert partitions(waiting.response) == [7]


def test_a_request_whose_idle_partitions_are_all_woken_while_it_comes_waits_for_them(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_all = FetchReader.read_all

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(FetchReader, "read_all", read_all)
        for partition in range(COUNT):
            consumer.rig.answer(produce(batch(b"a"), partition=partition), 9)
        return read_all(*args)

    monkeypatch.setattr(FetchReader, "read_all", overtaken)
    waiting = consumer.fetch(min_bytes=10_000)
    assert isinstance(waiting, Waiting)
    assert waiting.response is None
    consumer.rig.answer(produce(batch(bytes(10_000)), partition=7), 9)
    assert waiting.response is not None
