"""Counts of logins, and the log lines of those that failed.

Threads: the processor that owns it; the scrape reads the instruments.
Source: Selector.SelectorMetrics, and Selector's line of a failed authentication (Kafka 4.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.common.logs import LogLimit
from barnabas.metrics.table import catalogue as c

if TYPE_CHECKING:
    from barnabas.broker.network.sasl.server_authenticator import SaslServerAuthenticator
    from barnabas.broker.requests.request import RequestContext
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.network")

LINES_MAX: Final = 10  # of failed logins in PERIOD_S, which is short: users and addresses are of interest
PERIOD_S: Final = 1
_SENSORS: Final = (
    c.SUCCESSFUL_AUTHENTICATION,
    c.FAILED_AUTHENTICATION,
    c.SUCCESSFUL_REAUTHENTICATION,
    c.FAILED_REAUTHENTICATION,
)


class LoginMetrics:
    """The instruments of one processor."""

    def __init__(self, registry: Registry, listener: str, processor_id: int) -> None:
        # Fixed before start.
        self._registry = registry
        self._labels = {"listener": listener, "networkProcessor": processor_id}
        self._succeeded, self._failed, self._succeeded_again, self._failed_again = (
            registry.sensor(row, **self._labels) for row in _SENSORS
        )
        self._once_only = registry.counter(c.SUCCESSFUL_AUTHENTICATION_NO_REAUTH, **self._labels)
        self._latency = registry.avg_max(c.REAUTHENTICATION_LATENCY, **self._labels)
        self._lines = LogLimit(log, registry.now_ns, LINES_MAX, PERIOD_S)

    def succeeded(self, authenticator: SaslServerAuthenticator) -> None:
        """Count a login."""
        if authenticator.is_again:
            self._succeeded_again.record()
            self._latency.record(authenticator.latency_ms())
            return
        self._succeeded.record()
        session = authenticator.session
        if session is not None and not session.can_authenticate_again:
            self._once_only.inc()

    def failed(self, authenticator: SaslServerAuthenticator, context: RequestContext) -> None:
        """Count a login that failed, and log it unless very many do."""
        (self._failed_again if authenticator.is_again else self._failed).record()
        if self.may_log(logging.INFO):
            log.info(
                "Failed %sauthentication with /%s (channelId=%s) (%s)%s",
                "re-" if authenticator.is_again else "",
                context.client_address,
                context.connection_id,
                authenticator.failure_reason,
                f" by {authenticator.mechanism}" if authenticator.mechanism else "",
            )

    def may_log(self, level: int) -> bool:
        """Return whether a line about a failed login may be logged now."""
        return self._lines.admits(level, "authentications failed")

    def remove(self) -> None:
        """Unregister the instruments of a processor that ended."""
        for row in (*_SENSORS, c.SUCCESSFUL_AUTHENTICATION_NO_REAUTH, c.REAUTHENTICATION_LATENCY):
            self._registry.remove(row, **self._labels)
