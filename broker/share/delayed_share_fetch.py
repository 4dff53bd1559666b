"""DelayedShareFetch: a share fetch that waits for records that its member can acquire.

It completes when
  A  no share partition can be used (its leader moved, its state cannot be read), or reading one fails;
  B  the bytes readable from the share partitions that it gets reach min_bytes;
  C  its time is up: it takes the available records.
Then it acquires, and frees its share partitions for the next fetch that waits.

Rules
1. It reads only share partitions whose fetch lock it gets. A fetch that releases one wakes those that wait for it, if
   another fetch wanted it meanwhile, or if there is more to acquire.
2. Records are acquired once the fetch is complete, since records acquired in vain are not given back.
3. The limit of records holds for all partitions together, and max_bytes is divided among those that it reads.
4. A member whose connection was closed acquires nothing.

Source: Kafka's DelayedShareFetch, ShareFetchUtils.processFetchResponse, PartitionMaxBytesStrategy (4.3). Different:
only the headers that matter are read, and a fetch does not wait if none of its share partitions can be used.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.replication.reading import is_in_older_segment, visible_end
from barnabas.broker.share.led_partition import LedSharePartition
from barnabas.broker.share.partition.values import Acquired, AcquireMode, Fetcher
from barnabas.broker.share.record_batches import aborted_spans, cut, scan
from barnabas.broker.share.sensors import PERCENT
from barnabas.broker.storage.log.log_types import FetchData, FetchIsolation
from barnabas.common.disk.files import FileSlice
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from barnabas.broker.replication.hosted_partitions import HostedPartitions
    from barnabas.broker.share.sensors import ShareSensors
    from barnabas.broker.share.wakes import Wakes
    from barnabas.broker.storage.log.log import Log
    from barnabas.common.pages.live_shape import Reason

log = logging.getLogger("barnabas.share")


class ShareFetchParams(NamedTuple):
    """The parameters of a whole share fetch. Sizes in bytes."""

    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode
    isolation: FetchIsolation


class ShareRead(NamedTuple):
    """The result of one share partition: an error, or records (perhaps none)."""

    error: ErrorCode
    records: FileSlice | None = None
    acquired: Sequence[Acquired] = ()


class Taken(NamedTuple):
    """A share partition whose fetch lock the fetch has, the offset to read from, and what was read."""

    led: LedSharePartition
    offset: int
    data: FetchData | ApiError | None  # None: there is nothing from the offset on


REASONS_MAX = 20  # the page explains no more share partitions of one fetch
NOTHING = ShareRead(ErrorCode.NONE)


class DelayedShareFetch(DelayedOperation):
    """After its completion, `results` has the share partitions that were read or cannot be used."""

    __slots__ = ("_hosted", "_led", "_params", "_sensors", "_taken", "_wakes", "results")

    def __init__(
        self,
        params: ShareFetchParams,
        led: Sequence[LedSharePartition],
        hosted: HostedPartitions,
        wakes: Wakes,
        sensors: ShareSensors,
    ) -> None:
        super().__init__(params.max_wait_ms)
        # Fixed before start.
        self._params = params
        self._led = led  # in the order in which they are served
        self._hosted = hosted
        self._wakes = wakes
        self._sensors = sensors
        self._taken: list[Taken] | None = None  # owner: the thread that completes it; read by `try_complete`
        self.results: dict[LedSharePartition, ShareRead] = {}  # owner: the thread that completes it

    def keys(self) -> list[Hashable]:
        """Return what to watch: the share partitions, and their partitions' logs."""
        return [key for led in self._led for key in (led.key, led.tp)]

    def try_complete(self) -> bool:
        """Complete in the cases A and B."""
        if all(led.error for led in self._led):
            return self.force_complete()
        taken = self._take()
        if taken and sum(map(self._available_bytes, taken)) >= self._params.min_bytes:
            self._taken = taken
            if self.force_complete():
                return True
            self._taken = None  # its time was up at the same moment
        self._free(taken)
        return False

    def _available_bytes(self, taken: Taken) -> int:
        """Bytes that a share partition would give now; `min_bytes` when the fetch should complete at once."""
        data, params = taken.data, self._params
        if isinstance(data, ApiError):
            return params.min_bytes
        if data is None or not data.size:
            return 0
        partition = self._hosted.find(taken.led.tp)
        held = None if partition is None else partition.log
        if held is not None and is_in_older_segment(held, taken.offset, visible_end(held, params.isolation)):
            return max(data.size, params.min_bytes)
        return data.size

    def _take(self) -> list[Taken]:
        """Take the fetch lock of every share partition that can deliver, and read them (rule 1)."""
        begun = [(led, offset) for led in self._led if (offset := led.begin_fetch(self)) is not None]
        if not begun:
            return []
        each = max(1, self._params.max_bytes // len(begun))
        try:
            return [self._read(led, offset, each) for led, offset in begun]
        except BaseException:
            for led, _ in begun:
                led.end_fetch(self)
            raise

    def _free(self, taken: Sequence[Taken]) -> None:
        """Release the fetch locks, and wake those who wait (rule 1)."""
        keys: list[Hashable] = [led.key for led, _, _ in taken if led.end_fetch(self)]
        if keys:
            self._wakes.wake(keys)

    def _read(self, led: LedSharePartition, offset: int, max_bytes: int) -> Taken:
        """Read from an offset, or from the next one after the log's start if it has moved past it."""
        isolation = self._params.isolation
        try:
            held = self._log(led)
            if offset < held.log_start_offset:
                led.move_log_start(held.log_start_offset)
                offset = led.next_fetch_offset()
            if offset >= visible_end(held, isolation):  # perhaps also past the end of a log that was truncated
                return Taken(led, offset, None)
            return Taken(led, offset, held.read(offset, max_bytes, isolation=isolation, min_one_message=True))
        except ApiError as error:
            return Taken(led, offset, error)

    def _log(self, led: LedSharePartition) -> Log:
        return self._hosted.get(led.tp).leader_log()

    def on_complete(self) -> None:
        """Acquire what was read (rule 2), or now if the time is up; then free the share partitions."""
        taken, self._taken = self._taken, None
        try:
            if taken is None:
                taken = self._take()
            self._acquire_all(taken)
            self._count(taken)
        except Exception:  # Why: the request must be answered, and others wait for the fetch locks.
            log.exception("a share fetch of member %s failed", self._params.member_id)
            self.results = {led: ShareRead(ErrorCode.UNKNOWN_SERVER_ERROR) for led in self._led}
        finally:
            self._free(taken or ())

    def _acquire_all(self, taken: Sequence[Taken]) -> None:
        for led in self._led:
            if led.error:
                self.results[led] = ShareRead(led.error)
        left = 0 if self._is_abandoned() else self._params.max_records
        for led, offset, data in taken:
            if led in self.results:
                continue
            if isinstance(data, ApiError):
                result = NOTHING if data.code == ErrorCode.OFFSET_OUT_OF_RANGE else ShareRead(data.code)
            else:
                result = self._acquire(led, offset, data, left)
                left -= sum(records.last - records.first + 1 for records in result.acquired)
            if self._has_more(led):
                led.note_more()
            self.results[led] = result

    def _has_more(self, led: LedSharePartition) -> bool:
        """Whether the next fetch could acquire records of a share partition at once."""
        try:
            return led.next_fetch_offset() < visible_end(self._log(led), self._params.isolation)
        except ApiError:
            return True  # the next fetch reports it

    def _count(self, taken: Sequence[Taken]) -> None:
        group = self._led[0].sensors.group  # all are of the same
        group.fetch_ratio.update(PERCENT * len(taken) // len(self._led))
        started_ms = self.started_ms
        if taken:
            group.acquire_time.update(0 if started_ms < 0 else max(0, self._wakes.now_ms() - started_ms))

    def _is_abandoned(self) -> bool:
        """Whether nobody will get the response (rule 4)."""
        connection = None if self.request is None else self.request.connection
        return connection is not None and connection.is_closed

    def _acquire(self, led: LedSharePartition, offset: int, data: FetchData | None, left: int) -> ShareRead:
        slice_, params = None if data is None else data.slice, self._params
        if data is None or slice_ is None or left <= 0:
            return NOTHING
        try:
            batches = scan(slice_, lambda first: led.wanted_end(max(offset, first), left))
            aborted = aborted_spans(slice_, batches, data.aborted_transactions or ())
        except (MalformedMessageError, OSError) as error:
            log.error("share partition %s cannot be read from offset %d: %s", led, offset, error)
            return ShareRead(ErrorCode.CORRUPT_MESSAGE)
        fetcher = Fetcher(params.member_id, left, params.batch_size, params.mode)
        acquired = led.acquire(fetcher, offset, [batch.span for batch in batches], aborted)
        if not acquired:
            return NOTHING
        return ShareRead(ErrorCode.NONE, cut(slice_, batches, acquired), acquired)

    def on_expiration(self) -> None:
        """Count it."""
        self._sensors.fetch_expired()

    def waits_for(self) -> list[Reason]:
        """Return what is missing now, of some of its share partitions."""
        reasons: list[Reason] = []
        for led in self._led[:REASONS_MAX]:
            try:
                end = visible_end(self._log(led), self._params.isolation)
            except ApiError:
                continue
            reason = led.waits_for(end)
            if reason is not None:
                reasons.append(reason)
        if not reasons and not self.is_completed:
            least = self._params.min_bytes
            reasons.append({"kind": "bytes", "text": f"for {least} bytes of records (min_bytes)", "min_bytes": least})
        return reasons
