"""What a broker serves before the controller's first push has brought the metadata.

The controller's pushes and ApiVersions are served at once. Any other request has its connection closed, as if the
broker were not up yet: a response would show the client an empty cluster.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.requests.answers import Close
from barnabas.broker.requests.api import Api, Table
from barnabas.broker.requests.parking import Answer

if TYPE_CHECKING:
    from barnabas.broker.requests.request import Request

# LeaderAndIsr, StopReplica, UpdateMetadata, ApiVersions, FetchSnapshot (for `barnabas controller recover`)
SERVED_FROM_THE_START: Final = frozenset({4, 5, 6, 18, 59})


def served_at_start(table: Table) -> dict[int, Api]:
    """Return the rows to start with, in place of a broker's whole table."""
    return {
        key: row if key in SERVED_FROM_THE_START else dataclasses.replace(row, handle=_not_yet)
        for key, row in table.items()
    }


def _not_yet(_services: Any, _request: Request) -> Answer:
    # Why DEBUG: a program that waits for the broker (`barnabas up`, a client) retries often.
    return Close("the broker is starting", logging.DEBUG)
