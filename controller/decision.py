"""What a decision gets and gives: the two values between the event thread and the pure modules.

A decision is a function `(view, request) -> Decision`. It reads the view and changes nothing; the event thread appends
the records, applies them and answers with the response once they are durable. An error that concerns a whole request
is raised as `ApiError`; one that concerns an item is a code inside the response.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from barnabas.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, Broker, Image
from barnabas.protocol.errors import ApiError, ErrorCode, message_that_fits

R = TypeVar("R")

MAX_RECORDS_PER_USER_OP: Final = 10_000  # QuorumController.MAX_RECORDS_PER_USER_OP


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records to append as one atomic batch (maybe none), and the response once they are committed."""

    records: Sequence[Any]
    response: R


@dataclass(frozen=True, slots=True)
class View:
    """What a decision may read.

    `image` includes records that are appended but not yet committed (nothing said about them leaves the process
    before they are). `next_offset` is the offset that the first record of this decision will get.
    """

    image: Image
    config: Any  # barnabas.config.Config of the controller process
    rng: random.Random = field(default_factory=random.Random)

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self.image.offset + 1

    def topic_setting(self, topic: str, key: str) -> str | None:
        """The raw dynamic value of a topic key: the topic's own or the brokers' default; None: as configured."""
        value = self.image.resource_configs(TOPIC_RESOURCE, topic).get(key)
        if value is None:
            value = self.image.resource_configs(BROKER_RESOURCE, "").get(key)
        return value

    def unclean_election_enabled(self, topic: str) -> bool:
        """Whether data may be given up to get a leader for this topic."""
        value = self.topic_setting(topic, "unclean.leader.election.enable")
        if value is None:
            return bool(self.config.unclean_leader_election_enable)
        return value.strip().lower() == "true"


def check_broker_epoch(image: Image, broker_id: int, broker_epoch: int) -> Broker:
    """The registration that a broker's request speaks for; raises STALE_BROKER_EPOCH."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
        )
    return broker


class Failure(NamedTuple):
    """An error of one item of a request."""

    code: ErrorCode
    text: str | None = None

    @property
    def message(self) -> str | None:
        """The text, as much of it as a response can carry."""
        return None if self.text is None else message_that_fits(self.text)

    @classmethod
    def of(cls, error: ApiError) -> Failure:
        """The item's error for an exception; the code's own text when it has no message."""
        return cls(error.code, str(error) or error.code.message)


def check_item_count(count: int, count_max: int = MAX_RECORDS_PER_USER_OP) -> None:
    """Refuse a request that names too many things.

    Apache Kafka counts only the records that come of them. The event thread looks at each first, and all others wait.
    """
    if count > count_max:
        raise _too_large()


def _too_large() -> ApiError:
    return ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def check_batch_size(records: Sequence[Any]) -> None:
    """Refuse a request that would write too much at once, as Kafka's bounded lists do; asked after each item."""
    if len(records) > MAX_RECORDS_PER_USER_OP:
        raise _too_large()


def first_duplicates(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names given once, and names given more than once, both in order of first appearance."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [n for n, count in counts.items() if count == 1], [n for n, count in counts.items() if count > 1]


def merged(*maps: Mapping[str, str]) -> dict[str, str]:
    """The maps laid upon each other, the later ones on top."""
    result: dict[str, str] = {}
    for one in maps:
        result.update(one)
    return result
