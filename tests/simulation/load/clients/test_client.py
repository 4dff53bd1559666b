"""Which leaders a client of a simulated cluster believes in."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.simulation.load.clients.client import NO_EPOCH, Address
from tests.simulation.load.clients.fetching import Fetcher

BROKERS: list[Address] = [("host0", 9092), ("host1", 9093)]


class Answered(Fetcher):
    """A client whose requests are answered here."""

    def __init__(self, *leaders: tuple[int, int]) -> None:
        super().__init__("client", BROKERS)
        self._answers = list(leaders)  # (leader, epoch) of the metadata of each broker that is asked
        self.asked: list[tuple[Address | None, FetchRequest]] = []

    def ask_any(self, message: Any, version: int) -> Any:
        leader, epoch = self._answers.pop(0)
        partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host=host, port=port)
                for number, (host, port) in enumerate(BROKERS)
            ],
            topics=[MetadataResponseTopic(name="t", partitions=[partition])],
        )

    def ask(self, address: Address | None, message: Any, version: int, timeout_ms: int = 0) -> Any:
        self.asked.append((address, message))
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(high_watermark=0)])])


def test_a_fetch_names_the_epoch_of_the_leader() -> None:
    client = Answered((1, 4))
    client.fetch("t", 0, 0)
    ((address, request),) = client.asked
    assert address == BROKERS[1]
    assert request.topics[0].partitions[0].current_leader_epoch == 4


def test_metadata_of_an_earlier_epoch_names_no_leader() -> None:
    client = Answered((1, 4), (0, 3), (1, 4))
    client.leader("t", 0)
    client.forget()
    assert client.leader("t", 0) is None
    assert client.leader_epoch("t", 0) == 4
    assert client.leader("t", 0) == BROKERS[1]


@pytest.mark.parametrize("leader", [-1, 7])
def test_a_leader_without_an_address_is_none_yet(leader: int) -> None:
    client = Answered((leader, 5))
    assert client.leader("t", 0) is None
    assert client.leader_epoch("t", 0) == 5


def test_of_an_unknown_partition_no_epoch_is_known() -> None:
    assert Answered().leader_epoch("t", 0) == NO_EPOCH
