"""Closed loops of small requests: compiles the C programs beside this file, encodes the frames and runs the loop."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from barnabas.cluster import HOST, free_ports
from barnabas.common.clock import Clock
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from barnabas.protocol.schema import Request
from benchmarks.load.compiler import compiled
from tests.support.processes import end_process, tied_to_parent
from tests.support.waiting import eventually
from tests.support.wire import RawConnection

PRODUCE_VERSION = 9  # the oldest flexible version; it has topic names, not ids
METADATA_VERSION = 12
RECORD_BYTES = 100
ANSWER_TIMEOUT_MS = 30_000  # brokers may not know the topic yet
CLIENT_ID = "load-generator"
HEADER_BYTES = 9  # of a response: size 4, correlation id 4, the header's tags 1
_SOURCES = Path(__file__).parent
_NULL_CODE_OFFSET = 8


class LoadGeneratorError(Exception):
    """A broker's response is not the expected one. The message is one line."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The number of connections, and of requests in flight on each."""

    connections: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Work:
    """The frames to send: connection i sends frame i modulo their number."""

    frames: Sequence[bytes]
    answer_bytes: int  # of every response, with its size field
    error_code_offset: int  # in a response


@dataclass(frozen=True, slots=True)
class LoopResult:
    """The result of a loop."""

    answers: int  # responses in all, with those of the warm-up
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    generator_cpu_share: float  # of one core


class LoadGenerator:
    """The compiled programs. Used by one thread. The constructor raises CompilerError."""

    def __init__(self, directory: Path, clock: Clock, answer_timeout_ms: int = ANSWER_TIMEOUT_MS) -> None:
        self._directory = directory
        self._clock = clock
        self._answer_timeout_ms = answer_timeout_ms
        for name in ("load_generator", "null_responder"):
            compiled(name, directory)

    def produce_work(self, port: int, topic: str, partitions: int) -> Work:
        """Prepare produce requests of one small record, acks=1; connections use the partitions in turn. Sends each
        frame once to check the response. Raises LoadGeneratorError.
        """
        frames = [self._produce_frame(topic, partition) for partition in range(partitions)]
        # After the header: topics 1, the name's length 1, the name, partitions 1, index 4.
        return self._tried(port, frames, HEADER_BYTES + 2 + len(topic) + 5)

    def metadata_work(self, port: int, topic: str) -> Work:
        """Prepare requests for one topic's metadata. Sends one to check the response. Raises LoadGeneratorError."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        frame = _frame(request, METADATA_VERSION)
        answer = MetadataResponse.decode(memoryview(_ask(port, frame))[HEADER_BYTES:], METADATA_VERSION)
        # After the header: throttle time 4, brokers 1, each node id 4, host, port 4, rack 1, tags 1; cluster id,
        # controller id 4, topics 1.
        brokers = sum(4 + 1 + len(broker.host) + 4 + 1 + len(broker.rack or "") + 1 for broker in answer.brokers)
        return self._tried(port, [frame], HEADER_BYTES + 4 + 1 + brokers + 1 + len(answer.cluster_id or "") + 4 + 1)

    def run(self, port: int, work: Work, loop: Loop, warm_up_ms: int, measure_ms: int) -> LoopResult:
        """Run a closed loop. Raises LoadGeneratorError if the broker rejects a request or closes a connection."""
        frames = self._directory / "frames"
        frames.write_bytes(b"".join(work.frames))
        loops = (loop.connections, loop.in_flight, warm_up_ms, measure_ms)
        numbers = (port, *loops, work.answer_bytes, work.error_code_offset)
        command = [os.fspath(self._directory / "load_generator"), *map(str, numbers), os.fspath(frames)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise LoadGeneratorError(f"the load generator failed: {result.stderr.strip()}")
        measured = json.loads(result.stdout)
        if measured["errors"]:
            raise LoadGeneratorError(f"the broker refused {measured['errors']} of {measured['requests']} requests")
        return LoopResult(
            measured["answers_in_all"],
            measured["requests"] / measured["seconds"],
            measured["p50_us"] / 1000,
            measured["p99_us"] / 1000,
            measured["p999_us"] / 1000,
            measured["generator_cpu_seconds"] * 1000 / (warm_up_ms + measure_ms),
        )

    def own_limit(self, loop: Loop, measure_ms: int, answer_bytes: int) -> LoopResult:
        """Measure the generator against the null responder, which does no work."""
        work = Work([self._produce_frame("none", 0)], 8 + answer_bytes, _NULL_CODE_OFFSET)
        with self.null_responder(answer_bytes) as port:
            return self.run(port, work, loop, 200, measure_ms)

    @contextmanager
    def null_responder(self, answer_bytes: int) -> Iterator[int]:
        """Run the null responder, which answers every request with `answer_bytes` zeros. Yields its port."""
        (port,) = free_ports(1)
        command = [os.fspath(self._directory / "null_responder"), str(port), str(answer_bytes)]
        responder = subprocess.Popen(tied_to_parent(command))
        try:
            eventually("the null responder listens", lambda: _is_listening(port))
            yield port
        finally:
            end_process(responder)

    def _tried(self, port: int, frames: Sequence[bytes], error_code_offset: int) -> Work:
        """Send each frame once. Returns the work if all responses have the same size and no error."""

        def answers() -> list[bytes]:
            answers = [_ask(port, frame) for frame in frames]
            return answers if all(not any(answer[error_code_offset:][:2]) for answer in answers) else []

        try:
            found = eventually("requests are answered without an error", answers, self._answer_timeout_ms)
        except AssertionError as error:
            raise LoadGeneratorError(str(error)) from None
        sizes = {len(answer) for answer in found}
        if len(sizes) > 1:
            raise LoadGeneratorError(f"responses differ in size: {sorted(sizes)}")
        return Work(frames, sizes.pop(), error_code_offset)

    def _produce_frame(self, topic: str, partition: int) -> bytes:
        record = SimpleRecord(self._clock.wall_ms(), None, b"x" * RECORD_BYTES)
        data = PartitionProduceData(index=partition, records=build_batch([record]))
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        return _frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)


def _frame(request: Request, version: int) -> bytes:
    return encode_request(RequestHeader(type(request).API_KEY, version, 0, CLIENT_ID), request)


def _ask(port: int, frame: bytes) -> bytes:
    """Send a request and return the response, with its size field."""
    with RawConnection(port) as connection:
        connection.send_bytes(frame)
        payload = connection.receive_frame()
    if payload is None:
        raise LoadGeneratorError("the broker closed the connection")
    return len(payload).to_bytes(4) + payload


def _is_listening(port: int) -> bool:
    """Check whether a socket listens on the port. Reads /proc, since a connection would count as a client."""
    wanted = f":{port:04X} 00000000:0000 0A"
    assert HOST == "127.0.0.1"
    return wanted in Path("/proc/net/tcp").read_text()
