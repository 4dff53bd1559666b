"""Apache Kafka's recorded responses; the tests need no Kafka server. `python -m tests.compare.record` renews them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.compare.conversation import AnswersByVersion

FILE = Path(__file__).parents[1] / "data" / "apache-kafka-answers.json"


SECURITY_FILE = FILE.with_name("apache-kafka-security.json")


def load() -> dict[str, AnswersByVersion]:
    """Read the recorded responses by question."""
    answers: dict[str, AnswersByVersion] = json.loads(FILE.read_text())["answers"]
    return answers


def save(answers: dict[str, AnswersByVersion], advertised: dict[str, str], source: str) -> None:
    """Write the responses, a line for each question, so that diffs are readable."""
    lines = [f"  {json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
    head = f' "source": {json.dumps(source)},\n "advertised": {json.dumps(advertised)},\n'
    FILE.write_text("{\n" + head + ' "answers": {\n' + ",\n".join(lines) + "\n }\n}\n")


def load_advertised() -> dict[str, str]:
    """Read the versions that Apache Kafka's ApiVersions lists, by API key."""
    advertised: dict[str, str] = json.loads(FILE.read_text())["advertised"]
    return advertised


def load_security() -> dict[str, Any]:
    """Read the recorded responses of a broker with an authorizer, by question."""
    answers: dict[str, Any] = json.loads(SECURITY_FILE.read_text())
    return answers


def save_security(answers: dict[str, Any]) -> None:
    """Write the responses of a broker with an authorizer, a line for each question."""
    lines = [f" {json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
    SECURITY_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
