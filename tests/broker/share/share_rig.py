"""A broker that delivers topic `t` to share group `g`, and members with a connection each."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from barnabas.broker.authorization.authorizer import Authorizer
from barnabas.broker.metadata.metadata_cache import SHARE_GROUP_STATE_TOPIC
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.parking import Park
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.broker.share.led_partition import LedSharePartition
from barnabas.broker.share.sessions import Place
from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages import k78_share_fetch as fetch_wire
from barnabas.protocol.messages import k79_share_acknowledge as acknowledge_wire
from barnabas.protocol.records.batch import ControlType, end_txn_marker, iter_headers
from tests.broker.apis.config_rig import set_configs
from tests.broker.authorization.kit import ALICE
from tests.support.broker.broker_rig import LISTENER, BrokerRig, batch, produce, state, topic_id
from tests.support.broker.parked import Waiting

GROUP = "g"
ACCEPT, RELEASE, REJECT, RENEW = range(1, 5)
LOCK_MS = 30_000


class ShareRig(BrokerRig):
    """`t` has two partitions, whose states are initialized with start offset 0."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**{"transaction_partition_verification_enable": "false", **settings})
        self.by: Authorizer | None = None
        self.services.share_groups = SimpleNamespace(is_enabled=True)  # type: ignore[assignment]
        self.push({SHARE_GROUP_STATE_TOPIC: [state(1)], "t": [state(1), state(1)]})
        self.share_coordinator.run_pending_jobs()
        for partition in (0, 1):
            self.initialize(partition)

    def initialize(self, partition: int, start_offset: int = 0, state_epoch: int = 1, group: str = GROUP) -> None:
        """Initialize the state of a share partition."""
        errors: list[ErrorCode] = []
        key = self.key(partition, group)
        self.persister.initialize(key, state_epoch, start_offset, errors.append)
        assert errors == [ErrorCode.NONE]

    def key(self, partition: int, group: str = GROUP) -> Any:
        """The key of a share partition of `t`."""
        from barnabas.broker.coordinators.share_state.values import SharePartitionKey

        return SharePartitionKey(group, topic_id("t"), partition)

    def set_group(self, **texts: str) -> None:
        """Set configs of the group."""
        set_configs(self.services, ResourceType.GROUP, GROUP, **texts)

    def append(self, count: int = 1, partition: int = 0, **options: Any) -> None:
        """Append a batch of so many records."""
        records = batch(*[b"v%d" % n for n in range(count)], **options)
        response = self.answer(produce(records, partition=partition), 9)
        assert response.responses[0].partition_responses[0].error_code == 0

    def append_in_transaction(self, producer_id: int, count: int = 1) -> None:
        """Append a batch of an open transaction to partition 0."""
        records = batch(
            *[b"v%d" % n for n in range(count)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        self._append(records)

    def end_transaction(self, producer_id: int, control_type: ControlType) -> None:
        """Append the marker that ends a transaction to partition 0."""
        marker = end_txn_marker(
            control_type, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
        )
        self._append(marker)

    def _append(self, records: bytes) -> None:
        tp = TopicPartition("t", 0)
        partition = self.manager.partition(tp)
        partition.append_as_leader(memoryview(bytearray(records)), required_acks=1, origin=AppendOrigin.COORDINATOR)
        self.manager.complete_delayed(tp)

    def led(self, partition: int = 0, group: str = GROUP) -> LedSharePartition:
        """The share partition in memory."""
        found = self.share_partitions.find(group, Place(topic_id("t"), partition))
        assert found is not None
        return found

    def member(self, name: str, **about: Any) -> ShareMember:
        """A member with a session of partition 0."""
        return ShareMember(self, name, **about)


class ShareMember:
    """Sends ShareFetch and ShareAcknowledge in the order of its session."""

    def __init__(self, rig: ShareRig, name: str, group: str = GROUP, waiting_type: type[Waiting] = Waiting) -> None:
        self.waiting_type = waiting_type
        self.rig = rig
        self.name = name
        self.group = group
        self.epoch = 0
        self.connection: Any = SimpleNamespace(on_closed={}, is_closed=False, pooled_bytes=0, access=None)

    def ask(self, message: Any, version: int = 2) -> Any:
        """Send a request of the next epoch; return its response or a `Waiting`."""
        header = RequestHeader(message.API_KEY, version, 7, self.name)
        context = RequestContext(LISTENER, LISTENER, "127.0.0.1", 5, f"connection of {self.name}", ALICE)
        request = Request.for_message(header, message, context)
        request.connection = self.connection
        api = self.rig.services.table[message.API_KEY]
        request.api = api
        if self.rig.by is not None:
            assert self.rig.by.admit(api, request) is None
        answer = api.handle(self.rig.services, request)
        self.epoch = 1 if self.epoch < 0 else self.epoch + 1
        if isinstance(answer, Park):
            waiting = self.waiting_type(request, self.rig.manager.complete_delayed)
            waiting.wait(answer)
            return waiting if waiting.response is None else waiting.response
        assert isinstance(answer, Reply)
        return answer.message

    def fetch(
        self,
        *partitions: int,
        acks: Sequence[tuple[Any, ...]] = (),
        wait_ms: int = 0,
        most: int = 500,
        epoch: int | None = None,
        forget: Sequence[int] = (),
        version: int = 2,
        topic: str = "t",
        **more: Any,
    ) -> Any:
        """Fetch; the first request names partition 0 unless it says otherwise. `acks` are of partition 0."""
        named = partitions or ((0,) if self.epoch == 0 or acks else ())
        topics = [
            fetch_wire.FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    fetch_wire.AcknowledgementBatch(
                        first_offset=ack[0], last_offset=ack[1], acknowledge_types=list(ack[2:])
                    )
                    for ack in (acks if index == 0 else ())
                ],
            )
            for index in named
        ]
        forgotten = [fetch_wire.ForgottenTopic(topic_id=topic_id("t"), partitions=list(forget))] if forget else []
        values = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": most, "batch_size": 500, **more}
        return self.ask(
            fetch_wire.ShareFetchRequest(
                group_id=self.group,
                member_id=self.name,
                share_session_epoch=self.epoch if epoch is None else epoch,
                max_wait_ms=wait_ms,
                topics=[fetch_wire.FetchTopic(topic_id=topic_id(topic), partitions=topics)] if topics else [],
                forgotten_topics_data=forgotten,
                **values,
            ),
            version,
        )

    def acknowledge(self, *acks: tuple[Any, ...], epoch: int | None = None, is_renew_ack: bool = False) -> Any:
        """Acknowledge records of partition 0."""
        return self.ask(
            acknowledge_wire.ShareAcknowledgeRequest(
                group_id=self.group,
                member_id=self.name,
                share_session_epoch=self.epoch if epoch is None else epoch,
                is_renew_ack=is_renew_ack,
                topics=[
                    acknowledge_wire.AcknowledgeTopic(
                        topic_id=topic_id("t"),
                        partitions=[
                            acknowledge_wire.AcknowledgePartition(
                                partition_index=0,
                                acknowledgement_batches=[
                                    acknowledge_wire.AcknowledgementBatch(
                                        first_offset=ack[0], last_offset=ack[1], acknowledge_types=list(ack[2:])
                                    )
                                    for ack in acks
                                ],
                            )
                        ],
                    )
                ]
                if acks
                else [],
            )
        )

    def acquire(self, **about: Any) -> list[tuple[int, int, int]]:
        """Fetch; return what was acquired of partition 0."""
        return acquired(self.fetch(**about))

    def close(self) -> None:
        """Close the connection."""
        self.connection.is_closed = True
        for follow in list(self.connection.on_closed.values()):
            follow()
        self.rig.advance_ms(1)


def acquired(response: Any) -> list[tuple[int, int, int]]:
    """The acquired records of a response: first offset, last offset, delivery count."""
    return [
        (records.first_offset, records.last_offset, records.delivery_count)
        for topic in response.responses
        for data in topic.partitions
        for records in data.acquired_records
    ]


def errors(response: Any) -> dict[int, int]:
    """The error of each partition of a response."""
    return {data.partition_index: data.error_code for topic in response.responses for data in topic.partitions}


def ack_errors(response: Any) -> dict[int, int]:
    """The error of each partition's acknowledgements in a response of ShareFetch."""
    return {
        data.partition_index: data.acknowledge_error_code for topic in response.responses for data in topic.partitions
    }


def batches(response: Any) -> list[tuple[int, int]]:
    """The offsets of the record batches of a response."""
    found = []
    for topic in response.responses:
        for data in topic.partitions:
            records = data.records if isinstance(data.records, bytes) else data.records.read()
            found += [(header.base_offset, header.last_offset) for _, header in iter_headers(records)]
    return found
