"""Answers: what forwarded requests were answered. One that is sent again is answered again, and not carried out.

A broker numbers its forwarded requests (push_tags.py, tag 10011). A decision that changes something has one more record
in its batch: a NoOpRecord, which Apache Kafka's readers skip, with a tagged field of ours:

    10012   sender: uuid; number: int64; checksum of the request: uint32; API key and version: int16 each; form: int8;
            the body of the response in that version, if the form says so. Big endian.

Rules
1. A sender sends one request at a time, and never goes back to an earlier one. So the last answer of each sender is
   enough, for as long as the sender lives. No clock is involved.
2. Everything follows from the records in their order: all controllers remember the same, and snapshots hold it.
3. SENDERS_MAX senders are remembered, and BYTES_MAX of their answers. Beyond that, the sender that changed nothing for
   the longest time is forgotten; and the oldest answers are dropped, but not their numbers. An answer above
   ANSWER_BYTES_MAX is not kept. A request whose answer is not kept is still not carried out again.

Threads: as an Image. `note` is for the editor that made the copy.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.protocol.metadata_records import NoOpRecord
from barnabas.protocol.push_tags import set_tag, tag_of

TAG_ANSWER: Final = 10012

SENDERS_MAX: Final = 1_000
BYTES_MAX: Final = 4 << 20
ANSWER_BYTES_MAX: Final = 256 << 10  # as it is kept
BODY_BYTES_MAX: Final = 16 << 20  # before it is compressed

_NOT_KEPT: Final = 0
_PLAIN: Final = 1
_DEFLATED: Final = 2

_PLAIN_MAX: Final = 128  # Why: compression gains little below
_LEVEL: Final = 1
_HEAD: Final = struct.Struct(">16sqIhhb")


class Answered(NamedTuple):
    """A forwarded request that has changed something, and its answer as it is kept."""

    sender: bytes
    number: int
    checksum: int
    api_key: int
    version: int
    form: int
    content: bytes

    @classmethod
    def of(cls, sender: bytes, number: int, checksum: int, api: tuple[int, int], body: bytes | None) -> Answered:
        """Return the value that keeps the body of a response, if it is given and small enough."""
        form, content = _packed(body)
        return cls(sender, number, checksum, api[0], api[1], form, content)

    @classmethod
    def of_record(cls, record: NoOpRecord) -> Answered | None:
        """Return what a record of the log holds; None if it is another one."""
        raw = tag_of(record, TAG_ANSWER)
        if raw is None or len(raw) < _HEAD.size:
            return None
        found = cls._make((*_HEAD.unpack_from(raw), raw[_HEAD.size :]))
        return found if _NOT_KEPT <= found.form <= _DEFLATED else None

    def record(self) -> NoOpRecord:
        """Return the record that holds this value."""
        record = NoOpRecord()
        set_tag(record, TAG_ANSWER, _HEAD.pack(*self[:-1]) + self.content)
        return record

    @property
    def body(self) -> bytes | None:
        """The body of the response; None if it was not kept, or is damaged."""
        if self.form == _PLAIN:
            return self.content
        if self.form == _NOT_KEPT:
            return None
        inflater = zlib.decompressobj()
        try:
            body = inflater.decompress(self.content, BODY_BYTES_MAX)
        except zlib.error:
            return None
        return body if inflater.eof else None

    def without_body(self) -> Answered:
        """Return the same, with the answer dropped."""
        return self._replace(form=_NOT_KEPT, content=b"")


class Answers:
    """The last answer of each sender; see the module. It never changes, except for the copy that an editor has made."""

    __slots__ = ("_bytes", "_entries")

    def __init__(self) -> None:
        self._entries: dict[bytes, Answered] = {}  # in the order of their records
        self._bytes = 0

    def __eq__(self, other: object) -> bool:
        """Compare, with the order: it says who is forgotten first."""
        return isinstance(other, Answers) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Answered]:
        """Yield them in the order of their records."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        """Return the number of senders."""
        return len(self._entries)

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the answers that are kept."""
        return self._bytes

    def get(self, sender: bytes) -> Answered | None:
        """Return the last answer of a sender."""
        return self._entries.get(sender)

    def copy(self) -> Answers:
        """Return a copy for an editor."""
        made = Answers()
        made._entries, made._bytes = dict(self._entries), self._bytes
        return made

    def note(self, answered: Answered) -> None:
        """Remember an answer, and forget what is too much (rule 3)."""
        former = self._entries.get(answered.sender)
        if former is not None and former.number > answered.number:
            return  # no controller writes this
        self._forget(answered.sender)
        self._entries[answered.sender] = answered
        self._bytes += len(answered.content)
        while len(self._entries) > SENDERS_MAX:
            self._forget(next(iter(self._entries)))
        if self._bytes > BYTES_MAX:
            self._drop_oldest()

    def _forget(self, sender: bytes) -> None:
        former = self._entries.pop(sender, None)
        if former is not None:
            self._bytes -= len(former.content)

    def _drop_oldest(self) -> None:
        for sender, each in list(self._entries.items())[:-1]:
            self._entries[sender] = each.without_body()
            self._bytes -= len(each.content)
            if self._bytes <= BYTES_MAX:
                return


def _packed(body: bytes | None) -> tuple[int, bytes]:
    if body is None or len(body) > BODY_BYTES_MAX:
        return _NOT_KEPT, b""
    if len(body) <= _PLAIN_MAX:
        return _PLAIN, body
    content = zlib.compress(body, _LEVEL)
    return (_DEFLATED, content) if len(content) <= ANSWER_BYTES_MAX else (_NOT_KEPT, b"")
