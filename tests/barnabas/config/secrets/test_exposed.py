"""Secrets that other users can read are warned of."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from barnabas.config import Config
from barnabas.config.secrets import exposed
from barnabas.config.secrets.variables import Resolved


@pytest.fixture
def every_directory_is_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if everybody could enter the directories above those of pytest."""
    monkeypatch.setattr(Path, "resolve", lambda self: _Relative(self, tmp_path))


class _Relative:
    """A path whose parents begin at a directory of the test."""

    def __init__(self, path: Path, top: Path) -> None:
        self._path = path
        self.parents = [parent for parent in path.absolute().parents if parent.is_relative_to(top)]

    def stat(self):  # type: ignore[no-untyped-def]
        return self._path.stat()


def warned(file: Path, written: dict[str, str], overrides: dict[str, str] | None = None) -> list[str]:
    return list(exposed.warnings(file, written, overrides or {}, Resolved({**written, **(overrides or {})})))


@pytest.mark.usefixtures("every_directory_is_open")
def test_a_file_is_exposed_if_everybody_reaches_and_reads_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    directory, file = tmp_path / "d", tmp_path / "d" / "f"
    directory.mkdir(mode=0o755)
    file.write_text("")
    for mode, above, expected in [(0o644, 0o755, True), (0o640, 0o755, False), (0o644, 0o750, False)]:
        file.chmod(mode)
        directory.chmod(above)
        assert exposed.is_exposed(file) == expected
    assert not exposed.is_exposed(tmp_path / "absent")


def test_a_file_below_a_closed_directory_is_not_exposed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    file = tmp_path / "f"
    file.write_text("")
    file.chmod(0o644)
    assert not exposed.is_exposed(file)


@pytest.mark.usefixtures("every_directory_is_open")
def test_each_exposed_secret_gets_a_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file, store, read = (tmp_path / name for name in ("server.properties", "keys.p12", "secrets"))
    for path in (file, store, read):
        path.write_text("")
        path.chmod(0o644)
    texts = {
        "delegation.token.secret.key": "s3cret",
        "ssl.key.password": "${file:/x:y}",
        "listener.name.a.ssl.keystore.location": str(store),
        "ssl.truststore.location": str(store),
        "num.io.threads": "3",
    }
    resolved = Resolved(texts, frozenset({"ssl.key.password"}), {read: ("ssl.key.password",)})
    lines = list(exposed.warnings(file, texts, {"sasl.jaas.config": "s3cret", "num.io.threads": "3"}, resolved))
    assert lines == [
        f"every user can read {file}, which holds delegation.token.secret.key: change its mode to 600",
        f"every user can read {read}, which holds ssl.key.password: change its mode to 600",
        f"every user can read {store}, the private key of listener.name.a.ssl.keystore.location: "
        "change its mode to 600",
        "every user sees --override sasl.jaas.config in the list of processes: write it to a file instead",
    ]
    assert "s3cret" not in "".join(lines)
    for path in (file, store, read):
        path.chmod(0o600)
    assert list(exposed.warnings(file, texts, {}, resolved)) == []


def test_a_process_warns_at_its_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\ncontroller.quorum.bootstrap.servers=h:1\n")
    overrides = {"barnabas.pages.auth.token": "s3cret"}
    with caplog.at_level(logging.WARNING):
        Config.load(file, role="broker", overrides=overrides)
    assert "every user sees --override barnabas.pages.auth.token" in caplog.text
    assert "s3cret" not in caplog.text


def test_files_without_secrets_are_not_warned_of(tmp_path: Path) -> None:
    assert warned(tmp_path / "server.properties", {"num.io.threads": "3"}) == []
