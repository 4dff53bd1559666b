"""Apache Kafka's recorded answers: by question and version, each answer with the users who get it."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path

from tests.compare.authorization.replay import Answers

FILE = Path(__file__).parents[2] / "data" / "apache-kafka-authorization.json.gz"


@functools.cache
def load() -> Answers:
    """Read the answers."""
    grouped = json.loads(gzip.decompress(FILE.read_bytes()))["answers"]
    return {name: {user: answer for answer, users in rows for user in users} for name, rows in grouped.items()}


def save(answers: Answers, source: str) -> None:
    """Write the answers, a line for each question."""
    lines = [f"  {json.dumps(name)}: {json.dumps(_grouped(by_user))}" for name, by_user in answers.items()]
    text = f'{{\n "source": {json.dumps(source)},\n "answers": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


def _grouped(by_user: dict[str, object]) -> list[tuple[object, list[str]]]:
    groups: dict[str, list[str]] = {}
    for user, answer in by_user.items():
        groups.setdefault(json.dumps(answer), []).append(user)
    return [(json.loads(text), users) for text, users in groups.items()]
