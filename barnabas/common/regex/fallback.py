"""A pure implementation of RE2's expressions, for interpreters without google-re2. `pattern.py` chooses.

Only free-threaded interpreters use it; `pattern.py` says why. One test holds both to the same answers.

Grammar
    expression  = branch ("|" branch)*
    branch      = (atom repetition?)*
    repetition  = ("*" | "+" | "?" | "{n}" | "{n,}" | "{n,m}") "?"?
    atom        = character | "." | "^" | "$" | class | escape | "(" group ")" | "(?flags)"

Theory
The expression becomes the program of a non-deterministic automaton. It runs on a name by keeping the set of all
instructions that it may have reached. Each set becomes a state of a deterministic automaton, built when it is needed
and kept. So a scan of many names soon costs one look-up per character.

Rules
1. The names are known, so a set of characters contains only characters of these names (`Alphabet`).
2. A whole name matches or it does not; groups and laziness change nothing.
3. Every cost is bounded in advance: of parsing (length, nesting, counted repetitions, `WORK_MAX`), of the program, of
   the kept states, and of matching (`STEPS_MAX`).

Different from RE2: a script beyond ASCII is recognised by the names of its characters (Greek: "GREEK ..."), and letters
fold as in `str.casefold`.

Source: RE2/J 1.8, Parser; R. Cox, "Regular Expression Matching in the Wild".
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final, NamedTuple, TypeAlias

from barnabas.common.regex.errors import (
    DUPLICATE_NAME,
    INVALID_ESCAPE,
    INVALID_NAME,
    INVALID_PERL,
    INVALID_RANGE,
    LENGTH_MAX,
    MISSING_BRACKET,
    MISSING_PAREN,
    NESTED_REPEAT,
    NOTHING_TO_REPEAT,
    REPEAT_SIZE,
    TOO_DEEP,
    TOO_LARGE,
    TOO_SLOW,
    TRAILING_BACKSLASH,
    UNOPENED,
    PatternError,
)

PROGRAM_MAX: Final = 10_000  # instructions
KNOWN_MAX: Final = 200_000  # instructions in all known steps; when there are more, all are dropped
STEPS_MAX: Final = 2_000_000  # instructions visited for all names; a known step costs none
WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
DIGITS: Final = frozenset(string.digits)
NO_CHARS: Final[frozenset[str]] = frozenset()
DEPTH_MAX: Final = 200
REPEAT_MAX: Final = 1000
REPEAT_DIGITS_MAX: Final = 4
WORK_MAX: Final = 2_000_000
CODE_POINT_MAX: Final = 0x10FFFF

_SCRIPTS: Final = frozenset({
    "Arabic", "Armenian", "Avestan", "Balinese", "Bamum", "Batak", "Bengali", "Bopomofo", "Brahmi", "Braille",
    "Buginese", "Buhid", "Canadian_Aboriginal", "Carian", "Cham", "Cherokee", "Common", "Coptic", "Cuneiform",
    "Cypriot", "Cyrillic", "Deseret", "Devanagari", "Egyptian_Hieroglyphs", "Ethiopic", "Georgian", "Glagolitic",
    "Gothic", "Greek", "Gujarati", "Gurmukhi", "Han", "Hangul", "Hanunoo", "Hebrew", "Hiragana", "Imperial_Aramaic",
    "Inherited", "Inscriptional_Pahlavi", "Inscriptional_Parthian", "Javanese", "Kaithi", "Kannada", "Katakana",
    "Kayah_Li", "Kharoshthi", "Khmer", "Lao", "Latin", "Lepcha", "Limbu", "Linear_B", "Lisu", "Lycian", "Lydian",
    "Malayalam", "Mandaic", "Meetei_Mayek", "Mongolian", "Myanmar", "New_Tai_Lue", "Nko", "Ogham", "Ol_Chiki",
    "Old_Italic", "Old_Persian", "Old_South_Arabian", "Old_Turkic", "Oriya", "Osmanya", "Phags_Pa", "Phoenician",
    "Rejang", "Runic", "Samaritan", "Saurashtra", "Shavian", "Sinhala", "Sundanese", "Syloti_Nagri", "Syriac",
    "Tagalog", "Tagbanwa", "Tai_Le", "Tai_Tham", "Tai_Viet", "Tamil", "Telugu", "Thaana", "Thai", "Tibetan",
    "Tifinagh", "Ugaritic", "Unknown", "Vai", "Yi",
})  # fmt: skip
_CATEGORIES: Final = frozenset({
    "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P",
    "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
})  # fmt: skip
_PERL = {"d": DIGITS, "s": frozenset("\t\n\f\r "), "w": WORD}
_ASCII: Final = frozenset(map(chr, range(128)))
_GRAPH: Final = frozenset(string.ascii_letters + string.digits + string.punctuation)
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ASCII,
    "blank": frozenset("\t "),
    "cntrl": _ASCII - _GRAPH - {" "},
    "digit": DIGITS,
    "graph": _GRAPH,
    "lower": frozenset(string.ascii_lowercase),
    "print": _GRAPH | {" "},
    "punct": frozenset(string.punctuation),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
#: Letters that fold into another one, but are neither its upper nor its lower case.
_ODD_FOLDS: Final = {
    "s": "\u017f", "k": "\u212a", "\u00e5": "\u212b", "\u03c9": "\u2126", "\u03bc": "\u00b5", "\u03c3": "\u03c2",
    "\u00df": "\u1e9e", "\u03b2": "\u03d0", "\u03b5": "\u03f5", "\u03b8": "\u03d1\u03f4", "\u03ba": "\u03f0",
    "\u03c0": "\u03d6", "\u03c1": "\u03f1", "\u03c6": "\u03d5", "\u1e61": "\u1e9b", "\u03b9": "\u0345\u1fbe",
}  # fmt: skip


class Alphabet:
    """The characters that occur in names, and their case variants."""

    def __init__(self, chars: Iterable[str]) -> None:
        self.chars = frozenset(chars)

    @cached_property
    def cases(self) -> dict[str, frozenset[str]]:
        """The case variants of each character, including those that occur in no name."""
        return {char: _cases(char) for char in self.chars}

    @cached_property
    def by_fold(self) -> dict[str, frozenset[str]]:
        """The characters that fold into one."""
        found: dict[str, frozenset[str]] = {}
        for char in self.chars:
            found[char.casefold()] = found.get(char.casefold(), NO_CHARS) | {char}
        return found


def _cases(char: str) -> frozenset[str]:
    """Return a character and its case variants."""
    found = {char, char.lower(), char.upper(), char.casefold(), char.casefold().upper()}
    for one in (char, char.casefold()):
        found.update(_ODD_FOLDS.get(one, ""))
    return frozenset(case for case in found if len(case) == 1 and case.casefold() == char.casefold())


TOPIC_NAMES: Final = Alphabet(string.ascii_letters + string.digits + "._-")
"""The characters of topic names."""


@dataclass(slots=True, frozen=True)
class Chars:
    """Matches one character of a set."""

    chars: frozenset[str]
    weight: ClassVar[int] = 1


@dataclass(slots=True, frozen=True)
class Assertion:
    """Matches a place: "^" the name's start, "$" its end, "m^" and "m$" a line's, "b" a word boundary, "B" none."""

    kind: str
    weight: ClassVar[int] = 1


@dataclass(slots=True, frozen=True)
class Sequence:
    """Matches its parts one after the other."""

    parts: tuple[Node, ...]
    weight: int = 1  # how many times counted repetitions in it repeat something, at most


@dataclass(slots=True, frozen=True)
class Choice:
    """Matches one of its branches."""

    branches: tuple[Node, ...]
    weight: int = 1


@dataclass(slots=True, frozen=True)
class Repeat:
    """Matches its part repeatedly; `most` None means any number of times."""

    part: Node
    least: int
    most: int | None
    weight: int = 1


Node: TypeAlias = Chars | Assertion | Sequence | Choice | Repeat


class Flags(NamedTuple):
    """The flags of RE2 that affect whether a name matches."""

    folds_case: bool = False  # (?i)
    has_lines: bool = False  # (?m): ^ and $ are also the beginnings and ends of lines
    dot_is_all: bool = False  # (?s): also the end of a line


@dataclass(slots=True)
class _Group:
    """A group that is being parsed."""

    flags: Flags  # as they were before the group
    branches: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)

    def end_branch(self) -> None:
        parts = self.parts
        self.branches.append(parts[0] if len(parts) == 1 else Sequence(tuple(parts), _heaviest(parts)))
        self.parts = []

    def node(self) -> Node:
        self.end_branch()
        branches = self.branches
        return branches[0] if len(branches) == 1 else Choice(tuple(branches), _heaviest(branches))


def _heaviest(nodes: Iterable[Node]) -> int:
    return max((node.weight for node in nodes), default=1)


def parse(text: str, alphabet: Alphabet) -> Node:
    """Parse an expression. Raises PatternError."""
    if len(text) > LENGTH_MAX:
        raise PatternError(TOO_LARGE)
    return _Parser(text, alphabet).parse()


class _Parser:
    """Parses one expression; `_at` is the position."""

    def __init__(self, text: str, alphabet: Alphabet) -> None:
        self._text = text
        self._alphabet = alphabet
        self._all = alphabet.chars
        self._line = alphabet.chars - {"\n"}
        self._work = 0  # characters put into sets so far
        self._at = 0
        self._flags = Flags()
        self._groups = [_Group(self._flags)]
        self._names: set[str] = set()
        self._was_repeat = False  # what was read last

    def parse(self) -> Node:
        while self._at < len(self._text):
            is_brace = self._peek("{")  # also one that stands for itself may not be repeated, a quirk of RE2/J
            is_repeat = self._repetition()
            if not is_repeat:
                self._atom()
            self._was_repeat = is_repeat or is_brace
        if len(self._groups) > 1:
            raise PatternError(MISSING_PAREN)
        return self._groups[0].node()

    # Cursor

    def _peek(self, prefix: str) -> bool:
        return self._text.startswith(prefix, self._at)

    def _take(self, prefix: str) -> bool:
        found = self._peek(prefix)
        self._at += len(prefix) if found else 0
        return found

    def _next(self, error: str) -> str:
        if self._at >= len(self._text):
            raise PatternError(error)
        self._at += 1
        return self._text[self._at - 1]

    # Repetitions

    def _repetition(self) -> bool:
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._text[self._at])
        is_counted = bounds is None
        if bounds is not None:
            self._at += 1
        elif self._peek("{"):
            bounds = self._counts()
        if bounds is None:
            return False
        self._take("?")
        parts = self._groups[-1].parts
        if self._was_repeat:
            raise PatternError(NESTED_REPEAT)
        if not parts:
            raise PatternError(NOTHING_TO_REPEAT)
        least, most = bounds
        weight = parts[-1].weight
        if is_counted:
            weight *= least if most is None else most
            if weight > REPEAT_MAX and max(least, most or 0) >= 2:
                raise PatternError(REPEAT_SIZE)
        parts[-1] = Repeat(parts[-1], least, most, max(weight, 1))
        return True

    def _counts(self) -> tuple[int, int | None] | None:
        """Parse {n}, {n,} or {n,m}; None if the brace is a literal one."""
        found = _COUNTS.match(self._text, self._at)
        if found is None:
            return None
        least, comma, most = found.groups()
        self._at = found.end()
        if max(len(least), len(most or "")) > REPEAT_DIGITS_MAX:
            raise PatternError(REPEAT_SIZE)
        low = int(least)
        high = (int(most) if most else None) if comma else low
        if low > REPEAT_MAX or (high is not None and not low <= high <= REPEAT_MAX):
            raise PatternError(REPEAT_SIZE)
        return low, high

    # Atoms

    def _atom(self) -> None:
        char = self._next("")
        special = _SPECIAL.get(char)
        if special is not None:
            special(self)
        else:
            self._literal(char)

    def _add(self, node: Node) -> None:
        self._groups[-1].parts.append(node)

    def _literal(self, char: str) -> None:
        self._add(Chars(self._range(ord(char), ord(char))))

    def _dot(self) -> None:
        self._add(Chars(self._all if self._flags.dot_is_all else self._line))

    def _caret(self) -> None:
        self._add(Assertion("m^" if self._flags.has_lines else "^"))

    def _dollar(self) -> None:
        self._add(Assertion("m$" if self._flags.has_lines else "$"))

    def _bar(self) -> None:
        self._groups[-1].end_branch()

    def _open(self) -> None:
        if self._take("?"):
            if self._peek("P<") or self._peek("<"):
                self._name()
            elif not self._take_flags():
                return
        else:
            self._groups.append(_Group(self._flags))
        if len(self._groups) > DEPTH_MAX:
            raise PatternError(TOO_DEEP)

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise PatternError(UNOPENED)
        group = self._groups.pop()
        self._flags = group.flags
        self._add(group.node())

    def _name(self) -> None:
        self._take("P")
        end = self._text.find(">", self._at)
        name = self._text[self._at + 1 : end]
        if end < 0 or not name or not WORD.issuperset(name):
            raise PatternError(INVALID_NAME)
        if name in self._names:
            raise PatternError(DUPLICATE_NAME)
        self._names.add(name)
        self._at = end + 1
        self._groups.append(_Group(self._flags))

    def _take_flags(self) -> bool:
        """Parse flags after "(?"; returns whether they open a group. "U" does not affect what matches."""
        flags, is_set, has_seen = self._flags, True, False
        before = self._flags
        while True:
            char = self._next(INVALID_PERL)
            if char in "imsU":
                has_seen = True
                flags = flags._replace(**{_FLAGS[char]: is_set}) if char in _FLAGS else flags
            elif char == "-" and is_set:
                is_set, has_seen = False, False
            elif char in ":)" and (is_set or has_seen):
                self._flags = flags
                if char == ":":
                    self._groups.append(_Group(before))
                return char == ":"
            else:
                raise PatternError(INVALID_PERL)

    # Characters and classes

    def _charge(self, count: int) -> None:
        self._work += count
        if self._work > WORK_MAX:
            raise PatternError(TOO_LARGE)

    def _range(self, low: int, high: int) -> frozenset[str]:
        folds_case, alphabet = self._flags.folds_case, self._alphabet
        if low == high:
            char = chr(low)
            if folds_case:
                return alphabet.by_fold.get(char.casefold(), NO_CHARS)
            return frozenset(char) if char in self._all else NO_CHARS
        self._charge(len(self._all))
        if not folds_case:
            return frozenset(char for char in self._all if low <= ord(char) <= high)
        return frozenset(
            char for char, cases in alphabet.cases.items() if any(low <= ord(case) <= high for case in cases)
        )

    def _present(self, chars: frozenset[str]) -> frozenset[str]:
        """Return the characters of a class that occur in names, in any case if case is folded."""
        self._charge(len(self._all))
        if not self._flags.folds_case:
            return chars & self._all
        return frozenset(char for char, cases in self._alphabet.cases.items() if not chars.isdisjoint(cases))

    def _other(self, chars: frozenset[str]) -> frozenset[str]:
        self._charge(len(self._all))
        return self._all - chars

    def _escape(self) -> None:
        if self._take("Q"):
            end = self._text.find("\\E", self._at)
            literal = self._text[self._at : end if end >= 0 else len(self._text)]
            self._at += len(literal) + (2 if end >= 0 else 0)
            for char in literal:
                self._literal(char)
            return
        for char, kind in _ASSERTIONS.items():
            if self._take(char):
                self._add(Assertion(kind))
                return
        chars = self._class_escape()
        if chars is None:
            code = self._escaped_code()
            chars = self._range(code, code)
        self._add(Chars(chars))

    def _class_escape(self) -> frozenset[str] | None:
        """Parse a class after a backslash, \\d or \\p{Lu}; None if there is none."""
        if self._peek("p") or self._peek("P"):
            return self._unicode_class()
        char = self._text[self._at : self._at + 1]
        group = _PERL.get(char.lower()) if char else None
        if group is None:
            return None
        self._at += 1
        chars = self._present(group)
        return self._other(chars) if char.isupper() else chars

    def _unicode_class(self) -> frozenset[str]:
        is_negative = self._next(INVALID_RANGE) == "P"
        name = self._next(INVALID_RANGE)
        if name == "{":
            end = self._text.find("}", self._at)
            if end < 0:
                raise PatternError(INVALID_RANGE)
            name, self._at = self._text[self._at : end], end + 1
        if name.startswith("^"):
            is_negative, name = not is_negative, name[1:]
        self._charge(len(self._all))
        chars = self._present(_unicode_chars(name, self._alphabet))
        return self._other(chars) if is_negative else chars

    def _escaped_code(self) -> int:
        """Parse one character after a backslash."""
        char = self._next(TRAILING_BACKSLASH)
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hexadecimal()
        is_octal = char in "1234567" and self._text[self._at : self._at + 1] in _OCTAL
        if char == "0" or is_octal:
            digits = char
            while len(digits) < 3 and self._text[self._at : self._at + 1] in _OCTAL:
                digits += self._next("")
            return int(digits, 8)
        if char.isascii() and char.isalnum():
            raise PatternError(INVALID_ESCAPE)
        return ord(char)

    def _hexadecimal(self) -> int:
        if self._take("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            digits = digits if len(digits) == 2 else ""
        if not digits or not set(digits) <= set(string.hexdigits) or int(digits, 16) > CODE_POINT_MAX:
            raise PatternError(INVALID_ESCAPE)
        return int(digits, 16)

    def _class(self) -> None:
        is_negative = self._take("^")
        chars: frozenset[str] = frozenset()
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            item = self._class_item()
            if not item <= chars:
                self._charge(len(chars))
                chars |= item
        self._add(Chars(self._other(chars) if is_negative else chars))

    def _class_item(self) -> frozenset[str]:
        if self._peek("[:"):
            end = self._text.find(":]", self._at)
            if end >= 0:
                name = self._text[self._at + 2 : end]
                self._at = end + 2
                return self._posix_class(name)
        if self._peek("\\"):
            before = self._at
            self._at += 1
            found = self._class_escape()
            if found is not None:
                return found
            self._at = before
        low = high = self._class_char()
        if self._peek("-") and not self._peek("-]"):
            self._at += 1
            high = self._class_char()
            if high < low:
                raise PatternError(INVALID_RANGE)
        return self._range(low, high)

    def _class_char(self) -> int:
        char = self._next(MISSING_BRACKET)
        return self._escaped_code() if char == "\\" else ord(char)

    def _posix_class(self, name: str) -> frozenset[str]:
        group = _POSIX.get(name.removeprefix("^"))
        if group is None:
            raise PatternError(INVALID_RANGE)
        chars = self._present(group)
        return self._other(chars) if name.startswith("^") else chars


_OCTAL = frozenset("01234567")
_COUNTS: Final = re.compile(r"\{(0|[1-9][0-9]*)(?:(,)(0|[1-9][0-9]*)?)?\}")
_FLAGS: Final = {"i": "folds_case", "m": "has_lines", "s": "dot_is_all"}
_ASSERTIONS = {"A": "^", "z": "$", "b": "b", "B": "B"}
_SPECIAL: dict[str, Callable[[_Parser], None]] = {
    ".": _Parser._dot,
    "^": _Parser._caret,
    "$": _Parser._dollar,
    "|": _Parser._bar,
    "(": _Parser._open,
    ")": _Parser._close,
    "[": _Parser._class,
    "\\": _Parser._escape,
}


def _unicode_chars(name: str, alphabet: Alphabet) -> frozenset[str]:
    """Return the characters of a Unicode category or script that occur in names, in any case."""
    chars = alphabet.chars.union(*alphabet.cases.values())
    if name == "Any":
        return chars
    if name in _CATEGORIES:
        return frozenset(char for char in chars if unicodedata.category(char).startswith(name))
    if name not in _SCRIPTS:
        raise PatternError(INVALID_RANGE)
    if name == "Common":
        return frozenset(char for char in chars if not char.isalpha())
    spelled = "CJK UNIFIED IDEOGRAPH" if name == "Han" else name.upper().replace("_", " ") + " "
    return frozenset(char for char in chars if char.isalpha() and unicodedata.name(char, "").startswith(spelled))


class Instruction(NamedTuple):
    """Takes a character of `chars` and goes to the next instruction; or, without, goes to all of `then`.

    An assertion ("^", "$", "m^", "m$", "b", "B") has to hold for that. No chars and nothing to go to: the match.
    """

    chars: frozenset[str] = NO_CHARS
    then: tuple[int, ...] = ()
    assertion: str = ""


def check_pattern(text: str) -> None:
    """Raise PatternError unless the expression is valid."""
    compile_pattern(text, TOPIC_NAMES)


def matching_names(text: str, names: Collection[str]) -> list[str]:
    """Return the names that the expression matches as a whole, in order. Raises PatternError."""
    pattern = compile_pattern(text, Alphabet({char for name in names for char in name}))
    return list(filter(pattern.matches, names))


def compile_pattern(text: str, alphabet: Alphabet) -> Pattern:
    """Compile an expression for names of these characters. Raises PatternError."""
    program: list[Instruction] = []
    try:
        _emit(program, parse(text, alphabet))
    except RecursionError:  # repetitions of repetitions nest without a parenthesis: a*(?i)*(?i)*...
        raise PatternError(TOO_DEEP) from None
    program.append(Instruction())
    return Pattern(program)


class Pattern:
    """A compiled expression. Not for several threads at once."""

    __slots__ = ("_cost", "_known", "_program", "_steps")

    def __init__(self, program: list[Instruction]) -> None:
        self._program = program
        self._steps: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._known = 0
        self._cost = 0  # instructions looked at so far

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches. Raises PatternError after too many steps for all names so far."""
        state = frozenset({0})
        before = ""
        for char in name:
            state = self._step(state, before, char)
            if not state:
                return False
            before = "a" if char in WORD else "\n" if char == "\n" else "-"  # all that assertions ask
        return len(self._program) - 1 in self._reached(state, before, "")

    def _step(self, state: frozenset[int], before: str, char: str) -> frozenset[int]:
        key = (state, before, char)
        after = self._steps.get(key)
        if after is None:
            reached = self._reached(state, before, char)
            after = frozenset(pc + 1 for pc in reached if char in self._program[pc].chars)
            if self._known > KNOWN_MAX:
                self._known = 0
                self._steps.clear()
            self._known += len(after) + 1
            self._steps[key] = after
        return after

    def _reached(self, state: frozenset[int], before: str, after: str) -> set[int]:
        """Return every instruction reachable between these characters without taking one ("" for none)."""
        reached = set(state)
        waiting = list(state)
        while waiting:
            instruction = self._program[waiting.pop()]
            if instruction.assertion and not _holds(instruction.assertion, before, after):
                continue
            for pc in instruction.then:
                if pc not in reached:
                    reached.add(pc)
                    waiting.append(pc)
        self._cost += len(reached)
        if self._cost > STEPS_MAX:
            raise PatternError(TOO_SLOW)
        return reached


