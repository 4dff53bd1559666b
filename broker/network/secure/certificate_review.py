"""The thread `tls-review`: looks on a schedule for certificates that changed on disk, or expire soon.

Threads: its own; a process that uses no TLS does not start it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    from barnabas.security.tls.endpoints import TlsEndpoints

log = logging.getLogger("barnabas.tls")


class CertificateReview:
    """Calls `TlsEndpoints.review` every `interval_ms`."""

    def __init__(self, endpoints: TlsEndpoints, interval_ms: int) -> None:
        self._endpoints = endpoints  # fixed before start
        self._interval_s = interval_ms / 1000  # fixed before start
        self._ended = threading.Event()  # set by shutdown
        self._thread = ServiceThread("tls-review", "tls-review", self.run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def run(self) -> None:
        """Review until the end."""
        while not self._ended.wait(self._interval_s):
            try:
                self._endpoints.review()
            except Exception:
                log.exception("the certificates could not be reviewed")
