"""The authorizer's log, in Kafka's words, and its counts.

Rules
1. One line of the log `barnabas.authorizer` for each refusal that a client asked for (INFO) and each right that was
   used (DEBUG). Rights that only filter a list, or have an alternative, are not logged when they are missing.
2. A request has at most LINES_MAX lines, since it can name a million topics; the last one says that there are more.

Threads: any.
Source: StandardAuthorizerData.logAuditMessage, AuthorizerMetrics (Kafka 4.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.common import logs
from barnabas.metrics.meters import Counter

if TYPE_CHECKING:
    from barnabas.broker.authorization.row import Row
    from barnabas.security.acls.rules import Decision

log = logging.getLogger("barnabas.authorizer")

LINES_MAX: Final = 1_000
_SHOWN_MAX: Final = 300  # characters of a name in the log


class Asker(Protocol):
    """The request whose rights are asked for (`Access`, which imports this module)."""

    principal: str
    host: str
    api_name: str
    lines: int


class Audit:
    """What all requests of a process share: the counts, and whether rights that are used are logged."""

    __slots__ = ("allowed", "denied", "logs_allowed")

    def __init__(self) -> None:
        self.allowed = Counter()
        self.denied = Counter()
        self.logs_allowed = False  # Why kept: the logger takes longer to ask than the decision
        logs.on_change(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Look at the level of the log again, which has changed."""
        self.logs_allowed = log.isEnabledFor(logging.DEBUG)

    def log(self, decision: Decision, row: Row, name: str, count: int, asker: Asker) -> None:
        """Log a decision about a resource that the request names `count` times (rule 2)."""
        level = logging.DEBUG if decision.is_allowed else logging.INFO
        asker.lines += 1
        if asker.lines >= LINES_MAX:
            if asker.lines == LINES_MAX:
                log.log(
                    level, "Principal = %s from host = %s: more than %d resources in this %s request, the rest is only "
                    "counted", _shown(asker.principal), asker.host, LINES_MAX - 1, asker.api_name,
                )  # fmt: skip
            return
        log.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s with "
            "resourceRefCount = %d based on rule %s",
            _shown(asker.principal), "Allowed" if decision.is_allowed else "Denied", row.operation.name, asker.host,
            row.resource.name.title().replace("_", ""), _shown(name), asker.api_name, count, decision,
        )  # fmt: skip


def _shown(name: str) -> str:
    """Return a name that a client chose, fit for a line."""
    cut = name if len(name) <= _SHOWN_MAX else f"{name[:_SHOWN_MAX]}..."
    return cut if cut.isprintable() else ascii(cut)
