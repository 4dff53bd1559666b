"""Variables in settings."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from barnabas.config import Config, ConfigError
from barnabas.config.secrets.providers import PACKAGE
from barnabas.config.secrets.variables import has_variable, resolve

FILE = {"config.providers": "file, env", "config.providers.file.class": f"{PACKAGE}.FileConfigProvider"}
PROVIDERS = {**FILE, "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider"}
SMALL = {"node.id": "1", "controller.quorum.bootstrap.servers": "h:1"}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.properties"
    path.write_text("a=one\nb=${env:A}\nspaces =  x y  \nthreads=many\nio=3\nc\\:d=colon\n")
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${file:SECRETS:a}", "one"),
        ("<${file:SECRETS:a}${env:A}>", "<onehere>"),
        ("${file:SECRETS:b}", "${env:A}"),  # what a provider returns is not searched again
        ("${file:SECRETS:c:d}", "colon"),
        ("${vault:a}", "${vault:a}"),
        ("${vault:a} ${file:SECRETS:a}", "${vault:a} one"),
        ("$${file:SECRETS:a}", "$one"),
        ("${file:SECRETS:a", "${file:SECRETS:a"),
        ("${ file:SECRETS:a}", "${ file:SECRETS:a}"),
        ("${:a}", "${:a}"),
        ("${file:SECRETS:spaces}", "x y  "),
        ("${a} $1 {env:A}", "${a} $1 {env:A}"),
    ],
)
def test_variables_are_replaced(secrets: Path, text: str, expected: str) -> None:
    """As Apache Kafka 4.3.1's AbstractConfig replaces them."""
    properties = {**PROVIDERS, "k": text.replace("SECRETS", str(secrets))}
    assert resolve(properties, {"A": "here"}).properties["k"] == expected.replace("SECRETS", str(secrets))


def test_what_was_read_is_known(secrets: Path) -> None:
    properties = {**PROVIDERS, "k": f"${{file:{secrets}:a}}", "m": "${env:A}", "n": "plain"}
    resolved = resolve(properties, {"A": "x"})
    assert resolved.replaced == {"k", "m"}
    assert resolved.files == {secrets: ("k",)}
    assert resolved.warnings == ()


def test_a_name_that_is_no_providers_is_warned_of() -> None:
    for properties in (PROVIDERS, {}):
        resolved = resolve({**properties, "k": "${vault:a}", "m": "${vault:b}"}, {})
        assert resolved.properties["k"] == "${vault:a}"
        assert resolved.warnings == ("k, m: ${vault:...} is not replaced, config.providers has no 'vault'",)


def test_an_absent_value_is_an_error_with_its_reason(secrets: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({**PROVIDERS, "ssl.key.password": f"${{file:{secrets}:absent}}"}, {})
    assert str(caught.value) == (
        f"ssl.key.password: ${{file:{secrets}:absent}} cannot be resolved: {secrets} has no key absent"
    )


def test_the_settings_of_providers_are_not_replaced() -> None:
    properties = {**PROVIDERS, "config.providers.env.param.allowlist.pattern": "${env:A}|A"}
    with pytest.raises(ConfigError, match=r"is not a pattern|not allowed"):
        resolve({**properties, "k": "${env:B}"}, {"A": "B", "B": "b"})


def test_a_process_reads_its_values_from_providers(tmp_path: Path, secrets: Path) -> None:
    file = tmp_path / "server.properties"
    lines = {**SMALL, **PROVIDERS, "num.io.threads": f"${{file:{secrets}:io}}", "broker.rack": "${env:RACK}"}
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    config = Config.load(file, role="broker", environment={"RACK": "r1"})
    assert (config.num_io_threads, config.broker_rack) == (3, "r1")
    assert config.with_overrides({"num.io.threads": "4"}).broker_rack == "r1"


def test_a_process_says_what_is_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Config.from_properties({**SMALL, "broker.rack": "${nowhere:rack}"}, "broker")
    assert "broker.rack: ${nowhere:...} is not replaced" in caplog.text


def test_an_invalid_value_of_a_provider_is_not_shown(secrets: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_properties({**SMALL, **PROVIDERS, "num.io.threads": f"${{file:{secrets}:threads}}"}, "broker")
    assert str(caught.value) == "Invalid value [hidden], from a provider, for configuration num.io.threads"


def test_variables_are_recognized() -> None:
    assert has_variable("a${b:c}")
    assert not has_variable("a${b}")
