"""The resources of the comparison: what a broker holds before the questions, and what they need to know of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.common.ids import uuid_to_string
from barnabas.security.values import CLUSTER_NAME
from tests.compare.authorization.users import ENDS, OPEN, PUBLIC, SHUT, TOKEN

UNKNOWN_ID = bytes(range(16))
SHARE_KEY = f"shut-s:{uuid_to_string(UNKNOWN_ID)}:0"  # of the coordinator of a share partition
BROKER, CLIENT_METRICS, LOGGER, NEW_ACL = "0", "some-metrics", "root", "some-acl"


@dataclass(slots=True)
class World:
    """Ids that the broker gave, by names."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)
    token_ids: dict[str, str] = field(default_factory=dict)  # by the token's name
    hmacs: dict[str, bytes] = field(default_factory=dict)  # by the token's name
    known: dict[str | bytes, str] = field(default_factory=dict)  # name or id -> how it is shown

    def __post_init__(self) -> None:
        """Know all names that do not depend on the broker."""
        ends = {end for some in ENDS.values() for end in some} - {TOKEN}
        names = [beginning + end for beginning in (OPEN, SHUT) for end in ends]
        others = (PUBLIC, BROKER, CLIENT_METRICS, LOGGER, NEW_ACL, CLUSTER_NAME, SHARE_KEY)
        for name in (*names, *(f"User:{name}" for name in names), *others):
            self.known[name] = name

    def add_topic(self, name: str, id_: bytes) -> None:
        """Remember a topic that was created."""
        self.topic_ids[name] = id_
        self.known[id_] = f"id of {name}"

    def add_token(self, name: str, id_: str, hmac: bytes) -> None:
        """Remember a delegation token that was created."""
        self.token_ids[name] = id_
        self.hmacs[name] = hmac
        self.known[id_] = name

    def id_of(self, topic: str) -> bytes:
        """Return a topic's id, or one that no topic has."""
        return self.topic_ids.get(topic, UNKNOWN_ID)
