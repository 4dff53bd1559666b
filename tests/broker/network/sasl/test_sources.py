"""What logins need of the rest of the process."""

from __future__ import annotations

from barnabas.broker.network.sasl.sources import SaslSources
from barnabas.common.clock import FakeClock
from barnabas.config.config import Config
from barnabas.security.values import ScramMechanism
from tests.barnabas.security.sasl.test_scram import Users


def test_credentials_are_looked_up_where_main_says() -> None:
    sources, users = SaslSources(), Users(alice="x")
    assert sources.credential(ScramMechanism.SCRAM_SHA_256, "alice") is None
    assert sources.token(ScramMechanism.SCRAM_SHA_256, "id") is None
    sources.scram = users
    assert sources.credential(ScramMechanism.SCRAM_SHA_256, "alice") is users.credentials["alice"]


def test_a_listener_is_made_from_its_settings() -> None:
    config = Config.from_properties({"node.id": "1", "sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    listener = SaslSources().listener(config, "OUTSIDE", FakeClock())
    assert list(listener.settings.mechanisms) == ["SCRAM-SHA-256"]
