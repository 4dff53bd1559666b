"""Both servers as processes: a protective setting without effect ends them at start, with one line and exit code 1.

Tests broker/main.py, controller/main.py and errors.py from end to end.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from barnabas.common.processes import interpreter

TIMEOUT_S = 60
FILE = {
    "broker": "node.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:1\nlisteners=PLAINTEXT://127.0.0.1:0\n",
    "controller": "node.id=1\nlisteners=CONTROLLER://127.0.0.1:0\n",
}


@pytest.mark.parametrize("role", sorted(FILE))
@pytest.mark.parametrize(
    ("text", "variable", "line"),
    [
        (
            "ssl.keystore.filename=/k",
            "",
            "ssl.keystore.filename is not supported: TLS has no such setting",
        ),
        ("", "KAFKA_SASL_ENABLED_MECHANISMS", "sasl.enabled.mechanisms is not supported: no listener uses SASL, so"),
    ],
)
def test_a_server_refuses_protection_that_it_lacks(
    tmp_path: Path, role: str, text: str, variable: str, line: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{FILE[role]}log.dirs={tmp_path / 'data'}\n{text}\n")
    ended = subprocess.run(
        [*interpreter.command(f"barnabas.{role}.main"), str(file)],
        env={**os.environ, **({variable: "PLAIN"} if variable else {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"{role}: {line}")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()
