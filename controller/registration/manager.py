"""RegistrationManager: registers this controller with the active one (KIP-919).

A registration names the listeners and the supported features of a process. The active controller registers itself when
it becomes active. A standby controller sends a ControllerRegistration, again and again, until the metadata shows it.
If another process replaces it, by a copied node.id, a log line names that one, and the next attempt follows a pause.

Threads: the event thread calls `committed`; `controller-<id>-registration-manager-event-handler` sends. A controller
that is alone has no such thread.

Source: ControllerRegistrationManager (Kafka 4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.broker.metadata.features import SUPPORTED_FEATURES
from barnabas.client.connection import NodeConnectionError
from barnabas.common.processes.host_name import own_host_name
from barnabas.common.threads import ServiceThread
from barnabas.config.listeners import PROTOCOLS
from barnabas.controller.image import Controller, Endpoint
from barnabas.controller.raft.raft_config import KRAFT_VERSIONS
from barnabas.controller.raft.voter_set import KRAFT_VERSION_FEATURE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k70_controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from barnabas.broker.channels.active_controller import ActiveController
    from barnabas.config.config import Config
    from barnabas.controller.image import Image

log = logging.getLogger("barnabas.controller.registration")

VERSION: Final = 0
RETRY_MS: Final = 100
RETRY_MS_MAX: Final = 5_000
#: How long an accepted registration may take to arrive in this controller's own metadata.
ARRIVAL_MS: Final = 2_000
#: How long it waits after another process has registered with its id: that one does the same.
REPLACED_MS: Final = 10_000


def own_registration(
    config: Config, incarnation_id: bytes, bound_port: Callable[[str], int], *, is_alone: bool = False
) -> Controller:
    """Return the registration of this process; `bound_port` returns the port of a listener that was given 0."""
    node_id = int(config.node_id)
    features = SUPPORTED_FEATURES if is_alone else {**SUPPORTED_FEATURES, KRAFT_VERSION_FEATURE: KRAFT_VERSIONS}
    voter = config.controller_voters().get(node_id)
    names = {str(name).upper() for name in config.controller_listener_names}
    advertised = config.advertised_listeners_parsed or config.listeners_parsed
    return Controller(
        id=node_id,
        incarnation_id=incarnation_id,
        endpoints=tuple(
            Endpoint(
                listener.name,
                listener.host or (voter[0] if voter else own_host_name()),
                listener.port or bound_port(listener.name),
                PROTOCOLS.index(listener.security_protocol),
            )
            for listener in advertised
            if listener.name in names
        ),
        features=tuple((name, *levels) for name, levels in features.items()),
    )


def request_of(controller: Controller) -> ControllerRegistrationRequest:
    """Return the request that registers a controller."""
    return ControllerRegistrationRequest(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        listeners=[
            Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in controller.features
        ],
    )


class RegistrationManager:
    """See the module."""

    def __init__(self, controller: Controller, channel: ActiveController) -> None:
        self._controller = controller  # fixed before start
        self._channel = channel  # owner: the manager's thread; stop aborts it
        self._condition = threading.Condition()
        self._is_registered = True  # guarded by: _condition; what the metadata shows; true while it shows nothing
        self._was_replaced = False  # guarded by: _condition; by another process, and no pause followed yet
        self._is_stopping = False  # guarded by: _condition
        self._was_shown = False  # owner: the event thread; the metadata has had this registration
        self._failures = 0  # owner: the manager's thread
        name = f"controller-{controller.id}-registration-manager-event-handler"
        self._thread = ServiceThread(name, "ctl-register", self.run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        self._channel.abort()
        if self._thread.is_alive():
            self._thread.join()

    def committed(self, image: Image) -> None:
        """Look for the registration in a new image; called by the event thread."""
        shown = image.controllers.get(self._controller.id)
        is_registered = not image.can_register_controllers or shown == self._controller
        was_replaced = self._was_shown and shown not in (None, self._controller)
        self._was_shown = shown == self._controller
        if is_registered != self._is_registered:
            with self._condition:
                self._is_registered = is_registered
                self._was_replaced = was_replaced
                self._condition.notify()
        if was_replaced and shown is not None:
            log.warning(
                "Another process has registered as controller %d, at %s: two have node.id=%d",
                shown.id, ", ".join(f"{e.host}:{e.port}" for e in shown.endpoints), shown.id,
            )  # fmt: skip

    def run(self) -> None:
        """Register whenever the metadata lacks it; the body of the thread."""
        while self._wait():
            if pause_ms := self.pause_ms():
                with self._condition:
                    self._condition.wait_for(lambda: self._is_stopping, pause_ms / 1000)
                continue
            delay_ms = self.register_once()
            with self._condition:
                self._condition.wait_for(lambda: self._is_registered or self._is_stopping, delay_ms / 1000)
        self._channel.close()

    def _wait(self) -> bool:
        """Wait until a registration is needed; False once stopped."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_registered or self._is_stopping)
            return not self._is_stopping

    def pause_ms(self) -> int:
        """Return how long to wait before the next registration, once after another process has replaced this one."""
        with self._condition:
            was_replaced, self._was_replaced = self._was_replaced, False
        return REPLACED_MS if was_replaced else 0

    def register_once(self) -> int:
        """Send the registration; return how long to wait for its effect (ms)."""
        try:
            response = self._channel.send(request_of(self._controller), VERSION)
            error = ErrorCode.of(response.error_code)
            if error is ErrorCode.NONE:
                self._failures = 0
                return ARRIVAL_MS
            log.warning(
                "Controller %d is not registered: %s: %s", self._controller.id, error.name, response.error_message
            )
        except NodeConnectionError as failure:
            log.debug("Controller %d is not registered yet: %s", self._controller.id, failure)
        self._failures += 1
        return min(RETRY_MS_MAX, RETRY_MS << min(self._failures - 1, 10))
