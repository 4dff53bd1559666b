"""Lifecycle: this broker's registration, heartbeats and controlled shutdown.

States (BrokerState)
    STARTING --registered--> RECOVERY (fenced: catching up) --unfenced--> RUNNING
    RUNNING --begin_controlled_shutdown--> PENDING_CONTROLLED_SHUTDOWN --granted, or time up--> SHUTTING_DOWN

Rules
1. The incarnation id is random and lasts as long as the process. A second registration with it gets the same epoch.
2. A heartbeat carries the metadata offset that the pushes have reached (`current_metadata_offset`). The controller
   unfences a broker that has applied its own registration.
3. A registration and each heartbeat report how far this broker has ever come in the metadata of its cluster. A
   controller whose log does not hold that offset is a wrong or old one, and is not obeyed. The broker goes on
   unchanged: a leader goes on serving, as without a controller, and a starting broker waits. It logs the refusal every
   `REMINDER_MS` and tries again, since the right controller may return, and `barnabas controller recover` needs live
   brokers.
4. If another process has this broker's id or address: a broker that was registered has been replaced, and ends. A
   starting broker waits for the end of the other's session, at most initial.broker.registration.timeout.ms.
5. A controller of another cluster ends a starting broker. A broker that was registered goes on, as under rule 3.
6. During a controlled shutdown, heartbeats go on (with `want_shut_down`) until the controller has moved the leaders
   away, or has been unreachable for too long.

Threads: `broker-<id>-lifecycle-manager-event-handler` talks to the controller; other threads wake it or wait for a
state.
Source: Kafka's BrokerLifecycleManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.channels.active_controller import ActiveController
from barnabas.broker.metadata.features import SUPPORTED_FEATURES
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError, TrafficObserver
from barnabas.common.ids import random_uuid
from barnabas.common.threads import ServiceThread
from barnabas.protocol.errors import ErrorCode, MalformedMessageError
from barnabas.protocol.messages import k62_broker_registration as registration_wire
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.metadata_records import ConfigRecord
from barnabas.protocol.push_tags import (
    Applied,
    controller_epoch_of,
    offset_of,
    reason_of,
    records_of,
    set_applied,
)

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.metadata.security_cache import SecurityCache
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.protocol.schema import Request

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

# The controller has no registration of this incarnation: register again.
UNREGISTERED = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
# Another attempt would fail too.
HOPELESS = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION})
IF_LOST = (
    ". If this cluster's controller lost its disk: stop it, start the brokers, which wait for it, and rebuild its log "
    "with: barnabas controller recover FILE --from-brokers HOST:PORT,... If the cluster had one controller until now, "
    "the new ones need a copy of its log: docs/operations.md, From one controller to three"
)
# The controller's log is not the one of this broker's topics (rules 3 and 5).
WRONG_LOG = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.INCONSISTENT_CLUSTER_ID})


class BrokerState(IntEnum):
    """The states of a broker, with Kafka's numbers, which the BrokerState metric shows."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class Advertised(NamedTuple):
    """The parts of a registration besides the ids."""

    listeners: Sequence[tuple[str, str, int, str]]  # (name, host, port, security protocol)
    log_dirs: Sequence[bytes]  # directory ids
    rack: str | None


