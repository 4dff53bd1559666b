"""The SASL of listeners follows the settings in force."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.network.sasl.listeners import SaslListeners
from barnabas.broker.network.sasl.server_authenticator import ListenerSasl
from barnabas.broker.network.sasl.sources import SaslSources
from barnabas.common.clock import FakeClock
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.mechanism import AuthenticationError
from barnabas.security.sasl.server_settings import ServerSettings

NAME = "OUTSIDE"
JAAS = "listener.name.outside.plain.sasl.jaas.config"
MECHANISMS = "listener.name.outside.sasl.enabled.mechanisms"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def users(password: str) -> str:
    return f'{MODULE} user_alice="{password}";'


class ListenersRig:
    def __init__(self, **more: str) -> None:
        self.file = Config.from_properties({"node.id": "1", MECHANISMS: "PLAIN", JAAS: users("old"), **more})
        self.config = self.file.with_overrides({})
        self.sasl = SaslListeners(SaslSources(), self.config, FakeClock())
        self.listener: ListenerSasl = self.sasl.add(NAME)

    def set(self, **changes: str) -> None:
        self.config.replace(self.file.with_overrides(changes))
        self.sasl.reconfigure()

    def log_in(self, password: str, settings: ServerSettings | None = None) -> None:
        mechanism = (settings or self.listener.settings).mechanisms["PLAIN"]()
        mechanism.evaluate(f"\0alice\0{password}".encode())


def test_new_logins_use_a_changed_password() -> None:
    rig = ListenersRig()
    before = rig.listener.settings
    rig.log_in("old")
    rig.set(**{JAAS: users("new")})
    rig.log_in("new")
    with pytest.raises(AuthenticationError):
        rig.log_in("old")
    rig.log_in("old", before)  # a login that has begun keeps its settings
    rig.set()
    rig.log_in("old")


def test_other_settings_leave_the_mechanisms_alone() -> None:
    rig = ListenersRig()
    before = rig.listener.settings
    rig.set(**{"listener.name.inside.plain.sasl.jaas.config": "x", "num.io.threads": "9"})
    assert rig.listener.settings is before


def test_mechanisms_and_limits_change() -> None:
    rig = ListenersRig()
    rig.set(**{MECHANISMS: "SCRAM-SHA-512", "listener.name.outside.connections.max.reauth.ms": "5"})
    assert list(rig.listener.settings.mechanisms) == ["SCRAM-SHA-512"]
    assert rig.listener.settings.max_reauth_ms == {"SCRAM-SHA-512": 5}


def test_a_change_is_checked_before_it_is_accepted() -> None:
    rig = ListenersRig()
    rig.sasl.check(rig.file.with_overrides({JAAS: users("new")}))
    for changes, message in (
        ({JAAS: f"{MODULE};"}, "has no option user_NAME"),
        ({JAAS: "secret"}, "Login module control flag"),
        ({MECHANISMS: "CRAM-MD5"}, "CRAM-MD5, which is not supported"),
        ({MECHANISMS: ""}, "names no mechanism"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            rig.sasl.check(rig.file.with_overrides(changes))
        assert "secret" not in str(caught.value)
    rig.log_in("old")


def test_a_stored_setting_that_cannot_be_used_blocks_no_other_change() -> None:
    """An older release may have accepted it."""
    rig = ListenersRig()
    stored = {JAAS: 'org.example.Module required user_alice="x";'}
    rig.set(**stored)
    rig.sasl.check(rig.file.with_overrides({**stored, "num.io.threads": "9"}))
    rig.sasl.check(rig.file.with_overrides({**stored, "listener.name.outside.connections.max.reauth.ms": "5"}))
    rig.sasl.check(rig.file.with_overrides({}))
    with pytest.raises(ConfigError, match=r"org\.example\.Module is no login module"):
        rig.sasl.check(rig.file.with_overrides({JAAS: 'org.example.Module required user_alice="y";'}))


def test_what_cannot_be_used_after_all_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig = ListenersRig()
    rig.set(**{MECHANISMS: "CRAM-MD5"})
    rig.log_in("old")
    assert "listener OUTSIDE keeps its logins" in caplog.text
    caplog.clear()
    rig.sasl.reconfigure()
    assert caplog.text == "", "it is said once"


def test_a_failed_try_leaves_the_old_state_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    sources = SourcesWithKeys()
    inside = {"listener.name.inside.sasl.enabled.mechanisms": "PLAIN", JAAS.replace("outside", "inside"): users("x")}
    rig = ListenersRig(**inside)
    rig.sasl = SaslListeners(sources, rig.config, FakeClock())
    rig.listener = rig.sasl.add(NAME)
    other = rig.sasl.add("INSIDE")
    rig.sasl.start()
    before = rig.listener.settings
    sources.fails = OSError("no more threads")
    rig.set(**{JAAS: users("new"), "listener.name.inside.connections.max.reauth.ms": "7"})
    assert rig.listener.settings is before
    assert [keys.calls for keys in sources.keys] == [["start"], ["start"], ["start", "stop"], ["start", "stop"]]
    assert caplog.text.count("keeps its logins: no more threads") == 2, "one for each listener"
    rig.sasl.reconfigure()
    assert caplog.text.count("keeps its logins") == 2, "it is said once"
    sources.fails = None
    rig.sasl.reconfigure()
    rig.log_in("new")
    assert other.settings.max_reauth_ms == {"PLAIN": 7}
    assert [keys.calls for keys in sources.keys if keys.calls[-1:] == ["start"]] == [["start"]] * 2
    caplog.clear()
    sources.fails = OSError("no more threads")
    rig.set()
    assert caplog.text.count("keeps its logins") == 2, "it is news again"


class Keys:
    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails
        self.calls: list[str] = []
        self.before: list[Any] = []

    def take_over(self, before: Any) -> None:
        self.before.append(before)

    def start(self) -> None:
        self.calls.append("start")
        if self.fails is not None:
            raise self.fails

    def stop(self) -> None:
        self.calls.append("stop")


class SourcesWithKeys(SaslSources):
    """Each time settings are made, they have keys of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[Keys] = []
        self.fails: Exception | None = None

    def settings(self, config: Any, name: str, clock: Any) -> ServerSettings:
        self.keys.append(Keys(self.fails))
        return super().settings(config, name, clock)._replace(key_sources=(self.keys[-1],))


def test_threads_that_read_keys_follow_the_settings() -> None:
    sources = SourcesWithKeys()
    rig = ListenersRig()
    rig.sasl = SaslListeners(sources, rig.config, FakeClock())
    rig.listener = rig.sasl.add(NAME)
    rig.sasl.start()
    rig.set(**{JAAS: users("new")})
    assert [keys.calls for keys in sources.keys] == [["start", "stop"], ["start"]]
    assert [keys.before for keys in sources.keys] == [[], [sources.keys[0]]]
    rig.sasl.stop()
    rig.sasl.stop()
    rig.set()
    assert [keys.calls for keys in sources.keys] == [["start", "stop"], ["start", "stop"], []]
