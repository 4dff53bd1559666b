"""Clients that overload a broker: compiles `pressure.c`, encodes the frames and runs each role as a process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from benchmarks.load.compiler import compiled
from tests.support.processes import tied_to_parent

CLIENT_ID = "pressure"
PRODUCE_VERSION = 9  # the newest that names topics instead of giving their ids, like FETCH_VERSION
FETCH_VERSION = 12
METADATA_VERSION = 9
API_VERSIONS_VERSION = 3
# The response to a produce request: size 4, correlation id 4, the header's tags 1, topics 1, the name's length 1, the
# name, partitions 1, index 4; then the error code.
_ERROR_CODE_OFFSET_LESS_NAME = 16
WARM_UP_MS = 500


@dataclass(frozen=True, slots=True)
class Offered:
    """The responses to an offered load."""

    requests_per_second: float
    p99_ms: float  # only meaningful for clients that wait for responses


class Aggressor:
    """A running role. Used by one thread."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def finish(self) -> dict[str, float]:
        """Close the role's standard input, so that it ends. Returns its result."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        return self.result()

    def result(self) -> dict[str, float]:
        """Wait until the role ends by itself. Returns its result."""
        assert self._process.stdout is not None
        last = self._process.stdout.read().strip()
        assert self._process.wait() == 0, "a client failed: see above"
        result: dict[str, float] = json.loads(last or "{}")
        return result

    def offered(self) -> Offered:
        """Wait until a client that offers a load ends by itself. Raises AssertionError if requests were rejected."""
        result = self.result()
        assert result["errors"] == 0, f"the broker rejected {result['errors']} requests"
        return Offered(result["requests"] / result["seconds"], result["p99_us"] / 1000)


class Pressure:
    """The compiled program. The constructor raises CompilerError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count()
        self._program = compiled("pressure", directory)

    def offer(
        self,
        port: int,
        connections: int,
        in_flight: int,
        frames: Sequence[bytes],
        measure_ms: int,
        warm_up_ms: int = WARM_UP_MS,
        login: Sequence[bytes] = (),
    ) -> Offered:
        """Run `offering` to its end."""
        with self.offering(port, connections, in_flight, frames, measure_ms, warm_up_ms, login) as offering:
            return offering.offered()

    @contextlib.contextmanager
    def offering(
        self,
        port: int,
        connections: int,
        in_flight: int,
        frames: Sequence[bytes],
        measure_ms: int,
        warm_up_ms: int = WARM_UP_MS,
        login: Sequence[bytes] = (),
    ) -> Iterator[Aggressor]:
        """Send produce requests; `in_flight` 0 does not wait for responses. All `frames` are for one topic.

        Each connection first sends the frames of `login` and waits for their responses. The warm-up begins when all
        have done so; then this yields. The role raises AssertionError if the broker closes a connection or responds
        out of order.
        """
        numbers = (connections, in_flight, warm_up_ms, measure_ms, _error_code_offset(frames[0]))
        files = [self._file(frames), *([self._file(login)] if login else [])]
        with self._running("offer", port, *numbers, *files, reports_ready=True) as aggressor:
            yield aggressor

    @contextlib.contextmanager
    def greedy(self, port: int, connections: int, frames: Sequence[bytes], measure_ms: int) -> Iterator[Aggressor]:
        """Send one request at a time on each connection, and read the responses at full speed."""
        numbers = (connections, 1, 0, measure_ms, 0)
        with self._running("offer", port, *numbers, self._file(frames), reports_ready=True) as aggressor:
            yield aggressor

    @contextlib.contextmanager
    def hold(self, port: int, connections: int) -> Iterator[Aggressor]:
        """Open silent connections. They close when the role finishes."""
        with self._running("hold", port, connections, reports_ready=True) as aggressor:
            yield aggressor

    @contextlib.contextmanager
    def half(self, port: int, connections: int, sent_bytes: int, frames: Sequence[bytes]) -> Iterator[Aggressor]:
        """Send the first bytes of a frame on each connection, and the rest when the role finishes."""
        with self._running("half", port, connections, sent_bytes, self._file(frames), reports_ready=True) as aggressor:
            yield aggressor

    @contextlib.contextmanager
    def read(
        self, port: int, connections: int, bytes_per_second: int, count: int, frames: Sequence[bytes]
    ) -> Iterator[Aggressor]:
        """Send `count` requests on each connection (0: until the socket is full). Read responses slowly or never."""
        numbers = (connections, bytes_per_second, count)
        with self._running("read", port, *numbers, self._file(frames), reports_ready=True) as aggressor:
            yield aggressor

    @contextlib.contextmanager
    def storm(self, port: int, per_second: int, measure_ms: int, frames: Sequence[bytes]) -> Iterator[Aggressor]:
        """Open `per_second` connections a second; each sends one request, reads the response and closes."""
        with self._running("storm", port, per_second, measure_ms, self._file(frames)) as aggressor:
            yield aggressor

    @contextlib.contextmanager
    def strangers(
        self, port: int, per_second: int, measure_ms: int, frames: Sequence[bytes], *, are_frames: bool = True
    ) -> Iterator[Aggressor]:
        """Open `per_second` connections a second; each sends the frames one after another and never logs in.

        With `are_frames` false, these are other bytes than Kafka frames.
        """
        framed = frames if are_frames else [len(data).to_bytes(4, "big") + data for data in frames]
        numbers = (per_second, measure_ms, 0 if are_frames else 4)
        with self._running("strangers", port, *numbers, self._file(framed)) as aggressor:
            yield aggressor

    @contextlib.contextmanager
    def sink(self, port: int) -> Iterator[Aggressor]:
        """Run a server that does no work."""
        with self._running("sink", port, reports_ready=True) as aggressor:
            yield aggressor

    @contextlib.contextmanager
    def _running(self, role: str, port: int, *arguments: object, reports_ready: bool = False) -> Iterator[Aggressor]:
        command = [os.fspath(self._program), role, str(port), *map(str, arguments)]
        with subprocess.Popen(
            tied_to_parent(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            if reports_ready:
                assert process.stdout is not None
                assert "held" in process.stdout.readline(), f"{role} could not be set up"
            yield Aggressor(process)
            assert process.stdin is not None
            if not process.stdin.closed:
                process.stdin.close()

    def _file(self, frames: Sequence[bytes]) -> Path:
        path = self._directory / f"frames-{next(self._numbers)}"
        path.write_bytes(b"".join(frames))
        return path


def produce_frame(now_ms: int, topic: str, partition: int, record_bytes: int) -> bytes:
    """A produce request of one record, acks=1."""
    record = SimpleRecord(now_ms, None, b"x" * record_bytes)
    data = PartitionProduceData(index=partition, records=build_batch([record]))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
    return encode_request(RequestHeader(0, PRODUCE_VERSION, 0, CLIENT_ID), request)


def fetch_frame(topic: str, max_bytes: int, *, partition: int = 0, max_wait_ms: int = 500) -> bytes:
    """A consumer's fetch from a partition's beginning, without a session."""
    part = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, topics=[FetchTopic(topic=topic, partitions=[part])]
    )
    return encode_request(RequestHeader(1, FETCH_VERSION, 0, CLIENT_ID), request)


def metadata_frame() -> bytes:
    """A request for the metadata of all topics."""
    return encode_request(RequestHeader(3, METADATA_VERSION, 0, CLIENT_ID), MetadataRequest(topics=None))


def versions_frame() -> bytes:
    """A client's first request: ApiVersions."""
    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
    return encode_request(RequestHeader(18, API_VERSIONS_VERSION, 0, CLIENT_ID), request)


def _error_code_offset(frame: bytes) -> int:
    """Compute the offset of the error code in the response to a produce request for one topic."""
    header_bytes = 4 + 2 + 2 + 4 + 2 + len(CLIENT_ID) + 1  # size, key, version, correlation id, client id, tags
    # Then: transactional id (null) 1, acks 2, timeout 4, the number of topics 1, the length of the name 1.
    name_bytes = frame[header_bytes + 8] - 1
    return _ERROR_CODE_OFFSET_LESS_NAME + name_bytes
