"""The closed loop of small produce requests: compiles the C programs beside this file, makes frames, runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from barnabas.cluster import HOST, free_ports
from barnabas.common.clock import Clock
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.support.processes import end_process, tied_to_parent
from tests.support.waiting import eventually

PRODUCE_VERSION = 9  # the oldest flexible one: names, not ids, of topics
RECORD_BYTES = 100
CLIENT_ID = "load-generator"
_SOURCES = Path(__file__).parent
# The answer: size 4, correlation id 4, the header's tags 1, topics 1, the name's length 1, the name, partitions 1,
# index 4; then the error code.
_ERROR_CODE_OFFSET_LESS_NAME = 16
_NULL_ANSWER_BYTES = 60


class LoadGeneratorError(Exception):
    """The programs could not be compiled; one line."""


@dataclass(frozen=True, slots=True)
class Loop:
    """How many connections, each with how many requests in flight."""

    connections: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What the generator measured."""

    requests_per_second: float
    p50_ms: float
    p99_ms: float
    generator_cpu_share: float  # of one core


class LoadGenerator:
    """The compiled programs. Used by one thread."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise LoadGeneratorError("a C compiler is missing (Debian: apt-get install gcc libc6-dev)")
        self._directory = directory
        self._clock = clock
        self._directory.mkdir(parents=True, exist_ok=True)
        for name in ("load_generator", "null_responder"):
            command = [compiler, "-O2", "-o", str(directory / name), str(_SOURCES / f"{name}.c")]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                raise LoadGeneratorError(f"{name}.c does not compile: {result.stderr.strip()}")

    def run(self, port: int, topic: str, partitions: int, loop: Loop, warm_up_ms: int, measure_ms: int) -> LoopResult:
        """Produce single small records, acks=1, in a closed loop. Raises AssertionError if the broker refuses one."""
        frames = self._directory / "frames"
        frames.write_bytes(b"".join(self._frame(topic, partition) for partition in range(partitions)))
        error_offset = _ERROR_CODE_OFFSET_LESS_NAME + len(topic)
        numbers = (port, loop.connections, loop.in_flight, warm_up_ms, measure_ms, error_offset)
        command = [os.fspath(self._directory / "load_generator"), *map(str, numbers), os.fspath(frames)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"the load generator failed: {result.stderr.strip()}"
        measured = json.loads(result.stdout)
        assert measured["errors"] == 0, f"the broker refused {measured['errors']} requests"
        return LoopResult(
            measured["requests"] / measured["seconds"],
            measured["p50_us"] / 1000,
            measured["p99_us"] / 1000,
            measured["generator_cpu_seconds"] * 1000 / (warm_up_ms + measure_ms),
        )

    def own_limit(self, loop: Loop, measure_ms: int) -> LoopResult:
        """What the generator does against a server that answers at once."""
        (port,) = free_ports(1)
        command = [os.fspath(self._directory / "null_responder"), str(port), str(_NULL_ANSWER_BYTES)]
        responder = subprocess.Popen(tied_to_parent(command))
        try:
            eventually("the null responder listens", lambda: _is_listening(port))
            return self.run(port, "none", 1, loop, 200, measure_ms)
        finally:
            end_process(responder)

    def _frame(self, topic: str, partition: int) -> bytes:
        record = SimpleRecord(self._clock.wall_ms(), None, b"x" * RECORD_BYTES)
        data = PartitionProduceData(index=partition, records=build_batch([record]))
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
        return encode_request(RequestHeader(0, PRODUCE_VERSION, 0, CLIENT_ID), request)


def _is_listening(port: int) -> bool:
    """Whether some socket of this machine listens on the port (asked of the kernel: a probe would be a client)."""
    wanted = f":{port:04X} 00000000:0000 0A"
    assert HOST == "127.0.0.1"
    return wanted in Path("/proc/net/tcp").read_text()
