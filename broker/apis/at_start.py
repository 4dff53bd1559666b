"""What a broker serves before the controller has told it what there is.

The controller's pushes and ApiVersions are served at once. Any other request has its connection closed, as if the
broker were not up yet: an answer would tell the client that the cluster is empty.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.answers import Answer, Close
from barnabas.broker.apis.api import Api, Table

if TYPE_CHECKING:
    from barnabas.broker.request_channel import Request

# LeaderAndIsr, StopReplica, UpdateMetadata, ApiVersions, FetchSnapshot (for `barnabas controller recover`)
SERVED_FROM_THE_START: Final = frozenset({4, 5, 6, 18, 59})


def served_at_start(table: Table) -> dict[int, Api]:
    """The rows to begin with, in place of a broker's whole table."""
    return {
        key: row if key in SERVED_FROM_THE_START else dataclasses.replace(row, handle=_not_yet)
        for key, row in table.items()
    }


def _not_yet(_services: Any, _request: Request) -> Answer:
    # Why DEBUG: whoever waits for the broker (`barnabas up`, a client) asks again and again.
    return Close("the broker is starting", logging.DEBUG)
