"""ChannelManager: the senders of all registered brokers, and the changes that each has to send.

Threads: the event thread calls `start`, `publish` and `stop`; any thread may read `channels` and `applied_offset`.

Source: ControllerChannelManager (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.common.clock import Clock
from barnabas.controller.image import Broker, Image
from barnabas.controller.image_editor import Delta
from barnabas.controller.push.broker_channel import BrokerChannel, Connect, PushObserver
from barnabas.controller.push.pending import Pending, affected_by_brokers, pending_for
from barnabas.controller.push.requests import Sender


class ChannelManager:
    """The senders of all registered brokers. Owner: event thread; `applied_offset` is for any thread."""

    def __init__(
        self,
        sender: Sender,
        connect: Connect,
        *,
        observer: PushObserver | None = None,
        clock: Clock | None = None,
        start_threads: bool = True,
    ) -> None:
        self._sender = sender  # fixed before start
        self._observer = observer  # fixed before start
        self._clock = clock  # fixed before start
        self._connect = connect  # fixed before start
        self._start_threads = start_threads  # fixed before start; False in tests, which step the channels
        self.channels: dict[int, BrokerChannel] = {}  # by broker id; replaced whole by the event thread

    def start(self, image: Image) -> None:
        """Start a sender for every registered broker; its first push is FULL."""
        for broker in image.brokers.values():
            self._add(broker, image)

    def publish(self, image: Image, deltas: Sequence[Delta]) -> None:
        """Make committed changes pending for all brokers; `image` is the image after all of them."""
        changes: dict[int, Pending] = {}
        deleted = {topic_id: topic for delta in deltas for topic_id, topic in delta.deleted_topics.items()}
        for delta in deltas:
            if not delta:
                continue
            affected = affected_by_brokers(image, delta)
            known = list(self.channels)
            self._follow_registrations(image, delta)
            for broker_id in known:
                pending = pending_for(broker_id, image, delta, affected, deleted)
                changes.setdefault(broker_id, Pending()).merge(pending)
        for broker_id, pending in changes.items():
            channel = self.channels.get(broker_id)
            if channel is not None:
                channel.offer(pending, image)

    def _follow_registrations(self, image: Image, delta: Delta) -> None:
        """Add, remove or reset the senders of the brokers that changed."""
        for broker_id in delta.brokers:
            broker, channel = image.brokers.get(broker_id), self.channels.get(broker_id)
            if broker is None:
                self._remove(broker_id)
            elif channel is None:
                self._add(broker, image)
            elif (channel.broker.epoch, channel.broker.endpoints) != (broker.epoch, broker.endpoints):
                channel.reset(broker, image)

    def _add(self, broker: Broker, image: Image) -> None:
        channel = BrokerChannel(
            self._sender, broker, self._connect, image, self._observer, self._clock, self._others_have_applied
        )
        self.channels = {**self.channels, broker.id: channel}
        if self._start_threads:
            channel.start()

    def _remove(self, broker_id: int) -> None:
        channel = self.channels.get(broker_id)
        if channel is not None:
            self.channels = {id_: c for id_, c in self.channels.items() if id_ != broker_id}
            channel.stop()

    def applied_offset(self, broker: Broker) -> int:
        """Return the metadata offset that this incarnation of a broker has acknowledged; -1 if none."""
        channel = self.channels.get(broker.id)
        if channel is None:
            return -1
        epoch, offset = channel.applied
        return offset if epoch == broker.epoch else -1

    def _others_have_applied(self, broker_id: int, image: Image) -> bool:
        """Return whether all active brokers except this one have acknowledged the whole image; for any sender."""
        others = [broker for broker in image.brokers.values() if broker.id != broker_id and broker.is_active]
        return all(self.applied_offset(broker) >= image.offset for broker in others)

    def end(self) -> None:
        """Ask all senders to end; nothing waits for their threads, which may be connecting."""
        for channel in self.channels.values():
            channel.stop()

    def is_alive(self) -> bool:
        """Return whether a sender's thread still runs."""
        return any(channel.is_alive() for channel in self.channels.values())

    def stop(self) -> None:
        """Stop all senders and wait for their threads."""
        self.end()
        for channel in self.channels.values():
            channel.join()
