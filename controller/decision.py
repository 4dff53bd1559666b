"""View and Decision: the input and the result of a decision function.

A decision is a pure function `(view, request) -> Decision`, apart from the operator's policies, which it may ask. It
reads the view and changes nothing. The event thread appends the records, applies them, and sends the response once they
are durable. An error of a whole request is raised as `ApiError`; an error of one item is a code inside the response.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from barnabas.config.config import Config
from barnabas.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, Broker, Image
from barnabas.controller.policies.policies import Policies
from barnabas.protocol.errors import ApiError, ErrorCode, message_that_fits
from barnabas.protocol.metadata_records import MetadataRecord

R = TypeVar("R")

#: Counts partitions that a request creates or deletes; raises THROTTLING_QUOTA_EXCEEDED if the client may not.
Charge: TypeAlias = Callable[[int], None]

NO_POLICIES: Final = Policies()

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")

MAX_RECORDS_PER_USER_OP: Final = 10_000  # QuorumController.MAX_RECORDS_PER_USER_OP


def no_charge(_partitions: int) -> None:
    """Count nothing: the client has no quota."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records to append as one atomic batch (possibly none), and the response to send after their commit."""

    records: Sequence[MetadataRecord]
    response: R


@dataclass(frozen=True, slots=True)
class View:
    """The state that a decision may read.

    `image` includes records that are appended but not yet committed. No response about them leaves the process before
    the commit.
    """

    image: Image
    config: Config  # of the controller process
    rng: random.Random = field(default_factory=random.Random)
    policies: Policies = NO_POLICIES

    @property
    def next_offset(self) -> int:
        """The offset of the decision's first record."""
        return self.image.offset + 1

    def topic_setting(self, topic: str, key: str) -> str | None:
        """Return the dynamic value of a topic key as text: the topic's own, else the default of all brokers, else None.

        With None, the static config applies.
        """
        value = self.image.resource_configs(TOPIC_RESOURCE, topic).get(key)
        if value is None:
            value = self.image.resource_configs(BROKER_RESOURCE, "").get(key)
        return value

    def min_insync_replicas(self, topic: str) -> int:
        """Return `min.insync.replicas` of a topic."""
        value = self.topic_setting(topic, MIN_INSYNC_REPLICAS)
        if value is not None and _NUMBER.fullmatch(value.strip()):  # Why: a log is input
            return int(value)
        return int(self.config.topic_defaults[MIN_INSYNC_REPLICAS])

    def unclean_election_enabled(self, topic: str) -> bool:
        """Return whether the topic's partitions may lose data in order to get a leader."""
        value = self.topic_setting(topic, "unclean.leader.election.enable")
        if value is None:
            return bool(self.config.unclean_leader_election_enable)
        return value.strip().lower() == "true"


def check_broker_epoch(image: Image, broker_id: int, broker_epoch: int) -> Broker:
    """Return the registration that a broker's request belongs to; raises STALE_BROKER_EPOCH."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
        )
    return broker


#: Returns whether a client has a right on the resource of this name.
Permits: TypeAlias = "Callable[[str], bool]"


def everything(_name: str) -> bool:
    """Return true: the `Permits` without an authorizer."""
    return True


class Failure(NamedTuple):
    """An error of one item of a request."""

    code: ErrorCode
    text: str | None = None

    @property
    def message(self) -> str | None:
        """The text, cut to the length that a response can carry."""
        return None if self.text is None else message_that_fits(self.text)

    @classmethod
    def of(cls, error: ApiError) -> Failure:
        """Return the failure for an exception; without a message it has the code's own text."""
        return cls(error.code, str(error) or error.code.message)


def check_item_count(count: int, count_max: int = MAX_RECORDS_PER_USER_OP) -> None:
    """Refuse a request with too many items; raises POLICY_VIOLATION.

    Apache Kafka counts only the resulting records. But the event thread has to look at each item first, and all other
    events wait.
    """
    if count > count_max:
        raise _too_large()


def _too_large() -> ApiError:
    return ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def check_batch_size(records: Sequence[object]) -> None:
    """Refuse a request with too many records, as Kafka's bounded lists do; called after each item."""
    if len(records) > MAX_RECORDS_PER_USER_OP:
        raise _too_large()


def first_duplicates(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (the names that occur once, the names that occur more than once), in order of first appearance."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [n for n, count in counts.items() if count == 1], [n for n, count in counts.items() if count > 1]
