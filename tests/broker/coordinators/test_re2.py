"""RE2's expressions: what RE2/J makes of them (recorded), how long they take, what is too much."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from barnabas.broker.coordinators import re2
from barnabas.broker.coordinators.re2 import RegexError, compile_regex
from barnabas.broker.coordinators.topic_regexes import resolve

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "re2j-answers.json").read_text())


@pytest.mark.parametrize("regex", RECORDED["answers"])
def test_the_answer_is_that_of_re2j(regex: str) -> None:
    assert _answer(regex) == RECORDED["answers"][regex]


def _answer(regex: str) -> object:
    try:
        compiled = compile_regex(regex)
    except RegexError as error:
        return str(error)
    return [name for name in RECORDED["names"] if compiled.matches(name)]


@pytest.mark.parametrize("regex", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)b", "(a?){50}a{50}b"])
def test_no_expression_takes_long(regex: str) -> None:
    """Each of these takes a backtracking engine more steps than there are atoms in the world."""
    compiled = compile_regex(regex)
    assert not compiled.matches("a" * 249)
    assert compiled.matches("a" * 60 + "b")


def test_steps_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(re2, "KNOWN_MAX", 500)
    compiled = compile_regex("(.*a.{20}){2}")
    draw = random.Random(1)
    names = ["".join(draw.choice("ab") for _ in range(draw.randrange(60))) for _ in range(100)]
    found = [compiled.matches(name) for name in names]
    assert found == [_matches_slowly(name) for name in names]
    assert len(set(found)) == 2
    assert compiled._known <= 500 + 50


def _matches_slowly(name: str) -> bool:
    ends = [index + 21 for index, char in enumerate(name) if char == "a" and index + 21 <= len(name)]
    return len(name) in ends and any(end <= len(name) - 21 for end in ends)


@pytest.mark.parametrize(
    ("regex", "why"),
    [
        ("(" * 300 + ")" * 300, "expression nests too deeply"),
        ("a" + "*(?i)" * 3000, "expression nests too deeply"),
        ("((a{100}){100}){100}", "invalid repeat count"),
        ("a" * 10_001, "invalid repeat count"),
    ],
)
def test_too_much_is_refused(regex: str, why: str) -> None:
    with pytest.raises(RegexError, match=why):
        compile_regex(regex)


def test_expressions_are_resolved_to_whole_names() -> None:
    resolved = resolve(["t.", "(", "[xyz]+"], ["t", "t1", "t12", "x", "zy"], 7, 99)
    assert {regex: sorted(found.topics) for regex, found in resolved.items()} == {
        "t.": ["t1"], "(": [], "[xyz]+": ["x", "zy"],
    }  # fmt: skip
    assert {(found.version, found.timestamp_ms) for found in resolved.values()} == {(7, 99)}
