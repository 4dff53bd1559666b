"""What all clients of a simulated cluster have in common: how they find whom to ask, and which answers pass.

Each client is a process with an address of its own, on our own connection. It finds leaders by Metadata and
coordinators by FindCoordinator, keeps one connection to each broker, and repeats what fails for a reason that passes.

Threads: a client has one task.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, Final

from barnabas.client.connection import NodeConnection
from barnabas.client.errors import NodeConnectionError
from barnabas.common.clock import SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest

METADATA_VERSION: Final = 12
FIND_COORDINATOR_VERSION: Final = 4

#: The kinds of FindCoordinator's keys.
GROUP: Final = 0
TRANSACTION: Final = 1

NO_EPOCH: Final = -1

REQUEST_TIMEOUT_MS: Final = 5_000
RETRY_S: Final = 0.1

#: The errors after which a client asks again; any other answer is a failure of the cluster.
PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        # A former leader that does not know of its successor lacks the last batch. If no leader has it, the producer
        # never gets its acknowledgement, which a run notices in the end.
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_REPLICATION_FACTOR,  # while fewer brokers are there than a topic needs
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

Address = tuple[str, int]


class UnexpectedAnswerError(Exception):
    """A client got an answer that a correct cluster does not give."""


class Client:
    """See the module."""

    def __init__(self, name: str, bootstrap: list[Address]) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._next = 0  # of the bootstrap servers
        self._connections: dict[Address, NodeConnection] = {}
        self._leaders: dict[tuple[str, int], Address] = {}  # (topic, partition) -> address
        self._epochs: dict[tuple[str, int], int] = {}  # (topic, partition) -> the newest leader epoch it knows
        self._coordinators: dict[tuple[int, str], Address] = {}  # (kind, key) -> address
        self._pause = threading.Event()
        self._clock = SystemClock()
        self.trouble = ""  # the last error, for the story
        self.producer_ids: set[int] = set()  # that it was given
        self.is_calm = False  # set by the driver, when nothing breaks any more: the client breaks nothing, either
        self.is_stopping = False  # set by the driver; the client ends when its request in progress has ended

    def ask_any(self, message: Any, version: int) -> Any:
        """Send a request to one broker after the other until one answers."""
        while True:
            address = self._bootstrap[self._next % len(self._bootstrap)]
            try:
                return self._connection(address).send(message, version)
            except NodeConnectionError:
                self._next += 1
                self.wait()

    def ask_leader(self, topic: str, partition: int, message: Any, version: int) -> Any:
        """Send a request to the leader of a partition; None if there is none, or it does not answer."""
        return self.ask(self.leader(topic, partition), message, version)

    def leader(self, topic: str, partition: int) -> Address | None:
        """Return where the leader of a partition is; None if there is none."""
        address = self._leaders.get((topic, partition))
        if address is None:
            self._find_leaders(topic)
            address = self._leaders.get((topic, partition))
        return address

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the newest leader epoch that it knows of a partition; -1 if it knows none."""
        return self._epochs.get((topic, partition), NO_EPOCH)

    def ask_coordinator(
        self, kind: int, key: str, message: Any, version: int, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Any:
        """Send a request to the coordinator of a group or transactional id; None without an answer."""
        address = self._coordinators.get((kind, key))
        if address is None:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            found = self.ask_any(request, FIND_COORDINATOR_VERSION).coordinators[0]
            self._next += 1
            if self.may_pass(found.error_code, f"FindCoordinator of {key}"):
                return None
            address = self._coordinators[(kind, key)] = (found.host, found.port)
        return self.ask(address, message, version, timeout_ms)

    def coordinator(self, kind: int, key: str) -> Address | None:
        """Return where it takes the coordinator to be; None if it would ask first."""
        return self._coordinators.get((kind, key))

    def ask(self, address: Address | None, message: Any, version: int, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Send a request to a broker; None if there is no address, or no answer."""
        if address is None:
            self.wait()
            return None
        try:
            return self._connection(address).send(message, version, timeout_ms=timeout_ms)
        except NodeConnectionError as error:
            self.trouble = f"{self.name}: {error}"
            self.forget()
            self.wait()
            return None

    def forget(self) -> None:
        """Ask for the leaders and coordinators again before the next request."""
        self._leaders.clear()
        self._coordinators.clear()

    def wait(self, seconds: float = RETRY_S) -> None:
        """Wait before the next attempt."""
        self._pause.wait(seconds)

    def may_pass(self, error: int, what: str, also: Collection[int] = ()) -> bool:
        """Return whether there was an error that passes, after a pause. Raises UnexpectedAnswerError for any other."""
        if not error:
            return False
        self.trouble = f"{self.name}: {what} was answered with {ErrorCode(error).name}"
        if error not in PASSING and error not in also:
            raise UnexpectedAnswerError(self.trouble)
        self.forget()
        self.wait()
        return True

    def until_answered(self, ask: Callable[[], Any], error_of: Callable[[Any], int], what: str) -> Any:
        """Repeat a request until it has an answer without an error that passes."""
        while True:
            answer = ask()
            if answer is not None and not self.may_pass(error_of(answer), what):
                return answer

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()

    def _connection(self, address: Address) -> NodeConnection:
        found = self._connections.get(address)
        if found is None:
            found = NodeConnection(*address, timeout_ms=REQUEST_TIMEOUT_MS, client_id=self.name)
            self._connections[address] = found
        return found

    def metadata(self, topic: str) -> Any:
        """Return what some broker knows of a topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = self.ask_any(request, METADATA_VERSION)
        self._next += 1
        return answer

    def _find_leaders(self, topic: str) -> None:
        answer = self.metadata(topic)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for found in answer.topics:
            for partition in found.partitions:
                key = (topic, partition.partition_index)
                # Why: a broker that lags names an earlier leader. Kafka's clients keep the newest epoch too. No topic
                # that clients ask for is deleted, so epochs never begin again.
                if partition.leader_epoch < self._epochs.get(key, NO_EPOCH):
                    continue
                self._epochs[key] = partition.leader_epoch
                if partition.leader_id in addresses:
                    self._leaders[key] = addresses[partition.leader_id]
