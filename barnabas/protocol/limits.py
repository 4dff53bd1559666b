"""How large a message may be that is read: bounds for what a client sends, each a table.

A message in memory takes many times its bytes on the wire, 50 times if it is an array of nothing, and decoding keeps
a thread busy. So requests of most kinds are refused by their size before they are decoded
(`barnabas.request.max.bytes`), and while they are decoded by the elements that all their arrays have together.

A million elements are the offsets of a group that reads 1,000,000 partitions, or ten times the topics of a large
cluster. They take up to 200 MB as objects, and some tenths of a second.

Apache Kafka has one bound for all kinds, socket.request.max.bytes.
"""

from __future__ import annotations

from typing import Any, Final

ELEMENTS_MAX: Final = 1_000_000
UNBOUNDED: Final = 2**31 - 1

# Produce carries records; JoinGroup and SyncGroup the members' own bytes, of which all members' come from the leader;
# an Envelope carries a whole request, whose own kind counts.
_OF_MANY_BYTES: Final = frozenset({0, 11, 14, 58})
# LeaderAndIsr, StopReplica, UpdateMetadata: nodes tell of every partition there is.
_OF_NODES: Final = frozenset({4, 5, 6})
#: No bound on a request is lower than this.
SMALL_BYTES: Final = 65_536

#: Tagged fields that one structure may have; Kafka's have a handful.
TAGS_MAX: Final = 1_000


def request_bytes_max(api_key: int, ordinary_max: int, is_for_clients: bool) -> int:
    """Return how many bytes a request may have; `is_for_clients` says that its listener refuses what is for nodes.

    `ordinary_max` is `barnabas.request.max.bytes`. UNBOUNDED: socket.request.max.bytes is the only bound.
    """
    if api_key in _OF_MANY_BYTES:
        return UNBOUNDED
    if api_key in _OF_NODES:
        return SMALL_BYTES if is_for_clients else UNBOUNDED  # Why: it is decoded before it is refused
    return ordinary_max


def elements_max(cls: Any) -> int:
    """Return how many elements the arrays of a message of this class may have together."""
    return ELEMENTS_MAX if cls.IS_REQUEST and cls.API_KEY not in _OF_NODES else UNBOUNDED
