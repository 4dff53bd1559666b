"""What a hostile client may send: frames made from the message tables, reproducible from a seed.

Kinds of frames
    whole      a message of random values, as its table says
    mutated    the same with bytes changed, removed, added, repeated, or a length made huge
    random     a true header, then random bytes
    unknown    a version or an API key that nobody has
    broken     a frame whose own size is wrong: negative, zero, larger than what follows, huge

Names
    A request that may delete or change what it names, by Kafka's own rules, never spells a protected name: `PERMITTED`
    lists these. All other requests spell protected names, ids and epochs as often as foreign ones. So whatever happens
    to protected data is our fault.

What is not here: TLS and SASL, which are not built yet; so there are no credentials that could get lost.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.errors import EncodeError
from barnabas.protocol.fields import Field
from barnabas.protocol.headers import RequestHeader, encode_request, encode_request_header
from barnabas.protocol.messages import request_class
from barnabas.protocol.metadata_records.topics import RemoveTopicRecord
from barnabas.protocol.push_tags import Receiver, set_offset, set_receiver, set_records
from barnabas.protocol.schema import Message
from tests.support.messages import Values

# APIs with which any client may, by Kafka's rules without an authorizer, delete or change what it names.
PERMITTED: Final = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_GROUPS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        # Whoever reaches the controller's listener is trusted as a node: it may tell of itself what it likes.
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.CONTROLLED_SHUTDOWN,
    }
)

PUSHES: Final = frozenset({ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA})

FOREIGN_NAMES: Final = ("", "fuzz", "fuzz-1", "fuzz.2", ".", "..", "a" * 249, "a" * 32_767, "\x00", "ünï", "fuzz/../x")
FOREIGN_IDS: Final = (77, 78, -1, -2, 2**31 - 1, -(2**31))
TEXT_PIECES: Final = (
    "",
    "fuzz",
    "(a+)+b",
    "((a{1000}){1000}){1000}",
    "[",
    "range",
    "uniform",
    "consumer",
    "1",
    "-1",
    "x" * 5000,
)
HUGE_LENGTHS: Final = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe")
CONFIG_KEYS: Final = ("cleanup.policy", "retention.ms", "segment.bytes", "min.insync.replicas", "no.such.key", "")
NAME_FIELDS: Final = ("topic", "name", "group_id", "transactional_id", "resource_name", "key", "host", "member_id")
ID_FIELDS: Final = ("broker_id", "node_id", "leader", "replica", "controller_id", "voter_id", "isr")
EPOCHS: Final = (-2, -1, 0, 1, 2, 5, 2**31 - 1, -(2**31))


class Protected(NamedTuple):
    """What must survive: names and ids that requests of all kinds try to hurt."""

    topics: tuple[str, ...]
    topic_ids: tuple[bytes, ...]
    groups: tuple[str, ...]
    broker_ids: tuple[int, ...]
    cluster_id: str


class HostileValues(Values):
    """Values that hurt: names of protected things, epochs of every size, empty and huge texts."""

    def __init__(self, chance: random.Random, protected: Protected) -> None:
        super().__init__(0)
        self.random = chance
        self._protected = protected
        self.may_spell = False  # whether protected names may be spelt in the request that is being made

    def plain(self, kind: str, name: str) -> Any:
        """A value for a field of this kind and name."""
        choose = self.random.choice
        if kind == "string":
            return self._text(name)
        if kind == "uuid":
            return choose(
                (bytes(16), self.random.randbytes(16), *(self._protected.topic_ids if self.may_spell else ()))
            )
        if kind in ("int32", "int64", "int16"):
            return self._number(kind, name)
        if kind == "bytes":
            return choose((b"", self.random.randbytes(40), self.random.randbytes(2000)))
        return super().plain(kind, name)

    def field(self, field: Field, version: int, flexible: bool, tags: bool) -> Any:
        """A value of a field; record batches are damaged ones."""
        if field.kind == "records":
            return None if self.random.random() < 0.2 else self.random.randbytes(self.random.choice((0, 61, 200)))
        return super().field(field, version, flexible, tags)

    def _text(self, name: str) -> str:
        choose = self.random.choice
        protected = (*self._protected.topics, *self._protected.groups, "__consumer_offsets", self._protected.cluster_id)
        if "cluster_id" in name:
            return choose((self._protected.cluster_id, "fuzz", ""))
        if any(part in name for part in NAME_FIELDS):
            known = protected if self.may_spell else ()
            return choose((*FOREIGN_NAMES, *CONFIG_KEYS, *known, *known))
        return choose((*TEXT_PIECES, *(protected if self.may_spell else ())))

    def _number(self, kind: str, name: str) -> int:
        choose = self.random.choice
        if any(part in name for part in ID_FIELDS):
            return (
                choose((*FOREIGN_IDS, *(self._protected.broker_ids if self.may_spell else ())))
                if kind == "int32"
                else 77
            )
        if "epoch" in name:
            return choose([epoch for epoch in EPOCHS if -(2**15) <= epoch < 2**15] if kind == "int16" else EPOCHS)
        if "partition" in name and "count" not in name:
            return choose((0, 1, 2, -1, 1_000_000)) if kind == "int32" else 0
        if name in ("num_partitions", "count", "replication_factor"):
            return choose((-1, 0, 1, 2, 2**15 - 1 if kind == "int16" else 2**31 - 1))
        if "timeout" in name or "wait" in name:
            return choose((-1, 0, 1, 50, 2**31 - 1))
        return self.integer(kind, name)


class Frame(NamedTuple):
    """What goes over the wire, its size in front; `what` names it for people."""

    data: bytes
    what: str


class Frames:
    """An endless supply of frames; the same seed gives the same ones."""

    def __init__(self, seed: int, protected: Protected) -> None:
        self._random = random.Random(seed)
        self._protected = protected
        self._values = HostileValues(self._random, protected)
        self._keys: Sequence[ApiKey] = tuple(ROWS)
        self._correlation_id = 0

    def next(self) -> Frame:
        """The next frame."""
        self._correlation_id = (self._correlation_id + 1) % 2**31
        kind = self._random.choices(
            (self._whole, self._mutated, self._noise, self._unknown, self._broken), (50, 25, 8, 8, 4)
        )
        return kind[0]()

    def _message(self) -> tuple[ApiKey, int, bytes]:
        """An API, a version, and a request of it with its header, without the size."""
        while True:
            key = self._random.choice(self._keys)
            cls = request_class(key)
            version = self._random.randint(cls.MIN_VERSION, cls.MAX_VERSION)
            is_flexible = version >= cls.FLEXIBLE_FROM
            self._values.may_spell = key not in PERMITTED
            message = self._values.message(cls, version, flexible=is_flexible)
            if key == ApiKey.CREATE_TOPICS:
                self._keep_small(message)
            if is_flexible and key in PUSHES:
                self._pretend(message)
            header = RequestHeader(
                key, version, self._correlation_id, self._random.choice((None, "", "fuzz", "x" * 300))
            )
            try:
                return key, version, encode_request(header, message)[4:]
            except EncodeError:
                continue  # a value that this version cannot carry, or a name that is too long for its field

    def _pretend(self, message: Message) -> None:
        """Make a push look like the controller's in all that a client can know or guess."""
        protected = self._protected
        receiver = Receiver(protected.cluster_id, self._random.choice(protected.broker_ids), self._random.randbytes(16))
        set_receiver(message, receiver)
        set_offset(message, self._random.choice((0, 5, 1_000, 2**63 - 1)))
        if self._random.random() < 0.5:
            set_records(message, [RemoveTopicRecord(topic_id=topic_id) for topic_id in protected.topic_ids])

    @staticmethod
    def _keep_small(message: Message) -> None:
        """Topics that can be made have one partition: what the machine can bear is not the question here."""
        for topic in message.topics:  # type: ignore[attr-defined]
            if 1 < topic.num_partitions < 2**31 - 1:
                topic.num_partitions = 1

    def _whole(self) -> Frame:
        key, version, body = self._message()
        return _framed(body, f"{key.name} v{version}")

    def _mutated(self) -> Frame:
        while True:
            key, version, body = self._message()
            if key not in PERMITTED:  # Why: a changed byte may spell anything
                break
        start = min(len(body), 10)  # the key, the version and the correlation id stay
        damaged = bytearray(body)
        for _ in range(self._random.randint(1, 4)):
            at = self._random.randrange(start, len(damaged) + 1) if len(damaged) > start else len(damaged)
            deed = self._random.randrange(5)
            if deed == 0 and at < len(damaged):
                damaged[at] ^= 1 << self._random.randrange(8)
            elif deed == 1:
                del damaged[at:]
            elif deed == 2:
                damaged[at:at] = self._random.randbytes(self._random.choice((1, 4, 50)))
            elif deed == 3:
                damaged[at : at + 4] = self._random.choice(HUGE_LENGTHS)
            else:
                damaged += damaged[at:]
        return _framed(bytes(damaged), f"{key.name} v{version}, mutated")

    def _noise(self) -> Frame:
        key = self._random.choice([key for key in self._keys if key not in PERMITTED])
        cls = request_class(key)
        version = self._random.randint(cls.MIN_VERSION, cls.MAX_VERSION)
        header = encode_request_header(RequestHeader(key, version, self._correlation_id, "fuzz"))
        return _framed(
            header + self._random.randbytes(self._random.choice((0, 3, 60, 3000))), f"{key.name} v{version}, random"
        )

    def _unknown(self) -> Frame:
        key = self._random.choice((*self._keys, 93, 1000, -1, 2**15 - 1, -(2**15)))
        version = self._random.choice((-1, 99, 2**15 - 1, -(2**15)))
        head = struct.pack(">hhih", key, version, self._correlation_id, -1)
        return _framed(head + self._random.randbytes(self._random.choice((0, 1, 30))), f"key {key} v{version}")

    def _broken(self) -> Frame:
        size = self._random.choice((0, -1, 1, 3, 2**31 - 1, -(2**31), 104_857_601, 50_000))
        return Frame(struct.pack(">i", size) + self._random.randbytes(12), f"a frame of size {size}")


def _framed(body: bytes, what: str) -> Frame:
    return Frame(struct.pack(">i", len(body)) + body, what)
