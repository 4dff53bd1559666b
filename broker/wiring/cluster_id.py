"""Asks a controller for the id of the cluster: for the first start on empty directories.

Threads: main.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.wiring.context import StartError
from barnabas.client.connection import NodeConnectionError
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest

if TYPE_CHECKING:
    from barnabas.client.connection import Connect
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config

log = logging.getLogger("barnabas.broker")

RETRY_MS: Final = 100
CONTROLLERS: Final = 2  # an endpoint type of DescribeCluster
VERSION: Final = 1


def ask_cluster_id(config: Config, controllers: Sequence[tuple[str, int]], connect: Connect, clock: Clock) -> str:
    """Return the cluster id, from the first controller that responds.

    Raises StartError if none responds within initial.broker.registration.timeout.ms.
    """
    deadline_ms = clock.monotonic_ms() + config.initial_broker_registration_timeout_ms
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    pause = threading.Event()
    while clock.monotonic_ms() < deadline_ms:
        for host, port in controllers:
            with connect(host, port, timeout_ms=config.request_timeout_ms, clock=clock) as node:
                try:
                    response = node.send(request, VERSION)
                except NodeConnectionError as error:
                    log.debug("%s", error)
                    continue
                if response.cluster_id:
                    return str(response.cluster_id)
        pause.wait(RETRY_MS / 1000)
    where = ", ".join(f"{host}:{port}" for host, port in controllers)
    raise StartError(f"no controller answers at {where}")
