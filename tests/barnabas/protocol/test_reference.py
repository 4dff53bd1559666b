"""Every row of every message, error and API against the reference facts.

Where `shared/reference` is beside the checkout the rows are compared with it; the comparison with the committed digests
happens always, so that a checkout alone checks the same rows. The rows are those of protocol/messages, of api_keys.py
and errors.py, and of the modules without a test of their own: data/consumer_protocol.py, data/control_records.py,
data/principal.py, data/quorum_state.py, coordinator_records/offsets.py, coordinator_records/consumer_groups.py,
coordinator_records/share_groups.py, coordinator_records/share_state.py, coordinator_records/streams_groups.py and
coordinator_records/transactions.py.
"""

from __future__ import annotations

import pytest

from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fields import FRESH, Field
from barnabas.protocol.schema import Message, Struct
from tests.support import messages as facts

CLASSES = facts.all_classes()
REFERENCE = facts.reference_messages()
DIGESTS = facts.committed_digests()
TABLES = {"apis.tsv", "errors.tsv"}

# Which cluster-internal keys 4.x removed: the table calls their newest version -1.
REMOVED = {4, 5, 6, 7}

PLAIN_TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "int64": "int",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
}


def test_there_is_a_class_for_every_message() -> None:
    assert {found.__name__ for found in CLASSES} == set(DIGESTS) - TABLES
    assert len(CLASSES) == len({found.__name__ for found in CLASSES}) == 273


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_rows(message_class: type[Message]) -> None:
    ours = facts.our_facts(message_class)
    if REFERENCE:
        assert ours.splitlines() == facts.reference_facts(REFERENCE[message_class.__name__]).splitlines()
    assert facts.digest(ours) == DIGESTS[message_class.__name__]


def test_committed_digests_are_those_of_the_reference() -> None:
    assert facts.current_digests() in ({}, DIGESTS)


def test_error_codes() -> None:
    lines = [f"{code.value}\t{code.name}\t{str(code.retriable).lower()}" for code in ErrorCode]
    reference = facts.table_lines("errors.tsv")
    if reference:
        assert lines == [line.rsplit("\t", 1)[0] for line in reference]
    assert len(lines) == 135
    assert facts.digest("\n".join(lines)) == "2b949f443b89f9e526fb8d3d"


def test_api_keys() -> None:
    lines = []
    for key, row in ROWS.items():
        newest = -1 if key in REMOVED else row.max_version
        lines.append(f"{key}\t{row.name}\t{row.min_version}\t{newest}\t{str(row.cluster_action).lower()}")
    reference = facts.table_lines("apis.tsv")
    if reference:
        assert lines == reference
    assert facts.digest("\n".join(lines)) == DIGESTS["apis.tsv"]


@pytest.mark.parametrize("key", ROWS)
def test_api_rows_fit_their_messages(key: int) -> None:
    row = ROWS[key]
    for message_class in (facts.request_class(key), facts.response_class(key)):
        assert key == message_class.API_KEY == ApiKey(key)
        assert row.name == message_class.NAME
        assert (row.min_version, row.max_version) == (message_class.MIN_VERSION, message_class.MAX_VERSION)
        assert row.flexible_from == message_class.FLEXIBLE_FROM


def annotation(field: Field) -> str:
    """The type that a row stands for."""
    if field.kind == "array":
        element = field.element
        found = f"list[{PLAIN_TYPES[element] if isinstance(element, str) else element.__name__}]"
    elif field.kind == "struct":
        found = field.element.__name__
    else:
        found = PLAIN_TYPES[field.kind]
    return f"{found} | None" if field.nullable and field.kind != "records" else found


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_annotations_say_what_the_rows_say(message_class: type[Message]) -> None:
    for struct_class in facts.structs(message_class):
        expected = {field.name: annotation(field) for field in struct_class.FIELDS}
        assert getattr(struct_class, "__annotations__", {}) == expected


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_tags_and_nulls_are_consistent(message_class: type[Message]) -> None:
    """KIP-482: tags are unique in a structure and flexible; a default of null needs a nullable field."""
    for struct_class in facts.structs(message_class):
        tags = [field.tag for field in struct_class.FIELDS if field.tag is not None]
        assert len(tags) == len(set(tags))
        for field in struct_class.FIELDS:
            check_field(message_class, struct_class, field)


def check_field(message_class: type[Message], struct_class: type[Struct], field: Field) -> None:
    for version in facts.versions(message_class):
        if field.is_tagged(version):
            assert version >= message_class.FLEXIBLE_FROM, (struct_class, field.name)
            assert field.is_present(version)
    if field.default is None and field.kind != "records":
        assert field.nullable
    assert (field.tag is None) == (field.tagged == "")
    assert field.default is not FRESH or field.kind in ("array", "struct")


def test_list_config_resources_v0_is_what_was_list_client_metrics_resources() -> None:
    """Key 74 changed its name, not its bytes."""
    message = facts.request_class(74)()
    assert message.encode(0) == b"\0"
