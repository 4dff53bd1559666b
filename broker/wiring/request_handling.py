"""RequestHandling: the pools of handler threads, and the APIs that they serve.

There are two pools with the same dispatch: one for clients and brokers, and one of a single thread (the control plane)
for the controller's pushes.

Threads: main builds, starts and stops it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.at_start import served_at_start
from barnabas.broker.handlers import CONTROL_PLANE, HandlerPool
from barnabas.broker.requests.slow_motion import SlowMotion

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.authorizer import Authorizer
    from barnabas.broker.requests.api import Table
    from barnabas.broker.wiring.context import Context
    from barnabas.broker.wiring.network import Network

DATA_PLANE = "data-plane"


class RequestHandling:
    """See the module."""

    def __init__(
        self, context: Context, network: Network, services: Services, table: Table, authorizer: Authorizer | None
    ) -> None:
        # Why not the whole table at once: before the first push, the broker would tell clients that the cluster is
        # empty. Their connections are closed instead, as if the broker were not up yet.
        served = served_at_start(table)  # replaced once, row by row, by the whole table
        self.slow_motion = SlowMotion(context.config, network.channel.requests, served, context.clock)
        services.metadata_cache.on_caught_up.append(lambda: self.slow_motion.serve(table))

        def pool(count: int, thread_prefix: str) -> HandlerPool:
            return HandlerPool(
                count,
                network.channel,
                served,
                services,
                network.request_log,
                context.registry,
                context.clock,
                thread_prefix=thread_prefix,
                request_bytes_max=context.config.barnabas_request_max_bytes,
                quotas=network.client_quotas,
                authorizer=authorizer,
            )

        self.handlers = pool(context.config.num_io_threads, DATA_PLANE)
        self.control_handlers = pool(1, CONTROL_PLANE)

    def start(self) -> None:
        """Start the handlers."""
        self.handlers.start()
        self.control_handlers.start()

    def stop(self) -> None:
        """Stop the handlers after the requests in hand."""
        self.handlers.shutdown()
        self.control_handlers.shutdown()
