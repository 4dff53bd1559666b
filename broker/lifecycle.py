"""Lifecycle: how this broker joins the cluster, shows that it is alive, and leaves.

States (BrokerState)
    STARTING --registered--> RECOVERY (fenced: catching up) --unfenced--> RUNNING
    RUNNING --begin_shutdown--> PENDING_CONTROLLED_SHUTDOWN --told so, or time up--> SHUTTING_DOWN

Rules
1. The broker's incarnation id is drawn once in the life of the process; registering again with it gives the same epoch.
2. A heartbeat carries how far the pushes have told us the metadata log (`current_metadata_offset`); the controller
   unfences a broker that knows of its own registration.
3. A registration, and each heartbeat, says how far this broker has come in the metadata of its cluster, in any of its
   lives. A controller whose log does not hold that is a wrong or an old one: nothing that it says is obeyed. The broker
   goes on as it is (one that leads goes on serving, as while a controller is down; one that starts waits), says so
   every `REMINDER_MS`, and tries again: the right controller may come back, and `barnabas controller recover` asks
   brokers that live.
4. Another process with this broker's id or address: a broker that was registered in this life has been replaced, and
   ends. One that starts waits for the other's session to end, initial.broker.registration.timeout.ms at most.
5. A controller of another cluster ends a broker that starts; one that was registered goes on, as under rule 3.
6. A controlled shutdown goes on heartbeating, wanting to shut down, until the controller has moved our leaders away,
   or has been away itself for too long.

Threads: `broker-<id>-lifecycle-manager-event-handler` talks to the controller; others `wake` it or wait for a state.
Source: Kafka's BrokerLifecycleManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from barnabas.broker.features import SUPPORTED_FEATURES
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError, TrafficObserver
from barnabas.common.ids import random_uuid
from barnabas.common.threads import ServiceThread
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k62_broker_registration as registration_wire
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.registration_tags import Applied, reason_of, set_applied

if TYPE_CHECKING:
    from barnabas.broker.metadata_cache import MetadataCache
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.lifecycle")

RETRY_MS = 100
REFUSED_RETRY_MS = 1_000
REMINDER_MS = 60_000
SHUTDOWN_HEARTBEAT_MS = 50
CONTROLLER_GONE_MS = 2_000
REGISTRATION_VERSION = 4
HEARTBEAT_VERSION = 2
NO_EPOCH = -1
SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

# The controller has forgotten us, or knows another incarnation: register again.
UNREGISTERED = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
# No use in trying again.
HOPELESS = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION})
IF_LOST = (
    ". If this cluster's controller lost its disk: stop it, start the brokers, which wait for it, and rebuild its log "
    "with: barnabas controller recover FILE --from-brokers HOST:PORT,..."
)
# The controller's log is not the one that this broker's topics are in (rules 3 and 5).
WRONG_LOG = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.INCONSISTENT_CLUSTER_ID})


class BrokerState(IntEnum):
    """Kafka's numbers, as the BrokerState metric shows them."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class Advertised:
    """What the registration tells of this broker besides its ids."""

    __slots__ = ("listeners", "log_dirs", "rack")

    def __init__(
        self, listeners: Sequence[tuple[str, str, int, str]], log_dirs: Sequence[bytes], rack: str | None
    ) -> None:
        self.listeners = listeners  # (name, host, port, security protocol)
        self.log_dirs = log_dirs  # directory ids
        self.rack = rack


