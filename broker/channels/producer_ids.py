"""ProducerIds: each idempotent producer gets an id, from blocks that the controller allocates to brokers.

The next block is requested when nine tenths of the present one are used, so that producers need not wait. If there is
no id at the moment, the producer gets COORDINATOR_LOAD_IN_PROGRESS and tries again.

Threads: any handler takes ids; the channel's thread adds blocks.
Source: RPCProducerIdManager (Kafka 4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.channels.controller_channel import ControllerChannel

log = logging.getLogger("barnabas.producer-ids")

PREFETCH_PARTS = 10  # the next block is requested when a tenth of the present one is left


class ProducerIds:
    """The block in use and the block in reserve."""

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], channel: ControllerChannel) -> None:
        self._broker_id = broker_id  # fixed before start
        self._broker_epoch = broker_epoch  # fixed before start
        self._channel = channel  # fixed before start
        self._lock = threading.Lock()
        self._block = range(0)  # guarded by: _lock; the unused ids of the present block
        self._prefetch_at = 0  # guarded by: _lock; the next block is requested when so few ids are left
        self._reserve: range | None = None  # guarded by: _lock
        self._is_requesting = False  # guarded by: _lock
        self.highest = -1  # the last id of the newest block; written under _lock

    def take(self) -> int:
        """Return an unused id; raises COORDINATOR_LOAD_IN_PROGRESS if there is none at the moment."""
        with self._lock:
            if not self._block and self._reserve is not None:
                self._start_block(self._reserve)
                self._reserve = None
            taken = None
            if self._block:
                taken = self._block[0]
                self._block = self._block[1:]
            is_low = len(self._block) <= self._prefetch_at and self._reserve is None
            must_request = is_low and not self._is_requesting
            self._is_requesting = self._is_requesting or must_request
        if must_request:
            self._request()
        if taken is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return taken

    def prefetch(self) -> None:
        """Request the first block, after a registration."""
        with self._lock:
            if self._block or self._reserve is not None or self._is_requesting:
                return
            self._is_requesting = True
        self._request()

    def _request(self) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        self._channel.send(request, self._on_response)

    def _on_response(self, response: AllocateProducerIdsResponse | None) -> None:
        with self._lock:
            self._is_requesting = False
            if response is None or response.error_code:
                reason = "no response" if response is None else ErrorCode.of(response.error_code).name
                log.warning("no block of producer ids: %s", reason)
                return
            first = response.producer_id_start
            block = range(first, first + response.producer_id_len)
            self.highest = max(self.highest, block.stop - 1)
            if self._block:
                self._reserve = block
            else:
                self._start_block(block)

    def _start_block(self, block: range) -> None:
        self._block = block
        self._prefetch_at = len(block) // PREFETCH_PARTS
