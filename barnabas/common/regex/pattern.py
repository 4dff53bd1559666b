"""Regular expressions of clients, in RE2's syntax: validated, and matched with whole names.

Clients send them for topic names (SubscribedTopicRegex, KIP-848) and transactional ids (ListTransactions, KIP-1152);
client metrics subscriptions have them for client ids and the like (KIP-714, where Kafka uses Java's own expressions).
Python's `re` would be unsafe: it backtracks, so an expression like (a*)*b could stop a broker. RE2 needs time linear in
the name. It also rejects look-around and back-references, as Kafka does.

Rules
1. Every cost is bounded before it is paid. Compiling holds the interpreter's lock, so an expression may have only so
   many characters, Unicode classes and repetitions. RE2's own limit on memory comes too late for repetitions: it
   expands all of them first, and takes time quadratic in their number. Matching releases the interpreter's lock; its
   CPU time is bounded for each name, and for all names together.
2. Captures are off. Nothing needs them, and with thousands of groups they make RE2 take minutes for a name.
3. Errors have RE2/J's words, as Kafka's clients know them (`errors.py`).
4. google-re2 is imported with the first expression: it costs about 4 MB of memory, which most brokers never need.
5. A free-threaded interpreter uses `fallback.py`, even where google-re2 was built for it: google-re2 does not declare
   that it works without the interpreter's lock, so importing it would turn the lock on again. So does a system for
   which google-re2 has no wheel (musl), where it is not installed.

Threads: any.
Source: RE2 syntax, as RE2/J 1.8 has it (Kafka's SubscribedTopicRegex).
Different from RE2/J: expressions may not cost more than the limits below.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.common.regex import errors
from barnabas.common.regex.errors import PatternError
from barnabas.common.threads import HAS_GLOBAL_LOCK

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["PatternError", "check_pattern", "matcher", "matching_names"]

UNICODE_CLASSES_MAX: Final = 100  # \p{...}: each takes RE2 up to 0.3 ms to compile
REPEATS_MAX: Final = 3000  # the sum of {n}, each ? counting as 1: RE2 takes 40 ms to compile so many of one character
MEMORY_MAX: Final = 2 << 20  # bytes, of the program and the states of its automaton
WORK_MAX: Final = 100_000_000  # instructions x bytes of one name; RE2 needs about 2 s for so many at worst
MATCHER_WORK_MAX: Final = 10_000_000  # the same for a matcher, which is called for each new client
TIME_MAX_NS: Final = 2_000_000_000  # CPU time for all names

#: The beginning of RE2's error text -> RE2/J's text. The first one that fits counts.
_ERRORS: Final = (
    ("missing )", errors.MISSING_PAREN),
    ("unexpected )", errors.UNOPENED),
    ("missing ]", errors.MISSING_BRACKET),
    ("no argument for repetition operator", errors.NOTHING_TO_REPEAT),
    ("bad repetition operator", errors.NESTED_REPEAT),
    ("invalid repetition size", errors.REPEAT_SIZE),
    ("invalid perl operator: (?<", errors.INVALID_NAME),
    ("invalid perl operator", errors.INVALID_PERL),
    ("invalid named capture group", errors.INVALID_NAME),
    ("invalid escape sequence", errors.INVALID_ESCAPE),
    ("invalid character class range", errors.INVALID_RANGE),
    ("trailing \\", errors.TRAILING_BACKSLASH),
    ("pattern too large", errors.TOO_LARGE),
)
#: A counted repetition, or an escape. RE2 refuses a number above 1000.
_COUNTED: Final = re.compile(r"\\(?:x\{\w+\}|.)|\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}", re.DOTALL)
_COUNT: Final = r"\{(?:0|[1-9][0-9]*)(?:,(?:0|[1-9][0-9]*)?)?\}"
#: The parts that RE2 reads in another way than RE2/J, and what could be mistaken for one of them.
_PART: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)"
    r"|(?P<chars>\[\^?\]?(?:\[:\^?\w*:\]|\\.|[^]\\])*+)"
    r"|\\(?:[pPx]\{|(?P<escaped>.))"
    r"|\(\?P?<(?P<name>\w+)>"
    rf"|(?P<brace>(?!{_COUNT})\{{(?=[*+?]|{_COUNT}))",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def check_pattern(text: str) -> None:
    """Raise PatternError unless the expression is valid."""
    re2 = _re2()
    if re2 is None:
        from barnabas.common.regex import fallback

        fallback.check_pattern(text)
    else:
        _compile(re2, text)


def matching_names(text: str, names: Collection[str]) -> list[str]:
    """Return the names that the expression matches as a whole, in order.

    Raises PatternError if the expression is not valid, or takes too long for these names.
    """
    re2 = _re2()
    if re2 is None:
        from barnabas.common.regex import fallback

        return fallback.matching_names(text, names)
    pattern = _compile(re2, text)
    matches: Callable[[bytes], object] = pattern.fullmatch
    longest = max((len(name) for name in names), default=0) * 4  # bytes, at most
    if longest * pattern.programsize > WORK_MAX:
        raise PatternError(errors.TOO_SLOW)
    end_ns = time.thread_time_ns() + TIME_MAX_NS
    found = []
    for name in names:
        if matches(_utf8(name)) is not None:
            found.append(name)
        if time.thread_time_ns() > end_ns:
            raise PatternError(errors.TOO_SLOW)
    return found


def matcher(text: str) -> Callable[[str], bool]:
    """Return a function that tells whether the expression matches a name as a whole; it is compiled once.

    A name for which that would take too long is not matched. Raises PatternError if the expression is not valid.
    """
    re2 = _re2()
    if re2 is None:
        check_pattern(text)
        return partial(_matches_in_fallback, text)
    pattern = _compile(re2, text)
    fullmatch, size = pattern.fullmatch, pattern.programsize

    def matches(name: str) -> bool:
        encoded = _utf8(name)
        return len(encoded) * size <= MATCHER_WORK_MAX and fullmatch(encoded) is not None

    return matches


def _matches_in_fallback(text: str, name: str) -> bool:
    from barnabas.common.regex import fallback

    try:
        return bool(fallback.matching_names(text, [name]))
    except PatternError:  # it takes too long
        return False


@cache
def _re2() -> ModuleType | None:
    """Return the module google-re2; None if it is not installed, or would turn the interpreter's lock on (rule 5)."""
    if not HAS_GLOBAL_LOCK:
        return None
    try:
        import re2
    except ImportError:
        return None
    module: ModuleType = re2
    return module


