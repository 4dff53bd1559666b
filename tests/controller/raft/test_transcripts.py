"""Hard stories of Raft as transcripts (simulator/stage.py has the commands): what each replica is after each block.

After a change of behaviour on purpose, `REWRITE_TRANSCRIPTS=1` writes what happens now; read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.controller.raft.simulator.stage import Stage

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
SEPARATOR = "----"


def played(text: str) -> str:
    """The transcript with what happens now."""
    stage: Stage | None = None
    shown = []
    for block in text.strip().split("\n\n"):
        head = block.partition(SEPARATOR)[0].rstrip().splitlines()
        commands = [line for line in head if line and not line.startswith("#")]
        for command in commands:
            if command.startswith("cluster "):
                stage = Stage(*(int(number) for number in command.split()[1:]))
            else:
                assert stage is not None
                stage.play(command)
        lines = [] if stage is None or not commands else [SEPARATOR, *stage.status()]
        shown.append("\n".join([*head, *lines]))
    return "\n\n".join(shown) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    now = played(text)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(now)
    assert now == text
