"""The properties format, and the variables of Kafka's images."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.config.command_line import key_value
from barnabas.config.errors import ConfigError
from barnabas.config.properties import from_environment, parse_properties
from barnabas.config.table.keys import BROKER_KEYS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\r\nc:3\rd 4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# a comment\n! another\n\n  \n a=1", {"a": "1"}),
        ("a=1,\\\n   2,\\\n\t3\nb=x", {"a": "1,2,3", "b": "x"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a\\=b\\:c\\ d = e", {"a=b:c d": "e"}),
        ("path=C:\\\\temp\\tx\\u0041", {"path": "C:\\temp\txA"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a =  1  ", {"a": "1  "}),
        ("a=1\\", {"a": "1"}),
        ("a=1,\\\n# not a comment", {"a": "1,# not a comment"}),
        ("", {}),
    ],
)
def test_parse(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_cut_off_escape_is_an_error() -> None:
    with pytest.raises(ConfigError, match="uXXXX"):
        parse_properties("a=\\u12")


def test_variables_become_keys() -> None:
    environment = {
        "KAFKA_LOG_SEGMENT_BYTES": "1048576",
        "KAFKA_NODE_ID": "3",
        "KAFKA_LISTENER_NAME_MY__NAME_X___Y": "z",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_JMX_PORT": "9999",
        "BARNABAS_METRICS_PORT": "0",
        "PATH": "/bin",
    }
    assert from_environment(environment) == {
        "log.segment.bytes": "1048576",
        "node.id": "3",
        "listener.name.my_name.x-y": "z",
        "barnabas.metrics.port": "0",
    }


def test_each_variable_of_ours_is_a_key_or_none() -> None:
    root = Path(__file__).parents[3]
    sources = [
        path
        for name in ("barnabas", "broker", "controller", "metrics", "tools")
        for path in (root / name).rglob("*.py")
    ]
    found = {name for path in sources for name in re.findall(r'"(BARNABAS_[A-Z_]*[A-Z])"', path.read_text("utf-8"))}
    assert {"BARNABAS_BOOTSTRAP", "BARNABAS_PAGES_AUTH_TOKEN"} <= found
    keys = from_environment(dict.fromkeys(found, "text"))
    assert keys.keys() <= BROKER_KEYS.keys()
    assert "barnabas.pages.auth.token" in keys


def test_overrides_of_the_command_line() -> None:
    assert key_value("a.b = c=d") == ("a.b", "c=d")
    for wrong in ("a.b", "=c", ""):
        with pytest.raises(ConfigError, match="--override wants KEY=VALUE"):
            key_value(wrong)