class Lifecycle:
    """See the module.

    Callbacks, on the lifecycle thread: `on_registered(epoch)` after each registration, before the first heartbeat;
    `on_refused(reason)` if this process must end.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        cluster_id: str,
        addresses: Sequence[tuple[str, int]],
        advertised: Advertised,
        config: Config,
        clock: Clock,
        metadata_cache: MetadataCache,
        applied: Callable[[], Applied],
        on_registered: Callable[[int], None],
        on_refused: Callable[[str], None],
        offline_log_dirs: Callable[[], Sequence[bytes]],
        cordoned_log_dirs: Callable[[], Sequence[bytes]],
        previous_epoch: Callable[[], int] = lambda: -1,
        traffic: TrafficObserver | None = None,
        connect: Connect = NodeConnection,
        security: SecurityCache | None = None,
        on_security: Callable[[Applied], None] = lambda _: None,
        on_configs: Callable[[list[ConfigRecord]], None] = lambda _: None,
    ) -> None:
        # Fixed before start.
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._advertised = advertised
        self._config = config
        self._clock = clock
        self._metadata_cache = metadata_cache
        self._applied = applied  # returns how far this broker has ever come
        self._on_registered = on_registered
        self._on_refused = on_refused
        self._offline_log_dirs = offline_log_dirs
        self._cordoned_log_dirs = cordoned_log_dirs
        self._previous_epoch = previous_epoch  # returns the epoch of the last stop, if it was clean; else -1
        self._security = security
        self._on_security = on_security  # before the security metadata of a registration is taken
        self._on_configs = on_configs  # the broker's configs of a registration, before its security metadata
        self.incarnation_id = random_uuid()  # secret: it authorizes pushes (push_tags.py)
        # Owner: the lifecycle thread; others read.
        self._controller = ActiveController(
            broker_id, addresses, clock, timeout_ms=config.broker_session_timeout_ms // 2, cluster_id=cluster_id,
            traffic=traffic, connect=connect,
        )  # fmt: skip
        self.epoch = NO_EPOCH
        self.is_fenced = True
        self._reported_cordoned: list[bytes] = []  # the cordoned directories that the controller knows
        self._unreached_since_ms: int | None = None  # monotonic; None while the active controller responds
        self._was_registered = False  # whether this process has ever been registered
        self._refused_since_ms: int | None = None  # monotonic; None after a registration
        self._reminded_ms: int | None = None  # monotonic; when the refusal was last logged
        # Guarded by: _condition.
        self._condition = threading.Condition()
        self.state = BrokerState.NOT_RUNNING
        self._is_woken = False
        self._wants_shutdown = False
        self._is_stopping = False
        self._unreported: dict[bytes, int] = {}  # failed directory -> when the controller must know it (monotonic ms)
        self._thread = ServiceThread(f"broker-{broker_id}-lifecycle-manager-event-handler", "lifecycle", self._run)

    def start(self) -> None:
        """Start the lifecycle thread, which registers the broker."""
        self._set_state(BrokerState.STARTING)
        self._thread.start()

    def follow(self, address: tuple[str, int]) -> None:
        """Send to the controller at this address from now on; any thread may call it."""
        self._controller.follow(address)

    def wake(self) -> None:
        """Send a heartbeat now, if the broker is fenced: new metadata may unfence it."""
        with self._condition:
            if self.is_fenced:
                self._is_woken = True
                self._condition.notify_all()

    def report_cordoned_directories(self) -> None:
        """Send a heartbeat now, if the cordoned log directories are not those that the controller knows."""
        if list(self._cordoned_log_dirs()) != self._reported_cordoned:
            with self._condition:
                self._is_woken = True
                self._condition.notify_all()

    def report_failed_directory(self, directory_id: bytes) -> None:
        """Report a failed log directory to the controller, with a heartbeat now.

        If no heartbeat succeeds within log.dir.failure.timeout.ms, the broker ends. Otherwise it would stay the leader
        of partitions that it cannot serve.
        """
        with self._condition:
            self._unreported[directory_id] = self._clock.monotonic_ms() + int(self._config.log_dir_failure_timeout_ms)
            self._is_woken = True
            self._condition.notify_all()

    def wait_for(self, state: BrokerState, timeout_ms: int) -> bool:
        """Wait until the broker is in this state; False if it stops before, or the time is up."""
        with self._condition:
            self._condition.wait_for(lambda: self.state == state or self._is_stopping, timeout_ms / 1000)
            return self.state == state

    def begin_controlled_shutdown(self) -> None:
        """Ask the controller to move this broker's leaders away; then wait for SHUTTING_DOWN."""
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
        self._controller.abort()
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
        self._controller.close()

    def _step(self) -> int:
        """Register or send a heartbeat; returns the delay until the next step (ms)."""
        now_ms = self._clock.monotonic_ms()
        if any(now_ms >= deadline_ms for deadline_ms in self._unreported.copy().values()):
            self._on_refused("a failed log directory could not be reported to the controller in time")
        try:
            return self._register() if self.epoch == NO_EPOCH else self._heartbeat()
        except NodeConnectionError as error:
            is_first = self._unreached_since_ms is None  # Why: there are ten attempts a second
            log.log(logging.INFO if is_first else logging.DEBUG, "the controller cannot be reached: %s", error)
            self._maybe_leave_alone()
            return RETRY_MS

    def _maybe_leave_alone(self) -> None:
        """Shut down without the controller's consent if it has been unreachable for longer than a restart takes."""
        now_ms = self._clock.monotonic_ms()
        if self._unreached_since_ms is None:
            self._unreached_since_ms = now_ms
        if self._wants_shutdown and now_ms - self._unreached_since_ms >= CONTROLLER_GONE_MS:
            log.warning("the controller is unreachable: this broker shuts down although its leaders have not moved")
            self._set_state(BrokerState.SHUTTING_DOWN)

    def _register(self) -> int:
        response = self._send(self._registration(), REGISTRATION_VERSION)
        error = ErrorCode.of(response.error_code)
        if error == ErrorCode.NONE:
            self.epoch = response.broker_epoch
            self._was_registered = True
            self._refused_since_ms = self._reminded_ms = None
            log.info("registered broker %d with epoch %d", self._broker_id, self.epoch)
            self._set_state(BrokerState.RECOVERY)
            self._take_security(response)
            self._on_registered(self.epoch)
            return 0
        self._refused(error, reason_of(response) or error.message)
        return REFUSED_RETRY_MS if error in WRONG_LOG else RETRY_MS

    def _take_security(self, response: registration_wire.BrokerRegistrationResponse) -> None:
        """Take the broker's configs and the security metadata of the response, which the first push may need."""
        try:
            offset, records = offset_of(response), records_of(response)
            if self._security is not None and offset is not None:
                self._on_security(Applied(offset, controller_epoch_of(response)))
                self._on_configs([record for record in records if isinstance(record, ConfigRecord)])
                self._security.apply(records, offset, is_full=True)
        except MalformedMessageError as error:
            log.error("cannot read the security metadata of the registration: %s", error)
        except Exception:  # Why: no input ends the broker
            log.exception("cannot apply the security metadata of the registration")

    def _refused(self, error: ErrorCode, reason: str) -> None:
        """Handle a refused registration (rules 3 to 5)."""
        now_ms = self._clock.monotonic_ms()
        if self._refused_since_ms is None:
            self._refused_since_ms = now_ms
        if error == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            patience_ms = int(self._config.initial_broker_registration_timeout_ms)
            if self._was_registered:
                self._on_refused(f"another process has taken the place of this broker: {reason}")
            elif now_ms - self._refused_since_ms >= patience_ms:
                self._on_refused(f"the controller has refused this broker for {patience_ms} ms: {reason}")
            self._remind(f"The controller refuses this broker for now: {reason}")
        elif error == ErrorCode.OFFSET_OUT_OF_RANGE or (error in WRONG_LOG and self._was_registered):
            self._remind(
                f"The controller is not the one that this broker knows: {reason}. This broker keeps all its data and "
                "does not obey the controller. Start the controller with its own metadata log, or rebuild that with: "
                "barnabas controller recover FILE --from-brokers HOST:PORT,..."
            )
        elif error in HOPELESS:
            lost = error == ErrorCode.INCONSISTENT_CLUSTER_ID and self._applied().offset >= 0
            self._on_refused(f"the controller refuses this broker: {error.name}: {reason}{IF_LOST if lost else ''}")
        else:
            log.warning("registration failed: %s: %s", error.name, reason)

    def _remind(self, line: str) -> None:
        """Log an error, at most once every `REMINDER_MS`."""
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
        error = ErrorCode.of(response.error_code)
        if error in UNREGISTERED:
            log.warning("heartbeat refused (%s): registering again", error.name)
            self.epoch = NO_EPOCH
            self.is_fenced = True
            # Why before the registration: the push after it comes once, and may overtake the registration's response.
            self._metadata_cache.forget_offset()
            return 0
        if error != ErrorCode.NONE:
            log.warning("heartbeat failed: %s", error.name)
            return RETRY_MS
        self._reported_cordoned = cordoned
        with self._condition:
            for directory_id in offline:
                self._unreported.pop(directory_id, None)
        return self._take(response, offset)

    def _take(self, response: BrokerHeartbeatResponse, sent_offset: int) -> int:
        """Handle the response to a heartbeat that reported `sent_offset`; returns the delay until the next (ms)."""
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
            return 0  # a push arrived meanwhile: the next heartbeat may unfence this broker
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
            previous_broker_epoch=self._previous_epoch(),
        )
        set_applied(request, self._applied())
        return request

    def _send(self, message: Request, version: int) -> Any:
        """Send a request to the active controller; raises NodeConnectionError."""
        response = self._controller.send(message, version)
        self._unreached_since_ms = None
        return response

    def _set_state(self, state: BrokerState) -> None:
        with self._condition:
            self.state = state
            self._condition.notify_all()
