"""The table of clients and mechanisms in docs/compatibility.md is the one that tests/clients/security goes through."""

from __future__ import annotations

from pathlib import Path

from tests.clients.security.matrix import rendered

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_table_of_clients_is_the_tested_one() -> None:
    assert rendered() in (DOCS / "compatibility.md").read_text(), "run `python -m tests.clients.security.matrix`"
