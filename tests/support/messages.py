"""All message classes, values for them, and the reference facts that they are checked against.

The facts are in `shared/reference` beside the checkout. Without it, every row is still checked, against the digest of
each message's rows in tests/data/message_facts.txt. `python -m tests.support.messages` rewrites that file from the
reference.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from barnabas.protocol.api_keys import ROWS
from barnabas.protocol.coordinator_records.record import CoordinatorKey, CoordinatorValue
from barnabas.protocol.fields import FRESH, INFINITY, Field, parse_versions
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.metadata_records.record import MODULES, MetadataRecord
from barnabas.protocol.schema import Message, Struct

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT.parent / "shared" / "reference"
DIGESTS = ROOT / "tests" / "data" / "message_facts.txt"

DATA_MODULES = ("consumer_protocol", "control_records", "principal", "quorum_state")
COORDINATOR_MODULES = (
    "offsets",
    "consumer_groups",
    "share_groups",
    "streams_groups",
    "transactions",
    "share_state",
)
# Header classes are hand-written in `headers`; 4.0 called ListConfigResources v0 ListClientMetricsResources.
NOT_CLASSES = {
    "RequestHeader",
    "ResponseHeader",
    "ListClientMetricsResourcesRequest",
    "ListClientMetricsResourcesResponse",
}
# Different structures with the same name in Kafka; ours are prefixed with their message's name.
SHARED_NAMES = {
    "DirectoryData",
    "EntryData",
    "PartitionData",
    "PartitionSnapshot",
    "TaskIds",
    "TopicData",
    "TopicPartition",
    "TopicPartitions",
    "TopicSnapshot",
    "Voter",
}
BASES = {"Message", "Request", "Response", "MetadataRecord", "CoordinatorKey", "CoordinatorValue"}


def api_classes() -> list[type[Message]]:
    """Requests and responses, in order of keys."""
    return [found for key in ROWS for found in (request_class(key), response_class(key))]


def other_classes() -> list[type[Message]]:
    """Records of the logs, and the structures that travel inside other messages."""
    modules = [f"data.{name}" for name in DATA_MODULES]
    modules += [f"metadata_records.{name}" for name in MODULES]
    modules += [f"coordinator_records.{name}" for name in COORDINATOR_MODULES]
    found: list[type[Message]] = []
    for name in modules:
        found += [
            value
            for value in vars(import_module(f"barnabas.protocol.{name}")).values()
            if isinstance(value, type) and issubclass(value, Message) and value.__name__ not in BASES
        ]
    return found


def all_classes() -> list[type[Message]]:
    """Every message class."""
    return api_classes() + other_classes()


def versions(message_class: type[Message]) -> range:
    """The versions of a class."""
    return range(message_class.MIN_VERSION, message_class.MAX_VERSION + 1)


def structs(struct_class: type[Struct]) -> Iterator[type[Struct]]:
    """A structure and all structures in it."""
    yield struct_class
    for field in struct_class.FIELDS:
        if isinstance(field.element, type):
            yield from structs(field.element)


# Values

LIMITS = {"int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**63}
TEXT = "abcXYZ019._-üλ漢🙂"


class Values:
    """Random values for messages. Every independent implementation accepts the `tame` ones."""

    def __init__(self, seed: int, *, tame: bool = False) -> None:
        self.random = random.Random(seed)
        self.tame = tame

    def message(self, struct_class: type[Struct], version: int, *, flexible: bool, tags: bool = True) -> Any:
        """A value with only the fields of the version; with `tags`, unknown tagged fields too."""
        values = {
            field.name: self.field(field, version, flexible, tags)
            for field in struct_class.FIELDS
            if field.is_present(version)
        }
        if flexible and tags and self.random.random() < 0.3:
            known = [field.tag for field in struct_class.FIELDS if field.tag is not None]
            first = max(known, default=-1) + 1
            values["unknown_tagged_fields"] = tuple(
                (first + 97 * step, self.random.randbytes(self.random.choice((0, 3, 200))))
                for step in range(self.random.randint(1, 3))
            )
        return struct_class(**values)

    def field(self, field: Field, version: int, flexible: bool, tags: bool) -> Any:
        if field.is_nullable(version) and self.random.random() < 0.25:
            return None
        if field.tag is not None and self.random.random() < 0.3:
            return field.default_value()
        if field.kind == "array":
            count = self.random.choice((0, 1, 1, 2, 3))
            return [self.element(field.element, field.name, version, flexible, tags) for _ in range(count)]
        if field.kind == "struct":
            return self.message(field.element, version, flexible=flexible, tags=tags)
        return self.plain(field.kind, field.name)

    def element(self, element: Any, name: str, version: int, flexible: bool, tags: bool) -> Any:
        if isinstance(element, str):
            return self.plain(element, name)
        return self.message(element, version, flexible=flexible, tags=tags)

    def plain(self, kind: str, name: str) -> Any:
        if kind == "bool":
            return self.random.random() < 0.5
        if kind in LIMITS:
            return self.integer(kind, name)
        if kind == "uint16":
            return self.random.choice((0, 1, 9092, 65535))
        if kind == "float64":
            return self.random.choice((0.0, -1.5, 1e300, 0.1))
        if kind == "uuid":
            return self.random.choice((bytes(16), self.random.randbytes(16)))
        if kind == "string":
            return self.text()
        return self.random.randbytes(self.random.choice((0, 1, 5, 130)))

    def integer(self, kind: str, name: str) -> int:
        if self.tame:
            return self.random.choice((0, 3, 7)) if "error_code" in name else self.random.randint(0, 100)
        limit = LIMITS[kind]
        return self.random.choice((0, 1, -1, limit - 1, -limit, self.random.randrange(-limit, limit)))

    def text(self) -> str:
        size = self.random.choice((0, 1, 6, 20)) if self.tame else self.random.choice((0, 1, 6, 20, 126, 127, 300))
        return "".join(self.random.choice(TEXT) for _ in range(size))


def samples(
    message_class: type[Message], version: int, count: int, *, tame: bool = False, tags: bool = True
) -> list[Any]:
    """Deterministic messages of a version; the first has only defaults."""
    flexible = version >= message_class.FLEXIBLE_FROM
    values = Values(int.from_bytes(message_class.__name__.encode(), "big") + version, tame=tame)
    made = [values.message(message_class, version, flexible=flexible, tags=tags) for _ in range(count)]
    return [message_class(), *made]


# Facts: one canonical text per message, made from our rows or from the reference.


def our_facts(message_class: type[Message]) -> str:
    """Our rows of a message."""
    head = [
        message_class.__name__,
        _our_key(message_class),
        f"versions {message_class.MIN_VERSION}-{message_class.MAX_VERSION}",
        _flexible(message_class.FLEXIBLE_FROM, message_class.MAX_VERSION),
    ]
    return "\n".join([*head, *_our_rows(message_class, message_class, "")])


def _our_key(message_class: type[Message]) -> str:
    if issubclass(message_class, (MetadataRecord, CoordinatorKey, CoordinatorValue)):
        return f"key {message_class.RECORD_TYPE}"
    return f"key {message_class.API_KEY}"


def _flexible(first: int, last: int) -> str:
    return f"flexible {first}" if first <= last else "flexible never"


def _our_rows(struct_class: type[Struct], message_class: type[Message], path: str) -> Iterator[str]:
    top = message_class.MAX_VERSION
    for field in struct_class.FIELDS:
        kind = field.kind
        if kind in ("array", "struct"):
            element = field.element if isinstance(field.element, str) else _kafka_name(field.element, message_class)
            kind = f"[]{element}" if kind == "array" else element
        default = "fresh" if field.default is FRESH else repr(field.default)
        yield _row(
            path, field.name.replace("_", ""), kind, field.versions, field.nullable, field.tag, field.tagged,
            default, field.ignorable, top,
        )  # fmt: skip
        if isinstance(field.element, type):
            yield from _our_rows(field.element, message_class, f"{path}{field.name.replace('_', '')}.")


def _kafka_name(struct_class: type[Struct], message_class: type[Message]) -> str:
    """The name without the prefix that distinguishes structures of the same name."""
    owner = message_class.__name__
    for suffix in ("Value", "Key", "Record"):
        owner = owner.removesuffix(suffix)
    name = struct_class.__name__
    for prefix in ("Request", "Response", owner):
        rest = name.removeprefix(prefix)
        if rest != name and rest in SHARED_NAMES:
            return rest
    return name


def _row(
    path: str, name: str, kind: str, present: str, nullable: str, tag: int | None, tagged: str, default: str,
    ignorable: bool, top: int,
) -> str:  # fmt: skip
    return (
        f"{path}{name.lower()}: {kind} {_clip(present, top)} nullable {_clip(nullable, top)}"
        f" tag {tag} {_clip(tagged, top)} default {default} ignorable {ignorable}"
    )


def _clip(text: str, top: int) -> str:
    low, high = parse_versions("" if text == "none" else text)
    return f"{low}-{min(high, top)}" if low <= min(high, top) else "none"


def reference_messages() -> dict[str, dict[str, Any]]:
    """The reference's messages by name; empty without the reference."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("messages.json", "messages-removed-in-4.json", "records.json"):
        path = REFERENCE / name
        if path.exists():
            found |= {message["name"]: message for message in json.loads(path.read_text())}
    return {name: message for name, message in found.items() if name not in NOT_CLASSES}


