"""A sender with its thread: it pushes, waits, tries again, starts over, ends."""

from __future__ import annotations

import queue
import threading
from typing import Any

from barnabas.controller.channel_manager import (
    BACKOFF_MAX_MS,
    BACKOFF_MIN_MS,
    HEAD_START_MS,
    HEAD_START_STEP_MS,
    BrokerChannel,
    ChannelManager,
)
from barnabas.controller.image import Broker, Endpoint, Image, PartitionKey
from barnabas.controller.push import Pending, Sender
from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from barnabas.protocol.push_tags import FULL, INCREMENTAL
from tests.controller.rig import RESPONSES

WAIT_S = 10


class Far:
    """Connections that hand over what they were given; each `failure` in the queue makes one send fail."""

    def __init__(self) -> None:
        self.received: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.failures: queue.Queue[OSError] = queue.Queue()

    def connect(self, host: str, port: int) -> Far.Connection:
        return Far.Connection(self, f"{host}:{port}")

    class Connection:
        def __init__(self, far: Far, address: str) -> None:
            self.far, self.address = far, address

        def send(self, message: Any, version: int) -> Any:
            if not self.far.failures.empty():
                raise self.far.failures.get_nowait()
            self.far.received.put((self.address, message))
            return RESPONSES[message.API_KEY]()

        def abort(self) -> None:
            pass

        def close(self) -> None:
            pass

    def push(self) -> list[Any]:
        """The next push: up to and with its UpdateMetadata."""
        messages = []
        while not messages or not isinstance(messages[-1], UpdateMetadataRequest):
            messages.append(self.received.get(timeout=WAIT_S)[1])
        return messages


def broker(epoch: int = 5, port: int = 9001) -> Broker:
    endpoint = Endpoint("PLAINTEXT", "b1", port, 0)
    return Broker(1, epoch, bytes(16), (endpoint,), (), None, (b"d" * 16,), False, False)


def test_a_sender_from_start_to_stop() -> None:
    far = Far()
    images = [Image(brokers={1: broker()}, offset=9)]
    channel = BrokerChannel(Sender(100, 3, "PLAINTEXT"), broker(), far.connect, lambda: images[-1])
    channel.start()
    first = far.push()
    assert [type(m) for m in first] == [LeaderAndIsrRequest, UpdateMetadataRequest]
    assert [m.type for m in first] == [FULL, FULL]
    far.failures.put(ConnectionResetError("gone"))
    far.failures.put(ConnectionResetError("still gone"))
    channel.offer(Pending(has_metadata=True))
    (update,) = far.push()
    assert (update.type, update.broker_epoch) == (INCREMENTAL, 5)
    images.append(Image(brokers={1: broker(8, 9002)}, offset=11))
    channel.reset(broker(8, 9002))
    again = far.push()
    assert [(m.type, m.broker_epoch) for m in again] == [(FULL, 8), (FULL, 8)]
    channel.stop()
    channel.join()
    assert channel.applied in ((5, 9), (8, 11))


def test_a_sender_that_waits_can_be_stopped() -> None:
    far = Far()
    channel = BrokerChannel(Sender(100, 3, None), broker(), far.connect, lambda: Image(brokers={1: broker()}, offset=9))
    for _ in range(50):
        far.failures.put(ConnectionRefusedError("nobody"))
    channel.start()
    channel.stop()
    channel.join()
    assert far.received.empty()


def test_the_pause_after_failures_doubles_up_to_a_second() -> None:
    far = Far()
    channel = BrokerChannel(Sender(100, 3, None), broker(), far.connect, lambda: Image(brokers={1: broker()}, offset=9))
    pauses = []
    for _ in range(12):
        far.failures.put(ConnectionRefusedError("nobody"))
        assert not channel.push_once()
        pauses.append(channel._backoff_ms())
    assert pauses[:3] == [BACKOFF_MIN_MS, 2 * BACKOFF_MIN_MS, 4 * BACKOFF_MIN_MS]
    assert pauses[-1] == BACKOFF_MAX_MS
    assert channel.push_once()
    assert channel.applied == (5, 9)
    channel.reset(broker(8))
    assert channel.push_once()
    assert channel.applied == (8, 9)


def test_a_broker_that_shuts_down_is_told_after_the_others() -> None:
    far, told = Far(), threading.Event()
    leaving = broker()._replace(in_controlled_shutdown=True)
    image = Image(brokers={1: leaving}, offset=9)
    asked: list[int] = []

    def others_have_applied(broker_id: int, seen: Image) -> bool:
        asked.append(broker_id)
        assert seen is image
        return told.is_set()

    channel = BrokerChannel(
        Sender(100, 3, "PLAINTEXT"), leaving, far.connect, lambda: image, others_have_applied=others_have_applied
    )
    channel._pending = Pending(leader_and_isr={PartitionKey(bytes(16), 0)})
    told.set()
    assert channel.push_once()
    assert asked == [1]
    channel.offer(Pending(leader_and_isr={PartitionKey(bytes(16), 0)}))
    told.clear()
    assert channel.push_once(), "it is told all the same when they take too long"
    assert len(asked) == 1 + HEAD_START_MS // HEAD_START_STEP_MS


def test_only_active_brokers_are_waited_for() -> None:
    far = Far()
    brokers = {id_: broker()._replace(id=id_) for id_ in (1, 2, 3)}
    brokers[3] = brokers[3]._replace(is_fenced=True)
    images = [Image(brokers=brokers, offset=9)]
    manager = ChannelManager(Sender(100, 3, "PLAINTEXT"), far.connect, lambda: images[-1], start_threads=False)
    manager.start(images[-1])
    assert not manager._others_have_applied(1, images[-1])
    manager.channels[2].push_once()
    assert manager._others_have_applied(1, images[-1])
    images.append(Image(brokers=brokers, offset=10))
    assert not manager._others_have_applied(1, images[-1])
