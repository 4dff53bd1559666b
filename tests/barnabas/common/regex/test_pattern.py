"""Clients' regular expressions: their answers, errors and costs.

Tests `common/regex/pattern.py`, `common/regex/fallback.py`, `common/regex/errors.py` and
`coordinators/consumer/topic_regexes.py`. Each test of an answer runs with google-re2, where it is installed, and
with the fallback for other interpreters.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.broker.coordinators.consumer.topic_regexes import resolve
from barnabas.common.regex import errors, fallback, pattern
from barnabas.common.regex.errors import PatternError
from barnabas.common.regex.fallback import TOPIC_NAMES, Alphabet, compile_pattern
from tests.support.cpu_time import least_cpu_s
from tests.support.programs import skip_or_fail

RECORDED = json.loads((Path(__file__).parents[3] / "data" / "re2j-answers.json").read_text())

needs_re2 = pytest.mark.usefixtures("re2")


@pytest.fixture
def re2() -> None:
    """Google-re2, which has no wheel for musl and is not used by a free-threaded interpreter."""
    if pattern._re2() is None:
        skip_or_fail("google-re2 is not installed, or would turn the interpreter's lock on")


@pytest.fixture(params=["re2", "fallback"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with each engine."""
    if request.param == "re2":
        request.getfixturevalue("re2")
    else:
        monkeypatch.setattr(pattern, "_re2", lambda: None)
    return str(request.param)


@pytest.mark.parametrize("regex", RECORDED["answers"])
def test_the_answer_is_that_of_re2j(engine: str, regex: str) -> None:
    assert _answer(regex) == RECORDED["answers"][regex]


def _answer(regex: str) -> object:
    try:
        pattern.check_pattern(regex)
        return pattern.matching_names(regex, RECORDED["names"])
    except PatternError as error:
        return str(error)


@pytest.mark.parametrize("regex", ["(a*)*b", "(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)b", "(a?){50}a{50}b"])
def test_no_expression_takes_long(engine: str, regex: str) -> None:
    """Each of these takes a backtracking engine exponential time."""
    names = ["a" * 249, "a" * 60 + "b"]
    assert pattern.matching_names(regex, names) == names[1:]


def test_expressions_are_resolved_to_whole_names(engine: str) -> None:
    resolved = resolve(["t.", "(", "[xyz]+"], ["t", "t1", "t12", "x", "zy"], 7, 99)
    assert {regex: sorted(found.topics) for regex, found in resolved.items()} == {
        "t.": ["t1"], "(": [], "[xyz]+": ["x", "zy"],
    }  # fmt: skip
    assert {(found.version, found.timestamp_ms) for found in resolved.values()} == {(7, 99)}


def test_expressions_after_the_time_of_their_group_match_nothing(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    resolved = resolve(["t.", "x"], ["t1", "x"], 7, 99, time_max_ns=0)
    assert [found.topics for found in resolved.values()] == [frozenset(), frozenset()]
    assert caplog.text.count("is ignored") == 2


# Names other than topics': transactional ids may have any characters

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
        (r"gr\ö[\ß]e", ["größe"]),
        (r"(?i)gr\össe", ["GRÖSSE"]),
        ("", [""]),
    ],
)
def test_names_of_any_characters(engine: str, regex: str, matched: list[str]) -> None:
    assert pattern.matching_names(regex, IDS) == matched


@needs_re2
@pytest.mark.parametrize("text", ["(\ud800", "[[:\ud800:]]", "(?P<\ud800", ")\ud800", r"\p{" + "\ud800}"])
def test_an_error_that_quotes_a_lone_surrogate_is_a_pattern_error(text: str) -> None:
    with pytest.raises(PatternError, match=r"missing|invalid|internal"):
        pattern.check_pattern(text)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\\\ud800"])
def test_a_lone_surrogate_harms_nothing(engine: str, text: str) -> None:
    assert _answer(text) in ([], "invalid UTF-8")
    assert pattern.matching_names("b", [text, "b"]) == ["b"]


@needs_re2
def test_without_the_interpreters_lock_the_fallback_is_used_though_re2_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Importing google-re2 would turn the lock on again, in the middle of a running broker."""
    monkeypatch.setattr(pattern, "HAS_GLOBAL_LOCK", False)
    pattern._re2.cache_clear()
    try:
        assert pattern._re2() is None
        assert pattern.matching_names("a+", ["aa", "b"]) == ["aa"]
    finally:
        pattern._re2.cache_clear()


# Costs


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("((a{1000}){1000}){1000}", errors.REPEAT_SIZE),
        ("((){1000}){1000}", errors.REPEAT_SIZE),
        ("(a{2}){501}", errors.REPEAT_SIZE),
        ("a{1001}", errors.REPEAT_SIZE),
        ("a" * 40_000, errors.TOO_LARGE),
    ],
)
def test_too_much_is_refused(engine: str, regex: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        pattern.check_pattern(regex)


@needs_re2
@pytest.mark.parametrize(
    "regex",
    [
        *(r"\pL" * 10_000, r"(?i)\p{Lu}?" * 3000, "[[:^alpha:]]" * 2700, ".{1000}" * 1000, "(){1000}" * 3000),
        *("a?" * 16_000, "a??" * 10_000, "a{0,1000}" * 100, "(?:a?){0,1000}" * 2000, "(?:a?){,1000}?" * 2000),
        *("[[:a" * 8000, "{1," * 10_000, r"\é" * 16_000, r"\Qa" * 10_000, "(?P<a" * 6000),
    ],
)
def test_compiling_is_bounded(regex: str) -> None:
    """It holds the interpreter's lock, so it must end soon; without the limit the first one takes seconds."""

    def check() -> None:
        with contextlib.suppress(PatternError):
            pattern.check_pattern(regex)

    assert least_cpu_s(check, tries=3) < 0.5


