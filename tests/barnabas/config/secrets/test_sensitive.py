"""Which settings are secret."""

from __future__ import annotations

import pytest

from barnabas.config.secrets.sensitive import is_password, is_sensitive

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.mark.parametrize(
    ("resource_type", "name", "expected"),
    [
        (BROKER, "ssl.key.password", True),
        (BROKER, "listener.name.external.ssl.keystore.key", True),
        (BROKER, "listener.name.external.scram-sha-256.sasl.jaas.config", True),
        (BROKER, "num.io.threads", False),
        (BROKER, "listener.name.external.max.connections", False),
        (BROKER, "leader.replication.throttled.rate", False),
        (BROKER, "vendor.api.key", True),
        (TOPIC, "retention.ms", False),
        (TOPIC, "vendor.api.key", True),
        (GROUP, "consumer.session.timeout.ms", False),
        (GROUP, "vendor.api.key", True),
        (LOGGER, "kafka.request.logger", False),
        (CLIENT_METRICS, "interval.ms", False),
        (99, "num.io.threads", True),
    ],
)
def test_passwords_and_unknown_keys_are_sensitive(resource_type: int, name: str, expected: bool) -> None:
    assert is_sensitive(resource_type, name) == expected


def test_only_known_keys_are_passwords_of_a_file() -> None:
    assert is_password("listener.name.a.ssl.key.password")
    assert not is_password("vendor.api.key")
