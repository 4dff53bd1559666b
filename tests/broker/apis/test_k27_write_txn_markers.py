"""WriteTxnMarkers on a listener for clients: how long it looks at what it is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.apis.k27_write_txn_markers import API
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


class Log:
    """A log that remembers one producer, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked_count = 0

    def active_producer(self, producer_id: int) -> Any:
        self.asked_count += 1
        return SimpleNamespace(producer_id=producer_id, epoch=3, coordinator_epoch=0)


def test_a_partition_that_is_named_often_is_looked_at_once() -> None:
    log, written = Log(), []
    services: Any = SimpleNamespace(
        replica_manager=SimpleNamespace(find=lambda tp: SimpleNamespace(log=log)),
        marker_writer=SimpleNamespace(write=written.append),
    )
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0] * 1000)] * 2
    marker = WritableTxnMarker(producer_id=7, producer_epoch=3, coordinator_epoch=0, topics=topics)
    context = RequestContext("CLIENTS", "PLAINTEXT", "127.0.0.1", 1, "c", is_for_clients=True)
    request = Request(None, None, context, memoryview(b""))
    request.header = RequestHeader(27, 1, 0, "c")
    request.message = WriteTxnMarkersRequest(markers=[marker])
    API.handle(services, request)
    assert len(written) == 1
    assert log.asked_count == 1
