"""The brokers that run, with their services, for those who look at them from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def serving(nodes: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each broker of these nodes that runs and has its services, with them."""
    for broker in nodes.brokers:
        services = getattr(broker.server, "services", None)
        if broker.is_running and services is not None:
            yield broker, services