class Lifecycle:
    """See the module. `on_registered(epoch)` is called on its thread after each registration, before heartbeats."""

    def __init__(
        self,
        *,
        broker_id: int,
        cluster_id: str,
        addresses: Sequence[tuple[str, int]],
        advertised: Advertised,
        config: Any,
        clock: Clock,
        metadata_cache: MetadataCache,
        applied: Callable[[], Applied],
        on_registered: Callable[[int], None],
        on_refused: Callable[[str], None],
        offline_log_dirs: Callable[[], Sequence[bytes]],
        cordoned_log_dirs: Callable[[], Sequence[bytes]],
        traffic: TrafficObserver | None = None,
        connect: Connect = NodeConnection,
    ) -> None:
        # Fixed before start.
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._advertised = advertised
        self._config = config
        self._clock = clock
        self._metadata_cache = metadata_cache
        self._applied = applied  # how far this broker has come, in any of its lives
        self._on_registered = on_registered
        self._on_refused = on_refused
        self._offline_log_dirs = offline_log_dirs
        self._cordoned_log_dirs = cordoned_log_dirs
        self._traffic = traffic
        self._connect = connect
        self.incarnation_id = random_uuid()  # never shown: who knows it may push (push_tags.py)
        # Owner: the lifecycle thread; others read.
        self._addresses = list(addresses)  # the one to try next is first
        self._connection: NodeConnection | None = None
        self.epoch = NO_EPOCH
        self.is_fenced = True
        self._told_cordoned: list[bytes] = []  # the cordoned directories that the controller knows of
        self._unreached_since_ms: int | None = None  # monotonic; None while the controller answers
        self._was_registered = False  # in this life
        self._refused_since_ms: int | None = None  # monotonic; None after a registration
        self._reminded_ms: int | None = None  # monotonic; when a person was told of the refusal
        # Guarded by: _condition.
        self._condition = threading.Condition()
        self.state = BrokerState.NOT_RUNNING
        self._is_woken = False
        self._wants_shutdown = False
        self._is_stopping = False
        self._untold: dict[bytes, int] = {}  # failed directories: when the controller must know (monotonic ms)
        self._thread = ServiceThread(f"broker-{broker_id}-lifecycle-manager-event-handler", "lifecycle", self._run)

    def start(self) -> None:
        """Start to register."""
        self._set_state(BrokerState.STARTING)
        self._thread.start()

    def wake(self) -> None:
        """Something that a heartbeat tells has changed: send one now, if it may unfence us."""
        with self._condition:
            if self.is_fenced:
                self._is_woken = True
                self._condition.notify_all()

    def tell_of_cordoned_directories(self) -> None:
        """Tell the controller, with a heartbeat now, if other log directories are cordoned than it knows of."""
        if list(self._cordoned_log_dirs()) != self._told_cordoned:
            with self._condition:
                self._is_woken = True
                self._condition.notify_all()

    def tell_of_failed_directory(self, directory_id: bytes) -> None:
        """Tell the controller, with a heartbeat now, that a log directory failed.

        If it cannot be told within log.dir.failure.timeout.ms the broker ends: it would keep leadership of partitions
        that it cannot serve.
        """
        with self._condition:
            self._untold[directory_id] = self._clock.monotonic_ms() + int(self._config.log_dir_failure_timeout_ms)
            self._is_woken = True
            self._condition.notify_all()

    def wait_for(self, state: BrokerState, timeout_ms: int) -> bool:
        """Wait until the broker is in this state (or stops); returns whether it is."""
        with self._condition:
            self._condition.wait_for(lambda: self.state == state or self._is_stopping, timeout_ms / 1000)
            return self.state == state

    def begin_controlled_shutdown(self) -> None:
        """Ask the controller to move our leaders away; wait for SHUTTING_DOWN."""
        with self._condition:
            self._wants_shutdown = True
            self._is_woken = True
            self._condition.notify_all()
        if self.epoch == NO_EPOCH:
            self._set_state(BrokerState.SHUTTING_DOWN)
        else:
            self._set_state(BrokerState.PENDING_CONTROLLED_SHUTDOWN)

    def shutdown(self) -> None:
        """Stop the thread."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        connection = self._connection
        if connection is not None:
            connection.abort()
        if self._thread.is_alive():
            self._thread.join()
        self._set_state(BrokerState.NOT_RUNNING)

    # The lifecycle thread

    def _run(self) -> None:
        while not self._is_stopping:
            delay_ms = self._step()
            with self._condition:
                self._condition.wait_for(lambda: self._is_woken or self._is_stopping, delay_ms / 1000)
                self._is_woken = False
        if self._connection is not None:
            self._connection.close()

    def _step(self) -> int:
        """Register or heartbeat; returns after how many milliseconds to come again."""
        now_ms = self._clock.monotonic_ms()
        if any(now_ms >= deadline_ms for deadline_ms in self._untold.copy().values()):
            self._on_refused("the controller could not be told in time that a log directory failed")
        try:
            return self._register() if self.epoch == NO_EPOCH else self._heartbeat()
        except NodeConnectionError as error:
            level = (
                logging.INFO if self._unreached_since_ms is None else logging.DEBUG
            )  # Why: it is tried 10 times a second
            log.log(level, "the controller cannot be reached: %s", error)
            self._next_address()
            self._maybe_leave_alone()
            return RETRY_MS

    def _maybe_leave_alone(self) -> None:
        """Shut down without the controller's consent if it has been away for longer than a restart takes."""
        now_ms = self._clock.monotonic_ms()
        if self._unreached_since_ms is None:
            self._unreached_since_ms = now_ms
        if self._wants_shutdown and now_ms - self._unreached_since_ms >= CONTROLLER_GONE_MS:
            log.warning("nobody moves this broker's leaders away: it shuts down all the same")
            self._set_state(BrokerState.SHUTTING_DOWN)

    def _register(self) -> int:
        response = self._send(self._registration(), REGISTRATION_VERSION)
        error = ErrorCode(response.error_code)
        if error == ErrorCode.NONE:
            self.epoch = response.broker_epoch
            self._was_registered = True
            self._refused_since_ms = self._reminded_ms = None
            log.info("registered broker %d with epoch %d", self._broker_id, self.epoch)
            self._set_state(BrokerState.RECOVERY)
            self._on_registered(self.epoch)
            return 0
        self._refused(error, reason_of(response) or error.message)
        return REFUSED_RETRY_MS if error in WRONG_LOG else RETRY_MS

    def _refused(self, error: ErrorCode, reason: str) -> None:
        """Rules 3 to 5."""
        now_ms = self._clock.monotonic_ms()
        if self._refused_since_ms is None:
            self._refused_since_ms = now_ms
        if error == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            patience_ms = int(self._config.initial_broker_registration_timeout_ms)
            if self._was_registered:
                self._on_refused(f"another process has taken the place of this broker: {reason}")
            elif now_ms - self._refused_since_ms >= patience_ms:
                self._on_refused(f"the controller refuses this broker since {patience_ms} ms: {reason}")
            self._remind(f"The controller refuses this broker for now: {reason}")
        elif error == ErrorCode.OFFSET_OUT_OF_RANGE or (error in WRONG_LOG and self._was_registered):
            self._remind(
                f"The controller is not the one that this broker knows: {reason}. This broker keeps all its data and "
                "obeys nothing. Start the controller with its own metadata log, or rebuild that with: barnabas "
                "controller recover FILE --from-brokers HOST:PORT,..."
            )
        elif error in HOPELESS:
            lost = error == ErrorCode.INCONSISTENT_CLUSTER_ID and self._applied().offset >= 0
            self._on_refused(f"the controller refuses this broker: {error.name}: {reason}{IF_LOST if lost else ''}")
        else:
            log.warning("registration failed: %s: %s", error.name, reason)

    def _remind(self, line: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._reminded_ms is None or now_ms - self._reminded_ms >= REMINDER_MS:
            self._reminded_ms = now_ms
            log.error("%s", line)

    def _heartbeat(self) -> int:
        offset = self._metadata_cache.offset
        offline, cordoned = list(self._offline_log_dirs()), list(self._cordoned_log_dirs())
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=offset,
            want_fence=False,
            want_shut_down=self._wants_shutdown,
            offline_log_dirs=offline,
            cordoned_log_dirs=cordoned,
        )
        set_applied(request, self._applied())
        response = self._send(request, HEARTBEAT_VERSION)
        error = ErrorCode(response.error_code)
        if error in UNREGISTERED:
            log.warning("heartbeat refused (%s): registering again", error.name)
            self.epoch = NO_EPOCH
            self.is_fenced = True
            # Why not after the registration: the push that follows it may be here before its answer, and comes once.
            self._metadata_cache.forget_offset()
            return 0
        if error != ErrorCode.NONE:
            log.warning("heartbeat failed: %s", error.name)
            return RETRY_MS
        self._told_cordoned = cordoned
        with self._condition:
            for directory_id in offline:
                self._untold.pop(directory_id, None)
        return self._take(response, offset)

    def _take(self, response: Any, sent_offset: int) -> int:
        was_fenced, self.is_fenced = self.is_fenced, response.is_fenced
        if was_fenced != response.is_fenced:
            log.info("broker %d is %s", self._broker_id, "fenced" if response.is_fenced else "unfenced")
        if self._wants_shutdown:
            if response.should_shut_down:
                self._set_state(BrokerState.SHUTTING_DOWN)
            return SHUTDOWN_HEARTBEAT_MS
        if not response.is_fenced:
            if self.state == BrokerState.RECOVERY:
                self._set_state(BrokerState.RUNNING)
        elif self._metadata_cache.offset > sent_offset:
            return 0  # a push came in meanwhile: it may unfence us
        return int(self._config.broker_heartbeat_interval_ms)

    def _registration(self) -> registration_wire.BrokerRegistrationRequest:
        offline = self._offline_log_dirs()
        request = registration_wire.BrokerRegistrationRequest(
            broker_id=self._broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                registration_wire.Listener(
                    name=name, host=host, port=port, security_protocol=SECURITY_PROTOCOL_IDS[protocol]
                )
                for name, host, port, protocol in self._advertised.listeners
            ],
            features=[
                registration_wire.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=self._advertised.rack,
            log_dirs=[directory for directory in self._advertised.log_dirs if directory not in offline],
        )
        set_applied(request, self._applied())
        return request

    def _send(self, message: Any, version: int) -> Any:
        connection = self._connection
        if connection is None:
            host, port = self._addresses[0]
            connection = self._connection = self._connect(
                host, port, timeout_ms=self._config.broker_session_timeout_ms // 2,
                client_id=str(self._broker_id), clock=self._clock, traffic=self._traffic,
            )  # fmt: skip
        response = connection.send(message, version)
        self._unreached_since_ms = None
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            raise NodeConnectionError(f"{self._addresses[0]} is not the active controller")
        return response

    def _next_address(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._addresses.append(self._addresses.pop(0))

    def _set_state(self, state: BrokerState) -> None:
        with self._condition:
            self.state = state
            self._condition.notify_all()
