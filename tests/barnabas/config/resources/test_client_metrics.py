"""The config of a client metrics subscription."""

from __future__ import annotations

import pytest

from barnabas.config.errors import ConfigError
from barnabas.config.resources.client_metrics import ClientMetricsConfig, parse_match


def test_defaults_and_own_values() -> None:
    config = ClientMetricsConfig({"metrics": "org.apache.kafka.consumer, b"})
    assert config.values == {"metrics": ("org.apache.kafka.consumer", "b"), "interval.ms": 300_000, "match": ()}
    assert config.overrides == {"metrics": "org.apache.kafka.consumer, b"}
    assert ClientMetricsConfig({"metrics": "b,a,b"}).values["metrics"] == ("b", "a")
    with pytest.raises(ConfigError):
        ClientMetricsConfig({"interval.ms": "often"})
    with pytest.raises(ConfigError, match="must not be empty"):
        ClientMetricsConfig({"metrics": "a,,b"})


def test_a_match_names_what_it_compares() -> None:
    entries = ["client_id = a.*", "client_source_port=9092", "client_id=b="]
    assert parse_match(entries) == {"client_id": "b", "client_source_port": "9092"}
    assert parse_match([]) == {}


@pytest.mark.parametrize(
    "entry",
    ["", "client_id", "client_id=", "=a", "==", "colour=red", "client_id=a=b", "client_id=(", "client_id=a(?!b)"],
)
def test_a_match_that_selects_nothing(entry: str) -> None:
    with pytest.raises(ConfigError, match="Illegal client matching pattern"):
        parse_match([entry])
