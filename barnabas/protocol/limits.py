"""Bounds on the size of messages that clients send.

A decoded message takes many times its bytes on the wire, 50 times for an array of empty elements, and decoding keeps
a thread busy. Two bounds apply. Most requests are refused by their size before they are decoded
(`barnabas.request.max.bytes`). While a request is decoded, the elements of all its arrays are counted.

A million elements are enough for the offsets of a group that reads 1,000,000 partitions, or for ten times the topics
of a large cluster. As objects they take up to 200 MB and some tenths of a second.

Apache Kafka has one bound for all kinds, socket.request.max.bytes.
"""

from __future__ import annotations

from typing import Any, Final

ELEMENTS_MAX: Final = 1_000_000
UNBOUNDED: Final = 2**31 - 1

# Produce carries records. JoinGroup and SyncGroup carry the members' own bytes; the leader sends those of all members.
# An Envelope carries a whole request, which has a bound of its own.
_OF_MANY_BYTES: Final = frozenset({0, 11, 14, 58})
# LeaderAndIsr, StopReplica, UpdateMetadata: a push may name every partition of the cluster.
_OF_NODES: Final = frozenset({4, 5, 6})
#: No bound on a request is lower than this.
SMALL_BYTES: Final = 65_536

#: Tagged fields that one structure may have; Kafka's have a handful.
TAGS_MAX: Final = 1_000


def request_bytes_max(api_key: int, ordinary_max: int, is_for_clients: bool) -> int:
    """Return how many bytes a request may have. UNBOUNDED: socket.request.max.bytes is the only bound.

    `ordinary_max` is `barnabas.request.max.bytes`. `is_for_clients`: the listener refuses requests that are for nodes.
    """
    if api_key in _OF_MANY_BYTES:
        return UNBOUNDED
    if api_key in _OF_NODES:
        return SMALL_BYTES if is_for_clients else UNBOUNDED  # it is decoded before it is refused
    return ordinary_max


def elements_max(cls: Any) -> int:
    """Return how many elements the arrays of a message of this class may have together."""
    return ELEMENTS_MAX if cls.IS_REQUEST and cls.API_KEY not in _OF_NODES else UNBOUNDED