LINE_ENDS: Final = frozenset({"", "\n"})


def _holds(assertion: str, before: str, after: str) -> bool:
    if assertion == "^":
        return not before
    if assertion == "$":
        return not after
    if assertion == "m^":
        return before in LINE_ENDS
    if assertion == "m$":
        return after in LINE_ENDS
    is_boundary = (before in WORD) != (after in WORD)
    return is_boundary == (assertion == "b")


def _emit(program: list[Instruction], node: Node) -> None:
    """Append the instructions of a part; what comes after it follows them."""
    if len(program) >= PROGRAM_MAX:
        raise PatternError(REPEAT_SIZE)
    if isinstance(node, Chars):
        program.append(Instruction(node.chars))
    elif isinstance(node, Assertion):
        program.append(Instruction(then=(len(program) + 1,), assertion=node.kind))
    elif isinstance(node, Sequence):
        for part in node.parts:
            _emit(program, part)
    elif isinstance(node, Choice):
        _emit_choice(program, node)
    else:
        _emit_repeat(program, node)


def _emit_choice(program: list[Instruction], node: Choice) -> None:
    start = len(program)
    program.append(Instruction())
    starts, ends = [], []
    for branch in node.branches:
        starts.append(len(program))
        _emit(program, branch)
        ends.append(len(program))
        program.append(Instruction())
    program[start] = Instruction(then=tuple(starts))
    for end in ends:
        program[end] = Instruction(then=(len(program),))


def _emit_repeat(program: list[Instruction], node: Repeat) -> None:
    for _ in range(node.least):
        before = len(program)
        _emit(program, node.part)
        if len(program) == before:
            return  # nothing, however often
    if node.most is None:
        start = len(program)
        program.append(Instruction())
        _emit(program, node.part)
        program.append(Instruction(then=(start,)))
        program[start] = Instruction(then=(start + 1, len(program)))
        return
    skips = []
    for _ in range(node.most - node.least):
        skips.append(len(program))
        program.append(Instruction())
        _emit(program, node.part)
    for skip in skips:
        program[skip] = Instruction(then=(skip + 1, len(program)))
