"""RE2's expressions: what RE2/J makes of them (recorded), how long they take, what is too much."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from barnabas.broker.coordinators import re2
from barnabas.broker.coordinators.re2 import Alphabet, RegexError, compile_regex
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


@pytest.mark.parametrize("regex", ["(a*)*b", "(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)b", "(a?){50}a{50}b"])
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


# Names other than topics': transactional ids may have any characters


def _match(regex: str, *names: str) -> list[str]:
    compiled = compile_regex(regex, Alphabet({char for name in names for char in name}))
    return [name for name in names if compiled.matches(name)]


IDS = ("app-1", "App-2", "größe", "GRÖSSE", "σας", "ΣΑΣ", "a b", "a\nb", "用户-7", "K", "x/y:z", "")


@pytest.mark.parametrize(
    ("regex", "matched"),
    [
        (".*", [name for name in IDS if "\n" not in name]),
        ("(?s).*", list(IDS)),
        ("[^x]*", [name for name in IDS if "x" not in name]),
        (r"\w+-\d", ["app-1", "App-2"]),
        (r".*\s.*", ["a b", "a\nb"]),
        (r"a[[:space:]]b", ["a b", "a\nb"]),
        ("(?m)a$\n^b", ["a\nb"]),
        ("a$\n^b", []),
        ("(?i)APP-.", ["app-1", "App-2"]),
        ("(?i)σΑς", ["σας", "ΣΑΣ"]),
        ("(?i)k", ["K"]),
        ("(?i)[j-l]", ["K"]),
        (r"\p{Han}+-7", ["用户-7"]),
        (r"\p{Greek}+", ["σας", "ΣΑΣ"]),
        (r"\p{Lu}+", ["GRÖSSE", "ΣΑΣ", "K"]),
        (r"\x{7528}.*", ["用户-7"]),
        (r"\Qx/y:z\E", ["x/y:z"]),
        ("", [""]),
    ],
)
def test_names_of_any_characters(regex: str, matched: list[str]) -> None:
    assert _match(regex, *IDS) == matched


@pytest.mark.parametrize(
    ("regex", "why"),
    [
        ("((a{1000}){1000}){1000}", "invalid repeat count"),
        ("((){1000}){1000}", "invalid repeat count"),
        ("(a{2}){501}", "invalid repeat count"),
        ("a{1001}", "invalid repeat count"),
        ("a{" + "9" * 5000 + "}", "invalid repeat count"),
        ("a" * 40_000, "expression is too large"),
        ("[b-y]" * 6000, "expression is too large"),
    ],
)
def test_what_costs_too_much_is_refused_before_it_is_paid(regex: str, why: str) -> None:
    chars = map(chr, range(0x4E00, 0x4E00 + 1000))
    with pytest.raises(RegexError, match=why):
        compile_regex(regex, Alphabet(chars))


@pytest.mark.parametrize("regex", ["((a{10}){10}){10}", "(a{2}){500}", "(|){1000}", "(){1000}" * 3000, "{" * 32_000])
def test_what_is_large_but_within_bounds_is_taken(regex: str) -> None:
    compile_regex(regex[:9000] if regex.startswith("{") else regex)


def test_an_expression_that_needs_a_step_of_its_own_for_each_name_is_given_up() -> None:
    """Its automaton has 2 ** 400 states; each costs 800 instructions."""
    compiled = compile_regex("(a|b)*a(a|b){400}")
    draw = random.Random(1)
    names = ["".join(draw.choice("ab") for _ in range(1000)) for _ in range(20)]
    with pytest.raises(RegexError, match="takes too many steps"):
        list(map(compiled.matches, names))


def test_a_subscription_that_takes_too_long_is_ignored_and_others_are_resolved(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(re2, "STEPS_MAX", 200)
    resolved = resolve(["(a|b)*a(a|b){40}", "b+"], ["ab" * 30, "bb"], 1, 1)
    assert {regex: set(found.topics) for regex, found in resolved.items()} == {
        "(a|b)*a(a|b){40}": set(), "b+": {"bb"},
    }  # fmt: skip
    assert "takes too many steps" in caplog.text
