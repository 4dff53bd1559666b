"""Frames of a hostile client, built from the message tables and reproducible from a seed.

Kinds of frames
    whole      a message of random values that fits its table
    mutated    the same with bytes changed, removed, added, repeated, or with a huge length
    random     a valid header, then random bytes
    unknown    an unknown version or API key
    broken     a frame with a wrong size: negative, zero, larger than the data, huge

Names
    By Kafka's rules, any client may delete or change the resources that some requests name. These requests
    (`PERMITTED`) never contain a protected name. All others contain protected names, ids and epochs as often as foreign
    ones. Any damage to protected data is therefore our bug.

secured.py sends the same frames to listeners with TLS and SASL.
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
from barnabas.protocol.push_tags import Receiver
from barnabas.protocol.schema import Message
from tests.support.forged_pushes import add_forged_tags
from tests.support.messages import Values

# APIs with which any client may, by Kafka's rules without an authorizer, delete or change the resources it names.
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
        # A client that reaches the controller's listener is trusted as a node: it may report any state of its own.
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
    """The names and ids of the data that must survive."""

    topics: tuple[str, ...]
    topic_ids: tuple[bytes, ...]
    groups: tuple[str, ...]
    broker_ids: tuple[int, ...]
    cluster_id: str


class HostileValues(Values):
    """Hostile values: names of protected resources, epochs of every size, empty and huge texts."""

    def __init__(self, chance: random.Random, protected: Protected) -> None:
        super().__init__(0)
        self.random = chance
        self._protected = protected
        self.may_name = False  # whether the present request may contain protected names

    def plain(self, kind: str, name: str) -> Any:
        """A value for a field of this kind and name."""
        choose = self.random.choice
        if kind == "string":
            return self._text(name)
        if kind == "uuid":
            return choose((bytes(16), self.random.randbytes(16), *(self._protected.topic_ids if self.may_name else ())))
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
            known = protected if self.may_name else ()
            return choose((*FOREIGN_NAMES, *CONFIG_KEYS, *known, *known))
        return choose((*TEXT_PIECES, *(protected if self.may_name else ())))

    def _number(self, kind: str, name: str) -> int:
        choose = self.random.choice
        if any(part in name for part in ID_FIELDS):
            return (
                choose((*FOREIGN_IDS, *(self._protected.broker_ids if self.may_name else ())))
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
    """A frame with its size in front; `what` describes it for people."""

    data: bytes
    what: str


class Frames:
    """An endless sequence of frames; the same seed gives the same frames."""

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
        """An API, a version, and an encoded request with its header but without its size."""
        while True:
            key = self._random.choice(self._keys)
            cls = request_class(key)
            version = self._random.randint(cls.MIN_VERSION, cls.MAX_VERSION)
            is_flexible = version >= cls.FLEXIBLE_FROM
            self._values.may_name = key not in PERMITTED
            message = self._values.message(cls, version, flexible=is_flexible)
            if key == ApiKey.CREATE_TOPICS:
                self._keep_small(message)
            if is_flexible and key in PUSHES:
                self._forge_tags(message)
            header = RequestHeader(
                key, version, self._correlation_id, self._random.choice((None, "", "fuzz", "x" * 300))
            )
            try:
                return key, version, encode_request(header, message)[4:]
            except EncodeError:
                continue  # a value that this version cannot carry, or a name that is too long for its field

    def _forge_tags(self, message: Message) -> None:
        """Give a push all the tags of the controller's that a client can know or guess."""
        protected = self._protected
        receiver = Receiver(protected.cluster_id, self._random.choice(protected.broker_ids), self._random.randbytes(16))
        offset = self._random.choice((0, 5, 1_000, 2**63 - 1))
        add_forged_tags(message, receiver, offset, protected.topic_ids if self._random.random() < 0.5 else ())

    @staticmethod
    def _keep_small(message: Message) -> None:
        """Give new topics one partition: the machine's limits are not tested here."""
        for topic in message.topics:  # type: ignore[attr-defined]
            if 1 < topic.num_partitions < 2**31 - 1:
                topic.num_partitions = 1

    def _whole(self) -> Frame:
        key, version, body = self._message()
        return _framed(body, f"{key.name} v{version}")

    def _mutated(self) -> Frame:
        while True:
            key, version, body = self._message()
            if key not in PERMITTED:  # Why: a changed byte could produce a protected name
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
