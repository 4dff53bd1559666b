"""The pipeline on a secured cluster: `make run SECURITY=...`. Tests pipeline/run.py, spark.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.spark import COMMAND_CONFIG, connection

TIMEOUT_S = 300


def test_the_audit_passes_over_ssl_with_logins(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.run", "--port", "0", "--months", "1", "--security", "sasl_ssl"]
    done = subprocess.run(
        [*command, "--work-dir", str(tmp_path)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "audit passed: each flight exactly once" in done.stdout
    assert "https://127.0.0.1:" in done.stdout
    properties = (tmp_path / "cluster" / "broker-0" / "server.properties").read_text()
    assert "listener.security.protocol.map=CONTROLLER:SSL,SASL_SSL:SASL_SSL,INTERNAL:SSL" in properties


def test_only_settings_of_security_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMAND_CONFIG, raising=False)
    assert connection("h:1") == {"kafka.bootstrap.servers": "h:1"}
    (tmp_path / "client.properties").write_text("bootstrap.servers=x:1\nacks=0\nsecurity.protocol=SSL\nssl.a=b\n")
    monkeypatch.setenv(COMMAND_CONFIG, str(tmp_path / "client.properties"))
    assert connection("h:1") == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.a": "b",
    }