@needs_re2
@pytest.mark.parametrize(
    "regex", ["a{0,1000}" * 3, "[a-z]?" * 3000, "(?:a)" * 6000, "x{1,249}" * 12, "(a|b)*" * 5000, r"\x{1000}" * 9]
)
def test_repetitions_within_the_limit_are_accepted(regex: str) -> None:
    pattern.check_pattern(regex)


@needs_re2
@pytest.mark.parametrize(
    "regex", ["a{0,1000}" * 3 + "a?", "a?" * 3001, "(?:a?){1000}" * 3, "(?:a){1000,}" * 4, r"\\x{1000}" * 4]
)
def test_too_many_repetitions_are_refused(regex: str) -> None:
    with pytest.raises(PatternError, match=errors.TOO_LARGE):
        pattern.check_pattern(regex)


@needs_re2
@pytest.mark.parametrize("regex", ["(" * 16_000 + ")" * 16_000, "((((a*)*)*)*)*" * 2000, "a" + "*(?i)" * 3000])
def test_captures_cost_nothing(regex: str) -> None:
    """With captures, RE2 takes minutes for one name of the first two expressions."""
    started_ns = time.thread_time_ns()
    assert pattern.matching_names(regex, ["x" * 249]) == []
    assert time.thread_time_ns() - started_ns < 2_000_000_000


@needs_re2
def test_a_name_that_would_take_too_long_is_refused_beforehand() -> None:
    with pytest.raises(PatternError, match=errors.TOO_SLOW):
        pattern.matching_names("(a|b)*a(a|b){900}(a|b){900}", ["ab" * 16_000])


@needs_re2
def test_matching_gives_up_when_all_names_together_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "TIME_MAX_NS", 1_000_000)
    with pytest.raises(PatternError, match=errors.TOO_SLOW):
        pattern.matching_names("(a|b)*a(a|b){400}", _random_names(100))


@needs_re2
def test_other_threads_run_while_a_name_is_matched() -> None:
    counted, is_done = [0], threading.Event()

    def count() -> None:
        while not is_done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counted[0]
        pattern.matching_names("((a|b)*a(a|b){40}){20}", _random_names(100))
        assert counted[0] > before
    finally:
        is_done.set()
        thread.join()


def _random_names(count: int) -> Sequence[str]:
    draw = random.Random(1)
    return ["".join(draw.choice("ab") for _ in range(1000)) for _ in range(count)]


# The fallback's own limits


def test_the_fallback_forgets_steps_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "KNOWN_MAX", 500)
    compiled = compile_pattern("(.*a.{20}){2}", TOPIC_NAMES)
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
    ("regex", "reason"),
    [
        ("(" * 300 + ")" * 300, errors.TOO_DEEP),
        ("a" + "*(?i)" * 3000, errors.TOO_DEEP),
        ("a" * 10_001, errors.REPEAT_SIZE),
        ("a{" + "9" * 5000 + "}", errors.REPEAT_SIZE),
        ("[b-y]" * 6000, errors.TOO_LARGE),
    ],
)
def test_too_much_for_the_fallback(regex: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        compile_pattern(regex, Alphabet(map(chr, range(0x4E00, 0x4E00 + 1000))))


@pytest.mark.parametrize("regex", ["((a{10}){10}){10}", "(a{2}){500}", "(|){1000}", "(){1000}" * 3000, "{" * 9000])
def test_the_fallback_takes_what_is_large_but_within_its_limits(regex: str) -> None:
    compile_pattern(regex, TOPIC_NAMES)


def test_the_fallback_gives_an_expression_up_that_needs_new_steps_for_each_name() -> None:
    """Its automaton has 2 ** 400 states; each costs 800 instructions."""
    with pytest.raises(PatternError, match=errors.TOO_SLOW):
        fallback.matching_names("(a|b)*a(a|b){400}", _random_names(20))


def test_an_expression_that_takes_too_long_is_ignored_and_others_are_resolved(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pattern, "_re2", lambda: None)
    monkeypatch.setattr(fallback, "STEPS_MAX", 200)
    resolved = resolve(["(a|b)*a(a|b){40}", "b+"], ["ab" * 30, "bb"], 1, 1)
    assert {regex: set(found.topics) for regex, found in resolved.items()} == {
        "(a|b)*a(a|b){40}": set(), "b+": {"bb"},
    }  # fmt: skip
    assert errors.TOO_SLOW in caplog.text


@pytest.mark.parametrize("implementation", ["re2", "fallback"])
def test_a_matcher_matches_whole_names(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if implementation == "fallback":
        monkeypatch.setattr(pattern, "_re2", lambda: None)
    matches = pattern.matcher("etl-[0-9]+|ÄÖ.")
    assert [name for name in ("etl-1", "etl-", "my-etl-1", "etl-12", "ÄÖÜ") if matches(name)] == [
        "etl-1",
        "etl-12",
        "ÄÖÜ",
    ]
    with pytest.raises(PatternError):
        pattern.matcher("(")


@needs_re2
def test_a_matcher_leaves_out_names_that_take_too_long() -> None:
    matches = pattern.matcher("[a-z]{900}")
    assert matches("a" * 900)
    assert not matches("a" * 30_000)
