"""Senders with their threads: `controller/push/broker_channel.py` and `channel_manager.py`."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from barnabas.controller.image import Broker, Endpoint, Image, PartitionKey
from barnabas.controller.image_editor import ImageEditor
from barnabas.controller.push.broker_channel import (
    BACKOFF_MAX_MS,
    BACKOFF_MIN_MS,
    HEAD_START_MS,
    HEAD_START_STEP_MS,
    BrokerChannel,
)
from barnabas.controller.push.channel_manager import ChannelManager
from barnabas.controller.push.pending import Pending, Stop
from barnabas.controller.push.requests import Sender
from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.k05_stop_replica import StopReplicaRequest
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from barnabas.protocol.metadata_records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from barnabas.protocol.push_tags import (
    EPOCH_DURING_DELETE,
    FULL,
    INCREMENTAL,
    Receiver,
    offset_of,
    receiver_of,
    records_of,
)
from tests.controller.rig import RESPONSES

WAIT_S = 10


class Far:
    """Connections that hand over what they were given; each `failure` in the queue makes one send fail."""

    def __init__(self) -> None:
        self.received: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.failures: queue.Queue[OSError] = queue.Queue()
        self.closed: list[str] = []

    def connect(self, endpoint: Endpoint) -> Far.Connection:
        return Far.Connection(self, f"{endpoint.host}:{endpoint.port}")

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
            self.far.closed.append(self.address)

    def push(self) -> list[Any]:
        """The next push: up to and with its UpdateMetadata."""
        messages = []
        while not messages or not isinstance(messages[-1], UpdateMetadataRequest):
            messages.append(self.received.get(timeout=WAIT_S)[1])
        return messages


def broker(epoch: int = 5, port: int = 9001) -> Broker:
    endpoint = Endpoint("PLAINTEXT", "b1", port, 0)
    return Broker(1, epoch, bytes(16), (endpoint,), (), None, (b"d" * 16,), False, False)


SENDER = Sender(100, 3, "PLAINTEXT", "h3zYrOmsQJqmHD2y0yjFEg")
PARTITION = PartitionRecord(topic_id=b"t" * 16, partition_id=0, replicas=[1], isr=[1], leader=1)
IMAGE = Image(brokers={1: broker()}, offset=9)


def test_a_sender_from_start_to_stop() -> None:
    far = Far()
    channel = BrokerChannel(SENDER, broker(), far.connect, Image(brokers={1: broker()}, offset=9))
    channel.start()
    first = far.push()
    assert [type(m) for m in first] == [LeaderAndIsrRequest, UpdateMetadataRequest]
    assert [m.type for m in first] == [FULL, FULL]
    far.failures.put(ConnectionResetError("gone"))
    far.failures.put(ConnectionResetError("still gone"))
    channel.offer(Pending(has_metadata=True), IMAGE)
    (update,) = far.push()
    assert (update.type, update.broker_epoch) == (INCREMENTAL, 5)
    channel.reset(broker(8, 9002), Image(brokers={1: broker(8, 9002)}, offset=11))
    again = far.push()
    assert [(m.type, m.broker_epoch) for m in again] == [(FULL, 8), (FULL, 8)]
    channel.stop()
    channel.join()
    assert channel.applied in ((5, 9), (8, 11))


def test_the_connections_of_former_registrations_and_the_last_one_are_closed() -> None:
    far = Far()
    channel = BrokerChannel(SENDER, broker(), far.connect, IMAGE)
    channel.start()
    far.push()
    channel.reset(broker(8, 9002), Image(brokers={1: broker(8, 9002)}, offset=11))
    far.push()
    channel.stop()
    channel.join()
    assert far.closed == ["b1:9001", "b1:9002"]


def test_a_sender_that_waits_can_be_stopped() -> None:
    far = Far()
    channel = BrokerChannel(SENDER, broker(), far.connect, IMAGE)
    for _ in range(50):
        far.failures.put(ConnectionRefusedError("unreachable"))
    channel.start()
    channel.stop()
    channel.join()
    assert far.received.empty()


def test_the_pause_after_failures_doubles_up_to_a_second() -> None:
    far = Far()
    channel = BrokerChannel(SENDER, broker(), far.connect, IMAGE)
    pauses = []
    for _ in range(12):
        far.failures.put(ConnectionRefusedError("unreachable"))
        assert not channel.push_once()
        pauses.append(channel._backoff_ms())
    assert pauses[:3] == [BACKOFF_MIN_MS, 2 * BACKOFF_MIN_MS, 4 * BACKOFF_MIN_MS]
    assert pauses[-1] == BACKOFF_MAX_MS
    assert channel.push_once()
    assert channel.applied == (5, 9)
    channel.reset(broker(8), IMAGE)
    assert channel.push_once()
    assert channel.applied == (8, 9)


def test_a_broker_that_shuts_down_receives_the_push_after_the_others() -> None:
    far, have_applied = Far(), threading.Event()
    leaving = broker()._replace(in_controlled_shutdown=True)
    image = Image(brokers={1: leaving}, offset=9)
    asked: list[int] = []

    def others_have_applied(broker_id: int, seen: Image) -> bool:
        asked.append(broker_id)
        assert seen is image
        return have_applied.is_set()

    channel = BrokerChannel(SENDER, leaving, far.connect, image, others_have_applied=others_have_applied)
    channel._pending = Pending(leader_and_isr={PartitionKey(bytes(16), 0)})
    have_applied.set()
    assert channel.push_once()
    assert asked == [1]
    channel.offer(Pending(leader_and_isr={PartitionKey(bytes(16), 0)}), image)
    have_applied.clear()
    assert channel.push_once(), "after the head start it is sent anyway"
    assert len(asked) == 1 + HEAD_START_MS // HEAD_START_STEP_MS


def test_only_active_brokers_are_waited_for() -> None:
    far = Far()
    brokers = {id_: broker()._replace(id=id_) for id_ in (1, 2, 3)}
    brokers[3] = brokers[3]._replace(is_fenced=True)
    image = Image(brokers=brokers, offset=9)
    manager = ChannelManager(SENDER, far.connect, start_threads=False)
    manager.start(image)
    assert not manager._others_have_applied(1, image)
    manager.channels[2].push_once()
    assert manager._others_have_applied(1, image)
    assert not manager._others_have_applied(1, Image(brokers=brokers, offset=10))


def test_the_offset_of_a_push_is_true_despite_concurrent_commits() -> None:
    """A change is committed after the sender took what is pending: it is in no push, nor in the offset of one."""
    far = Far()
    manager = ChannelManager(SENDER, far.connect, start_threads=False)
    manager.start(IMAGE)
    channel = manager.channels[1]
    assert channel.push_once()
    far.push()
    key = PartitionKey(b"t" * 16, 0)
    editor = ImageEditor(IMAGE)
    editor.apply_all([TopicRecord(name="t", topic_id=key.topic_id), PARTITION], 10)
    first, first_delta = editor.image(), editor.delta
    editor = ImageEditor(first)
    editor.apply_all([PartitionChangeRecord(topic_id=key.topic_id, partition_id=0, leader=-1)], 12)

    def connect(endpoint: Endpoint) -> Far.Connection:
        manager.publish(editor.image(), [editor.delta])  # while the push is under way
        return far.connect(endpoint)

    channel._connection, channel._connect = None, connect
    manager.publish(first, [first_delta])
    assert channel.push_once()
    leader_and_isr, update = far.push()
    assert leader_and_isr.topic_states[0].partition_states[0].leader == 1
    assert (offset_of(leader_and_isr), offset_of(update), channel.applied) == (11, 11, (5, 11))
    assert channel.push_once()
    leader_and_isr, update = far.push()
    assert leader_and_isr.topic_states[0].partition_states[0].leader == -1
    assert (offset_of(update), channel.applied) == (12, (5, 12))


def test_several_changes_of_one_commit_go_in_one_push() -> None:
    """The image has all of them: an offer of the first alone would claim the second."""
    far = Far()
    manager = ChannelManager(SENDER, far.connect, start_threads=False)
    manager.start(IMAGE)
    channel = manager.channels[1]
    offered: list[set[PartitionKey]] = []
    channel.offer = lambda pending, image: offered.append(pending.leader_and_isr)  # type: ignore[method-assign]
    image, deltas = IMAGE, []
    for number in (1, 2):
        editor = ImageEditor(image)
        topic_id = bytes([number]) * 16
        records = [
            TopicRecord(name=f"t{number}", topic_id=topic_id),
            PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[1], isr=[1], leader=1),
        ]
        editor.apply_all(records, image.offset + 1)
        image = editor.image()
        deltas.append(editor.delta)
    manager.publish(image, deltas)
    assert offered == [{PartitionKey(bytes([number]) * 16, 0) for number in (1, 2)}]


@pytest.mark.parametrize("is_one_change", [True, False])
def test_a_replica_removed_just_before_its_topic_is_deleted_too(is_one_change: bool) -> None:
    key = PartitionKey(b"t" * 16, 0)
    editor = ImageEditor(IMAGE)
    editor.apply_all([TopicRecord(name="t", topic_id=key.topic_id), PARTITION], 10)
    manager = ChannelManager(SENDER, Far().connect, start_threads=False)
    manager.start(editor.image())
    offered: list[dict[PartitionKey, Stop]] = []
    manager.channels[1].offer = lambda pending, image: offered.append(pending.stops)  # type: ignore[method-assign]
    moved = PartitionChangeRecord(topic_id=key.topic_id, partition_id=0, replicas=[3], isr=[3], leader=3)
    removed = RemoveTopicRecord(topic_id=key.topic_id)
    image, deltas = editor.image(), []
    for records in [[moved, removed]] if is_one_change else [[moved], [removed]]:
        editor = ImageEditor(image)
        editor.apply_all(records, image.offset + 1)
        image = editor.image()
        deltas.append(editor.delta)
    manager.publish(image, deltas)
    assert offered == [{key: Stop("t", EPOCH_DURING_DELETE)}]


def test_pending_deletions_survive_a_new_registration() -> None:
    far = Far()
    channel = BrokerChannel(SENDER, broker(), far.connect, IMAGE)
    key = PartitionKey(b"t" * 16, 0)
    channel.offer(Pending(stops={key: Stop("t", -2)}), IMAGE)
    channel.reset(broker(8), Image(brokers={1: broker(8)}, offset=11))
    assert channel.push_once()
    stop, leader_and_isr, _ = far.push()
    assert (type(stop), leader_and_isr.type) == (StopReplicaRequest, FULL), "else the log would be set aside"
    assert [record.topic_id for record in records_of(stop)] == [key.topic_id]
    assert {receiver_of(message) for message in (stop, leader_and_isr)} == {Receiver(SENDER.cluster_id, 1, bytes(16))}


def test_a_push_for_a_former_registration_opens_no_connection() -> None:
    """The address may be another's by now, and pushes for the new registration must not go there."""
    far = Far()
    moved = Image(brokers={1: broker(8, 9002)}, offset=11)

    def others_have_applied(_id: int, _image: Image) -> bool:
        channel.reset(broker(8, 9002), moved)
        return True

    leaving = broker()._replace(in_controlled_shutdown=True)
    image = Image(brokers={1: leaving}, offset=9)
    channel = BrokerChannel(SENDER, leaving, far.connect, image, others_have_applied=others_have_applied)
    channel.offer(Pending(leader_and_isr={PartitionKey(b"t" * 16, 0)}), image)
    assert not channel.push_once()
    assert far.received.empty()
    assert channel.push_once()
    assert far.received.get_nowait()[0].endswith(":9002")


def test_deletions_of_a_failed_push_survive_a_new_registration() -> None:
    far = Far()
    channel = BrokerChannel(SENDER, broker(), far.connect, IMAGE)
    key = PartitionKey(b"t" * 16, 0)

    def connect(endpoint: Endpoint) -> Far.Connection:
        channel.reset(broker(8), Image(brokers={1: broker(8)}, offset=11))
        raise ConnectionRefusedError("it restarts")

    channel._connect = connect
    channel.offer(Pending(stops={key: Stop("t", -2)}), IMAGE)
    assert not channel.push_once()
    channel._connect = far.connect
    assert channel.push_once()
    assert isinstance(far.push()[0], StopReplicaRequest)
