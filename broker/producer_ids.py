"""Producer ids: each idempotent producer gets its own, out of blocks that the controller gives to brokers.

The next block is asked for when nine tenths of this one are used, so that nobody waits; a producer that comes while
there is none is told COORDINATOR_LOAD_IN_PROGRESS and tries again.

Threads: any handler takes ids; the channel's thread brings blocks.
Source: RPCProducerIdManager (Kafka 4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from barnabas.broker.controller_channel import ControllerChannel

log = logging.getLogger("barnabas.producer-ids")

PREFETCH_PARTS = 10  # the next block is asked for when one part of ten is left


class ProducerIds:
    """The block in use and the one in reserve."""

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], channel: ControllerChannel) -> None:
        self._broker_id = broker_id  # fixed before start
        self._broker_epoch = broker_epoch  # fixed before start
        self._channel = channel  # fixed before start
        self._lock = threading.Lock()
        self._block = range(0)  # guarded by: _lock; ids of the current block not given out yet
        self._prefetch_at = 0  # guarded by: _lock; ask for more when this few are left
        self._reserve: range | None = None  # guarded by: _lock
        self._is_asking = False  # guarded by: _lock
        self.highest = -1  # the last id of the newest block; written under _lock

    def take(self) -> int:
        """Give out an id; raises COORDINATOR_LOAD_IN_PROGRESS when there is none at the moment."""
        with self._lock:
            if not self._block and self._reserve is not None:
                self._start_block(self._reserve)
                self._reserve = None
            taken = None
            if self._block:
                taken = self._block[0]
                self._block = self._block[1:]
            must_ask = len(self._block) <= self._prefetch_at and self._reserve is None and not self._is_asking
            self._is_asking = self._is_asking or must_ask
        if must_ask:
            self._ask()
        if taken is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return taken

    def prefetch(self) -> None:
        """Ask for the first block."""
        with self._lock:
            if self._block or self._reserve is not None or self._is_asking:
                return
            self._is_asking = True
        self._ask()

    def _ask(self) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        self._channel.send(request, self._on_answer)

    def _on_answer(self, response: Any) -> None:
        with self._lock:
            self._is_asking = False
            if response is None or response.error_code:
                reason = "no answer" if response is None else ErrorCode(response.error_code).name
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