def _compile(re2: Any, text: str) -> Any:
    if len(text) > errors.LENGTH_MAX or text.count("\\p") + text.count("\\P") > UNICODE_CLASSES_MAX:
        raise PatternError(errors.TOO_LARGE)
    if _repeats(text) > REPEATS_MAX:
        raise PatternError(errors.TOO_LARGE)
    text = _as_re2j_reads(text)
    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    options.max_mem = MEMORY_MAX
    try:
        return re2.compile(_utf8(text), options)
    except re2.error as error:
        detail = error.args[0]
        # Why "replace": it quotes the expression, which may be no UTF-8, or only the first bytes of a character.
        words = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise PatternError(_in_words_of_re2j(words)) from None
    finally:
        re2.purge()  # its cache would keep up to 128 clients' expressions in memory


def _repeats(text: str) -> int:
    """Return how many copies RE2 makes of what is repeated, or more: quoted signs are counted, too."""
    counted = sum(max(int(least or 0), int(most or 0)) for least, most in _COUNTED.findall(text))
    return counted + text.count("?") - text.count("(?")


def _as_re2j_reads(text: str) -> str:
    """Return what makes RE2 read the expression as RE2/J does: an escaped character beyond ASCII is itself.

    Raises PatternError for what RE2 allows and RE2/J does not: single bytes (\\C), two groups of one name, and a
    repeated brace that begins no count.
    """
    names: set[str] = set()

    def rewritten(part: re.Match[str]) -> str:
        chars, escaped, name, brace = part.group("chars", "escaped", "name", "brace")
        if escaped == "C":
            raise PatternError(errors.INVALID_ESCAPE)
        if name in names:
            raise PatternError(errors.DUPLICATE_NAME)
        if name is not None:
            names.add(name)
        if brace is not None:
            raise PatternError(errors.NESTED_REPEAT)
        return part[0] if chars is None and escaped is None else _ESCAPED.sub(_bare_beyond_ascii, part[0])

    return _PART.sub(rewritten, text)


def _bare_beyond_ascii(escape: re.Match[str]) -> str:
    return escape[0] if escape[1].isascii() else escape[1]


def _in_words_of_re2j(detail: str) -> str:
    return next((words for start, words in _ERRORS if detail.startswith(start)), detail)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
