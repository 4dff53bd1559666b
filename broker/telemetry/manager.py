"""ClientMetricsManager: answers clients that ask for metrics subscriptions, and that push metrics (KIP-714).

Rules
1. A client instance is kept while its connection lasts and it sends requests, at most INSTANCES_MAX of them. The least
   recently used one goes first; its client starts again. A connection has one at a time.
2. A change of subscriptions makes new instances of the clients with their next request.
3. Metrics that no subscription names are not read: a push of a client without a subscription costs nothing.
4. A push that cannot be read is answered INVALID_RECORD; the Java client then stops pushing.
5. An instance belongs to the principal and address that it came from. Another one that names it gets another id.

Threads: any handler; processors call `disconnected`, the scheduler `expire`. `_lock` guards the instances, and is held
for no longer than a look-up takes.
Source: ClientMetricsManager (Kafka 4.3). Different from Apache Kafka: an instance that is not used any more is removed
up to EXPIRE_MS later; a connection that closes removes only instances whose last request came over it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.telemetry.instance import ClientInstance, Owner
from barnabas.broker.telemetry.payload import PayloadError
from barnabas.broker.telemetry.receiver import BusyError
from barnabas.broker.telemetry.sensors import TelemetrySensors
from barnabas.broker.telemetry.subscriptions import Attributes, Subscriptions
from barnabas.common.clock import NS_PER_MS, Clock
from barnabas.common.ids import METADATA_TOPIC_ID, ZERO_UUID, random_uuid, uuid_to_string
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from barnabas.protocol.records.compression import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.requests.request import Request
    from barnabas.broker.settings.dynamic_config import DynamicConfig, Resource
    from barnabas.broker.telemetry.receiver import TelemetryReceiver
    from barnabas.metrics.registry import Registry
    from barnabas.protocol.messages.k72_push_telemetry import PushTelemetryRequest

log = logging.getLogger("barnabas.telemetry")

INSTANCES_MAX: Final = 16_384
EXPIRE_MS: Final = 10_000
CLIENT_METRICS: Final = 16  # the type of the config resource
#: In the order that clients shall prefer.
COMPRESSIONS: Final = (CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY)
CLIENT_ID_CHARACTERS: Final = 200  # the rest is cut: anybody may choose it, and it is kept
WARNING_MS: Final = 60_000
CLOSING: Final = "telemetry"  # among what follows a connection
UNKNOWN: Final = "unknown"  # what Kafka calls the software of a client that did not name it


class ClientMetricsManager:
    """See the module."""

    def __init__(self, clock: Clock, registry: Registry, receiver: TelemetryReceiver, bytes_max: int) -> None:
        self._clock = clock  # fixed before start
        self.receiver = receiver  # fixed before start
        self._bytes_max = bytes_max  # fixed before start
        self._subscriptions = Subscriptions()
        self._lock = threading.Lock()
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()  # guarded by: _lock; by last use
        self._sensors = TelemetrySensors(registry, self.instance_count)
        self._warned_ms = -WARNING_MS  # any handler; two warnings at once do no harm

    # -- configuration

    def follow(self, dynamic: DynamicConfig) -> None:
        """Take over the subscriptions whenever they change. To be called before the start."""

        def changed(resource: Resource) -> None:
            if resource.type == CLIENT_METRICS:
                is_there = bool(dynamic.overrides(CLIENT_METRICS, resource.name))
                config = dynamic.client_metrics_config(resource.name) if is_there else None
                self._subscriptions.update(resource.name, config)

        dynamic.on_change(changed)

    # -- requests

    def get_subscriptions(self, request: Request) -> GetTelemetrySubscriptionsResponse:
        """Return what the client is to push; raises ApiError."""
        now_ms = self._clock.monotonic_ms()
        asked_id: bytes = request.message.client_instance_id
        needs_id = asked_id == ZERO_UUID or self._is_of_another(asked_id, request)
        instance = self._instance(self._new_id() if needs_id else asked_id, request, now_ms)
        with self._lock:
            is_in_time = instance.may_get(now_ms)
            if is_in_time:
                instance.last_error = ErrorCode.NONE
        if not is_in_time:
            self._throttled(instance)
        self._end(instance, request)
        if not is_in_time:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance.id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=[int(each) for each in COMPRESSIONS],
            push_interval_ms=instance.wanted.interval_ms,
            telemetry_max_bytes=self._bytes_max,
            delta_temporality=True,
            requested_metrics=list(instance.wanted.metrics),
        )

    def push(self, request: Request) -> None:
        """Take what a client pushed; raises ApiError."""
        message: PushTelemetryRequest = request.message
        if message.client_instance_id in (ZERO_UUID, METADATA_TOPIC_ID):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if self._is_of_another(message.client_instance_id, request):
            self._sensors.unknown_subscription()
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)  # so that its client asks again, and gets another id
        now_ms = self._clock.monotonic_ms()
        instance = self._instance(message.client_instance_id, request, now_ms)
        try:
            self._take(message, instance, now_ms)
        finally:
            self._end(instance, request)

    def _take(self, message: PushTelemetryRequest, instance: ClientInstance, now_ms: int) -> None:
        with self._lock:
            error = self._refusal(message, instance, now_ms)
            instance.is_terminating |= message.terminating and error is ErrorCode.NONE
            instance.last_error = error
        if error is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self._throttled(instance)
        elif error is ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
            self._sensors.unknown_subscription()
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        if message.metrics and instance.wanted.metrics:
            self._export(message, instance, now_ms)
        if message.terminating:
            self.receiver.forget(instance.id)

    def _refusal(self, message: PushTelemetryRequest, instance: ClientInstance, now_ms: int) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now_ms) and not message.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if message.subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if not 0 <= message.compression_type <= max(CompressionType):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(message.metrics) > self._bytes_max:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _export(self, message: PushTelemetryRequest, instance: ClientInstance, now_ms: int) -> None:
        began_ns = self._clock.monotonic_ns()
        compression = CompressionType(message.compression_type)
        try:
            self.receiver.export(instance, compression, message.metrics, self._bytes_max, now_ms)
        except BusyError:
            self._throttled(instance)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED) from None
        except PayloadError as error:
            is_due = now_ms - self._warned_ms >= WARNING_MS
            self._warned_ms = now_ms if is_due else self._warned_ms
            level = logging.WARNING if is_due else logging.DEBUG
            log.log(level, "metrics of client instance %s cannot be read: %s", uuid_to_string(instance.id), error)
            self._sensors.failed(instance.id)
            with self._lock:
                instance.last_error = ErrorCode.INVALID_RECORD
            raise ApiError(ErrorCode.INVALID_RECORD) from None
        self._sensors.exported(instance.id, (self._clock.monotonic_ns() - began_ns) / NS_PER_MS)

    # -- instances

    def instance_count(self) -> int:
        """Return how many client instances there are."""
        return len(self._instances)

    def disconnected(self, instance_id: bytes, connection_id: str) -> None:
        """Remove an instance whose connection was closed, unless it has come back over another one."""
        with self._lock:
            found = self._instances.get(instance_id)
            is_gone = found is not None and found.connection_id == connection_id
            if is_gone:
                del self._instances[instance_id]
        if is_gone:
            self._forget(instance_id)

    def expire(self) -> None:
        """Remove the instances that have not been used for a while, and series that their clients push no more."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            expired = [each.id for each in self._instances.values() if each.expires_ms <= now_ms]
            for instance_id in expired:
                del self._instances[instance_id]
        for instance_id in expired:
            self._forget(instance_id)
        self.receiver.expire(now_ms)

    def _throttled(self, instance: ClientInstance) -> None:
        """Count a request that came too early. Why only with a subscription: else anybody makes series."""
        if instance.wanted.metrics:
            self._sensors.throttled(instance.id)

    def _end(self, instance: ClientInstance, request: Request) -> None:
        """End a request: what it noted of an instance that has gone meanwhile goes, too."""
        connection = request.connection
        if connection is not None and connection.is_closed:  # perhaps before `on_closed` was set
            self.disconnected(instance.id, request.context.connection_id)
        with self._lock:
            is_there = instance.id in self._instances
        if not is_there:
            self._forget(instance.id)

    def _is_of_another(self, instance_id: bytes, request: Request) -> bool:
        with self._lock:
            known = self._instances.get(instance_id)
        return known is not None and known.owner != _owner(request)

    def _forget(self, instance_id: bytes) -> None:
        self._sensors.forget(instance_id)
        self.receiver.forget(instance_id)

    def _new_id(self) -> bytes:
        while True:
            instance_id = random_uuid()
            with self._lock:
                if instance_id not in self._instances:
                    return instance_id

    def _instance(self, instance_id: bytes, request: Request, now_ms: int) -> ClientInstance:
        """Return the instance with this id; make it, or make it again after a change of subscriptions (rule 2)."""
        connection_id, connection = request.context.connection_id, request.connection
        if connection is not None:
            former = connection.on_closed.get(CLOSING)
            connection.on_closed[CLOSING] = partial(self.disconnected, instance_id, connection_id)
            if isinstance(former, partial) and former.args != (instance_id, connection_id):
                former()  # it has begun again with another id (rule 1)
        snapshot = self._subscriptions.current
        with self._lock:
            known = self._instances.get(instance_id)
            if known is not None and known.version >= snapshot.version:
                return self._used(known, connection_id, now_ms)
        # Why outside the lock: patterns may take a while.
        attributes = _attributes(instance_id, request) if known is None else known.attributes
        owner = _owner(request)
        made = ClientInstance(instance_id, attributes, snapshot.wanted(attributes), snapshot.version, owner)
        evicted = None
        with self._lock:
            known = self._instances.get(instance_id)
            if known is not None and known.version >= made.version:  # another thread was faster
                made = known
            else:
                self._instances[instance_id] = made
            if len(self._instances) > INSTANCES_MAX:
                evicted, _ = self._instances.popitem(last=False)
            self._used(made, connection_id, now_ms)
        if evicted is not None:
            self._forget(evicted)
        return made

    def _used(self, instance: ClientInstance, connection_id: str, now_ms: int) -> ClientInstance:
        """Note a use; `_lock` is held."""
        instance.touch(connection_id, now_ms)
        self._instances.move_to_end(instance.id)
        return instance


def _owner(request: Request) -> Owner:
    return request.context.principal, request.context.client_address


def _attributes(instance_id: bytes, request: Request) -> Attributes:
    """Return what subscriptions match clients by."""
    connection, context = request.connection, request.context
    software = (UNKNOWN, UNKNOWN) if connection is None else connection.client_software or (UNKNOWN, UNKNOWN)
    return {
        "client_instance_id": uuid_to_string(instance_id),
        "client_id": None if request.client_id is None else request.client_id[:CLIENT_ID_CHARACTERS],
        "client_software_name": software[0],
        "client_software_version": software[1],
        "client_source_address": context.client_address,
        "client_source_port": str(context.client_port),
    }
