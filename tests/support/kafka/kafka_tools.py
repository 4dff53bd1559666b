"""Apache Kafka's command-line tools, run in one JVM for the whole test session (tests/support/kafka/kafka_runtime).

`KafkaTools.run("kafka-topics", "--list", ...)` does the same as `bin/kafka-topics.sh --list ...`.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
from dataclasses import dataclass

from barnabas.common.clock import SystemClock
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.processes import tied_to_parent

# The name of the shell script -> the class that it runs.
MAIN_CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}
# A tool runs for a second or two, so the JVM is tuned for a fast start and little memory.
SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m")
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool."""

    command: str
    exit_code: int
    stdout: str
    stderr: str

    def check(self) -> ToolResult:
        """This result. Raises AssertionError if the tool failed."""
        assert self.exit_code == 0, f"{self.command}: exit code {self.exit_code}\n{self.stdout}\n{self.stderr}"
        return self


class KafkaTools:
    """Runs tools one after another in one JVM, which starts with the first one. Used by one thread."""

    def __init__(self, runtime: KafkaRuntime, *jvm_options: str) -> None:
        self._runtime = runtime
        self._jvm_options = jvm_options
        self._clock = SystemClock()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, tool: str, *arguments: str, stdin: bytes = b"", timeout_s: float = TIMEOUT_S) -> ToolResult:
        """Run a tool to its end. Raises AssertionError if it takes longer than the timeout."""
        child = self._running_child()
        assert child.stdin is not None
        child.stdin.write(_encode_request(MAIN_CLASSES[tool], arguments, stdin))
        child.stdin.flush()
        end_ms = self._clock.monotonic_ms() + round(timeout_s * 1000)
        command = " ".join((tool, *arguments))
        try:
            (exit_code,) = struct.unpack(">i", self._read(4, end_ms))
            stdout, stderr = (self._read_text(end_ms) for _ in range(2))
        except TimeoutError:
            self.close()
            raise AssertionError(f"{command}: no end within {timeout_s} s") from None
        return ToolResult(command, exit_code, stdout, stderr)

    def close(self) -> None:
        """End the JVM, if one runs."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _running_child(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            command = tied_to_parent(self._runtime.command("ToolRunner", *SMALL_JVM, *self._jvm_options))
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._child

    def _read_text(self, end_ms: int) -> str:
        (size,) = struct.unpack(">i", self._read(4, end_ms))
        return self._read(size, end_ms).decode()

    def _read(self, size: int, end_ms: int) -> bytes:
        assert self._child is not None
        assert self._child.stdout is not None
        descriptor = self._child.stdout.fileno()
        received = bytearray()
        while len(received) < size:
            remaining_ms = max(0, end_ms - self._clock.monotonic_ms())
            if not select.select([descriptor], [], [], remaining_ms / 1000)[0]:
                raise TimeoutError
            chunk = os.read(descriptor, size - len(received))
            assert chunk, "the JVM of the tools ended"
            received += chunk
        return bytes(received)


def _encode_request(main_class: str, arguments: tuple[str, ...], stdin: bytes) -> bytes:
    parts = [struct.pack("B", len(arguments))]
    for value in (main_class.encode(), *(argument.encode() for argument in arguments), stdin):
        parts += [struct.pack(">i", len(value)), value]
    return b"".join(parts)
