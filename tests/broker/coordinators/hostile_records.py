"""Records that another writer of a coordinator's topic could have written. Shared by the tests.

They are valid nonsense, mutated bytes, unknown types, and batches with garbage inside; hypothesis draws the recipes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from barnabas.broker.coordinators.classic.consumer_protocol import write_assignment
from barnabas.protocol.coordinator_records import (
    consumer_groups,
    offsets,
    share_groups,
    share_state,
    streams_groups,
    transactions,
)
from barnabas.protocol.coordinator_records.record import CoordinatorKey, CoordinatorValue, encode_versioned
from barnabas.protocol.records.batch import (
    BatchHeader,
    SimpleRecord,
    assemble_batch,
    build_batch,
    read_header,
)
from barnabas.protocol.records.compression import CompressionType
from tests.support.messages import Values, versions

Pair = tuple[type[CoordinatorKey], type[CoordinatorValue]]

TEXTS = ("g", "g", "g", "m", "m", "n", "i", "", "consumer", "range", "t", "u", "(a*)*", "[", "x" * 300)
NUMBERS = (0, 1, 2, 3, -1, -2, 5, 100)
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
BLOBS = (SUBSCRIPTION, write_assignment({"t": frozenset({0, 1})}, 3), b"", b"\x00\x03\x7f\xff\xff\xff", b"\xff" * 9)


def pairs(*modules: Any) -> list[Pair]:
    """The key and value classes of these modules, by record type."""
    found: list[Pair] = []
    for module in modules:
        classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
        keys = {c.RECORD_TYPE: c for c in classes if issubclass(c, CoordinatorKey)}
        values = {c.RECORD_TYPE: c for c in classes if issubclass(c, CoordinatorValue)}
        found += [(keys[kind], values[kind]) for kind in keys]
    return found


OF_GROUPS = [*pairs(offsets, consumer_groups, share_groups, streams_groups)]
OF_TRANSACTIONS = pairs(transactions)
OF_SHARE_STATE = pairs(share_state)


class FewValues(Values):
    """Values from a small stock, so that records speak of the same groups and members."""

    def text(self) -> str:
        return self.random.choice(TEXTS)

    def integer(self, kind: str, name: str) -> int:
        return self.random.choice(NUMBERS) if self.random.random() < 0.8 else super().integer(kind, name)

    def plain(self, kind: str, name: str) -> Any:
        if kind in ("bytes", "records"):
            return self.random.choice(BLOBS)
        if kind == "uuid":
            return self.random.choice((bytes(16), b"t" * 16, b"u" * 16))
        return super().plain(kind, name)


@dataclass(frozen=True)
class Recipe:
    """One batch; `seed` decides what its records say."""

    pair: int
    seed: int
    count: int
    mutation: str
    frame: str

    def records(self, stock: list[Pair]) -> list[SimpleRecord]:
        found = []
        for index in range(self.count):
            key_class, value_class = stock[(self.pair + index) % len(stock)]
            values = FewValues(self.seed + index)
            key = encode_versioned(values.message(key_class, 0, flexible=False))
            value: bytes | None = None
            if values.random.random() < 0.85:
                version = values.random.choice(versions(value_class))
                flexible = version >= value_class.FLEXIBLE_FROM
                value = encode_versioned(values.message(value_class, version, flexible=flexible), version)
            found.append(self._mutated(values.random, key, value))
        return found

    def _mutated(self, rng: random.Random, key: bytes, value: bytes | None) -> SimpleRecord:
        if self.mutation == "value" and value:
            value = mutated(rng, value)
        elif self.mutation == "key":
            key = mutated(rng, key)
        elif self.mutation == "type":
            key = rng.choice((99, 24, 9, 32767, 65535)).to_bytes(2, "big") + key[2:]
        elif self.mutation == "short key":
            key = key[: rng.randrange(3)]
        elif self.mutation == "noise":
            key, value = rng.randbytes(rng.randrange(40)), rng.randbytes(rng.randrange(80))
        return SimpleRecord(1000, None if self.mutation == "no key" else key, value)

    def batch(self, stock: list[Pair]) -> bytes:
        rng = random.Random(self.seed)
        records = self.records(stock)
        options: dict[str, Any] = {}
        if self.frame == "compressed":
            options = {"compression": rng.choice([c for c in CompressionType if c is not CompressionType.NONE])}
        elif self.frame == "transactional":
            options = {"producer_id": rng.choice((5, 0)), "producer_epoch": 0, "is_transactional": True}
        elif self.frame == "control":
            key = rng.choice((b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2", b"\0\0\0\x63", b"\xff\xff\0\0", b"\0"))
            records = [SimpleRecord(1, key, rng.choice((b"\0\0\0\0\0\0", b"", None)))]
            options = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True, "is_control": True}
        batch = build_batch(records, **options)
        if self.frame == "garbage":
            header: BatchHeader = read_header(batch)
            attributes = rng.choice((0, 0, 1, 2, 3, 4))
            return assemble_batch(header.replace(attributes=attributes), rng.randbytes(rng.randrange(200)))
        return batch


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Flip a byte, cut the end off, or repeat a piece."""
    at = rng.randrange(len(data))
    how = rng.randrange(3)
    if how == 0:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return data[:at] if how == 1 else data[:at] + data[at // 2 :]


MUTATIONS = ("none",) * 12 + ("value", "key", "type", "short key", "noise", "no key")
FRAMES = ("plain",) * 8 + ("compressed", "transactional", "transactional", "control", "garbage")

recipes = st.lists(
    st.builds(
        Recipe, st.integers(0, 60), st.integers(0, 2**16), st.integers(1, 3), st.sampled_from(MUTATIONS),
        st.sampled_from(FRAMES),
    ),
    min_size=1, max_size=12,
)  # fmt: skip