def reference_facts(message: dict[str, Any]) -> str:
    """The reference's rows of a message."""
    low, high = parse_versions(message["validVersions"])
    first = INFINITY if message["flexibleVersions"] == "none" else parse_versions(message["flexibleVersions"])[0]
    head = [
        message["name"],
        f"key {message.get('apiKey', -1)}",
        f"versions {low}-{high}",
        _flexible(first, high),
    ]
    common = {each["name"]: each["fields"] for each in message.get("commonStructs", ())}
    return "\n".join([*head, *_reference_rows(message["fields"], common, high, "")])


def _reference_rows(fields: list[Any], common: dict[str, Any], top: int, path: str) -> Iterator[str]:
    for field in fields:
        kind = field["type"]
        tagged = field.get("taggedVersions", "")
        yield _row(
            path, field["name"], kind, field.get("versions", tagged), field.get("nullableVersions", ""),
            field.get("tag"), tagged, _reference_default(field), field.get("ignorable", False), top,
        )  # fmt: skip
        inner = field.get("fields") or common.get(kind.removeprefix("[]"))
        if inner:
            yield from _reference_rows(inner, common, top, f"{path}{field['name'].lower()}.")


def _reference_default(field: dict[str, Any]) -> str:
    """The default as Kafka's generator reads it: a JSON null is no default; only the text "null" means null."""
    kind, given = field["type"], field.get("default")
    text = "" if given is None else str(given)
    if kind == "records" or text == "null":
        return "None"
    if kind.startswith("[]") or kind[0].isupper():
        return "fresh"
    if kind == "bool":
        return repr(text.lower() == "true")
    if kind == "string":
        return repr(text)
    if kind in ("bytes", "uuid"):
        return repr(bytes(16 if kind == "uuid" else 0))
    return repr(float(text or 0)) if kind == "float64" else repr(int(text or "0", 0))


def table_lines(name: str) -> list[str]:
    """The rows of a reference table without its heading; empty without the reference."""
    path = REFERENCE / name
    return path.read_text().splitlines()[1:] if path.exists() else []


def digest(text: str) -> str:
    """A short digest of facts."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def committed_digests() -> dict[str, str]:
    """The digest of each fact, by the name of its message or table."""
    return dict(line.split() for line in DIGESTS.read_text().splitlines())


def current_digests() -> dict[str, str]:
    """The digests that `committed_digests` must contain, from the reference; empty without it."""
    found = {name: digest(reference_facts(message)) for name, message in reference_messages().items()}
    for table in ("apis.tsv", "errors.tsv"):
        lines = table_lines(table)
        if lines:
            found[table] = digest("\n".join(lines))
    return dict(sorted(found.items()))


def main() -> None:
    """Write the digests of the reference."""
    current = current_digests()
    assert current, f"no reference at {REFERENCE}"
    DIGESTS.write_text("".join(f"{name} {value}\n" for name, value in current.items()))


if __name__ == "__main__":
    main()
