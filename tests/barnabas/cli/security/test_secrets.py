"""`barnabas secrets`."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.config.properties import parse_properties
from tests.barnabas.cli.conftest import Barnabas


def test_it_writes_files_and_prints_no_secret(barnabas: Barnabas, tmp_path: Path) -> None:
    nodes = ("--node", "controller=controller", "--node", "broker-0=broker-0,localhost")
    outcome = barnabas("secrets", str(tmp_path), *nodes, "--user", "admin", "--bootstrap", "h:1,h:2")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"{tmp_path}: 2 nodes, users admin\n"
    properties = parse_properties((tmp_path / "users" / "admin" / "client.properties").read_text())
    assert properties["bootstrap.servers"] == "h:1,h:2"
    assert (tmp_path / "nodes" / "broker-0.pem").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--node", "../x=h"), "--node ../x=h: expected NAME=HOST,..."),
        (("--node", "ca=h"), "and is not ca"),
        (("--node", f"{'x' * 65}=h"), "up to 64 letters"),
        (("--node", "a=b\u00fccher.example"), "xn--"),
        (("--user", "a/b"), "'a/b' cannot be a user here"),
        (("--bootstrap", "h"), "'h' is not HOST:PORT"),
    ],
)
def test_a_mistake_is_one_line(barnabas: Barnabas, tmp_path: Path, arguments: tuple[str, str], line: str) -> None:
    outcome = barnabas("secrets", str(tmp_path / "new"), *arguments)
    assert outcome.code == (1 if "cannot be a user" in line else 2)
    assert line in outcome.err
    assert not (tmp_path / "new").exists()
