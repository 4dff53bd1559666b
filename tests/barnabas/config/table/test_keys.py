"""THE table of keys compared with Kafka's own list, row by row.

Tests key.py, keys.py, notation.py, config/validators.py and the rows of keys_coordinators.py, keys_dynamic.py,
keys_group.py, keys_own.py, keys_remote.py, keys_security.py, keys_server.py, keys_storage.py and keys_topic.py.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from barnabas.config.errors import ConfigError
from barnabas.config.table.keys import BROKER_KEYS, OWN_KEYS, REQUIRED, TABLE, Key, Scope, Type

REFERENCE = Path(__file__).resolve().parents[5] / "shared" / "reference" / "configs.tsv"
#: SHA-256 of the sorted rows of that file, for checkouts that do not have it.
DIGEST = "8d71f276416791dd767d332f3859707e438686046e8194cc3fae33175777e47c"

OURS = [key for key in TABLE if key.name not in OWN_KEYS]


def shown_default(key: Key) -> str:
    """The default as the reference writes it."""
    if key.default == REQUIRED or key.default is None:
        return key.default or "null"
    if key.name == "log.dir":
        return "[<tmp>/kafka-logs]"
    if key.type is Type.LIST:
        return f"[{', '.join(key.default)}]"
    if key.type is Type.CLASS:
        return f"class {key.default}"
    return key.to_text(key.default) or ""


def as_row(key: Key) -> str:
    return "\t".join(
        (
            key.scope.value,
            key.name,
            key.type.name,
            shown_default(key),
            key.importance.name,
            str(key.validator or ""),
        )
    )


def test_the_table_is_kafkas() -> None:
    rows = sorted(as_row(key) for key in OURS)
    if REFERENCE.exists():
        assert rows == sorted(REFERENCE.read_text().splitlines()[1:])
    assert hashlib.sha256("\n".join(rows).encode()).hexdigest() == DIGEST


def test_names_and_attributes_are_unique_within_a_scope() -> None:
    for scope in Scope:
        keys = [key for key in TABLE if key.scope is scope]
        assert len({key.name for key in keys}) == len(keys)
        assert len({key.attribute for key in keys}) == len(keys)


@pytest.mark.parametrize("key", TABLE, ids=lambda key: f"{key.scope.value}:{key.name}")
def test_every_row_is_valid(key: Key) -> None:
    assert key.doc.endswith(".")
    for name, factor in key.synonyms:
        assert name in BROKER_KEYS
        assert factor in (1, 60_000, 3_600_000)
    if key.default is not None and key.default != REQUIRED:
        text = key.to_text(key.default)
        assert text is not None
        assert key.parse(text) == key.default


NUMBERS = [
    key for key in TABLE if key.validator is not None and str(key.validator).startswith(("[-", "[0", "[1", "[2"))
]


@pytest.mark.parametrize("key", NUMBERS, ids=lambda key: f"{key.scope.value}:{key.name}")
def test_bounds_are_enforced(key: Key) -> None:
    low, _, high = str(key.validator).strip("[]").removesuffix("] or -1").partition(",...")
    high = high.strip(",")
    assert key.parse(low) == float(low)
    below = int(low) - 1 if int(low) - 1 != -1 or "or -1" not in str(key.validator) else -2
    if below >= -(2**31):
        with pytest.raises(ConfigError, match=key.name):
            key.parse(str(below))
    if high:
        assert key.parse(high) == float(high)
        with pytest.raises(ConfigError, match=r"no more than|between"):
            key.parse(str(int(high) + 1))


WORDS = [key for key in TABLE if key.validator is not None and key not in NUMBERS and str(key.validator)]


@pytest.mark.parametrize("key", WORDS, ids=lambda key: f"{key.scope.value}:{key.name}")
def test_choices_are_enforced(key: Key) -> None:
    wrong = {"non-empty string": "", "non-empty list": "a,", "non-null string": None}.get(
        str(key.validator), "nonsense"
    )
    if wrong is None:
        assert key.parse("anything") == "anything"
        return
    with pytest.raises(ConfigError, match=key.name):
        key.parse(wrong)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.io.threads", "many"),
        ("num.io.threads", "2147483648"),
        ("num.io.threads", "1.0"),
        ("offsets.topic.replication.factor", "32768"),
        ("log.retention.ms", "9223372036854775808"),
        ("log.cleaner.min.cleanable.ratio", "half"),
        ("auto.create.topics.enable", "yes"),
    ],
)
def test_texts_of_the_wrong_type_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value {text} for configuration {name}: "):
        BROKER_KEYS[name].parse(text)
