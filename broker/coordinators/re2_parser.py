"""Reads RE2's syntax into a tree; `re2.py` makes an automaton of it.

Grammar
    expression  = branch ("|" branch)*
    branch      = (atom repetition?)*
    repetition  = ("*" | "+" | "?" | "{n}" | "{n,}" | "{n,m}") "?"?
    atom        = character | "." | "^" | "$" | class | escape | "(" group ")" | "(?flags)"

Rules
1. A set of characters is a set of those that the names to be matched have: an `Alphabet`, given beforehand.
2. Errors have RE2/J's words.
3. What reading costs is bounded: the text's length, how deep it nests, how often counted repetitions multiply, and how
   many characters are put into sets (`WORK_MAX`).

Different from RE2/J: beyond ASCII a script is told by the names of its characters (Greek: "GREEK ..."), and letters
fold as `str.casefold` says.

Source: RE2/J 1.8, Parser.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final, NamedTuple, TypeAlias

WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
DIGITS: Final = frozenset(string.digits)
NO_CHARS: Final[frozenset[str]] = frozenset()
DEPTH_MAX: Final = 200
REPEAT_MAX: Final = 1000
REPEAT_DIGITS_MAX: Final = 4
LENGTH_MAX: Final = 32_767  # what a string of the protocol may have
WORK_MAX: Final = 2_000_000
CODE_POINT_MAX: Final = 0x10FFFF

MISSING_PAREN = "missing closing )"
MISSING_BRACKET = "missing closing ]"
INVALID_RANGE = "invalid character class range"
INVALID_ESCAPE = "invalid escape sequence"
INVALID_NAME = "invalid named capture"
INVALID_PERL = "invalid or unsupported Perl syntax"
NESTED_REPEAT = "invalid nested repetition operator"
REPEAT_SIZE = "invalid repeat count"
NOTHING_TO_REPEAT = "missing argument to repetition operator"
TRAILING_BACKSLASH = "trailing backslash at end of expression"
DUPLICATE_NAME = "duplicate capture group name"
UNOPENED = "regexp/syntax: internal error"  # what RE2/J says of a ")" too many
TOO_DEEP = "expression nests too deeply"
TOO_LARGE = "expression is too large"

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


class RegexError(ValueError):
    """Not an expression of RE2; the text says why."""


class Alphabet:
    """The characters that names may have, and which of them are alike but for their case."""

    def __init__(self, chars: Iterable[str]) -> None:
        self.chars = frozenset(chars)

    @cached_property
    def cases(self) -> dict[str, frozenset[str]]:
        """The cases of each character, also those that no name has."""
        return {char: _cases(char) for char in self.chars}

    @cached_property
    def by_fold(self) -> dict[str, frozenset[str]]:
        """The characters that fold into one."""
        found: dict[str, frozenset[str]] = {}
        for char in self.chars:
            found[char.casefold()] = found.get(char.casefold(), NO_CHARS) | {char}
        return found


def _cases(char: str) -> frozenset[str]:
    """A character with those that differ from it in case only."""
    found = {char, char.lower(), char.upper(), char.casefold(), char.casefold().upper()}
    for one in (char, char.casefold()):
        found.update(_ODD_FOLDS.get(one, ""))
    return frozenset(case for case in found if len(case) == 1 and case.casefold() == char.casefold())


TOPIC_NAMES: Final = Alphabet(string.ascii_letters + string.digits + "._-")
"""What names of topics may have."""


@dataclass(slots=True, frozen=True)
class Chars:
    """One character of a set."""

    chars: frozenset[str]
    weight: ClassVar[int] = 1


@dataclass(slots=True, frozen=True)
class Assertion:
    """A place: "^" the name's beginning, "$" its end, "m^" and "m$" a line's, "b" a word's boundary, "B" none."""

    kind: str
    weight: ClassVar[int] = 1


@dataclass(slots=True, frozen=True)
class Sequence:
    """One after the other."""

    parts: tuple[Node, ...]
    weight: int = 1  # how many times counted repetitions in it repeat something, at most


@dataclass(slots=True, frozen=True)
class Choice:
    """One of these."""

    branches: tuple[Node, ...]
    weight: int = 1


@dataclass(slots=True, frozen=True)
class Repeat:
    """So many times; `most` None: any number."""

    part: Node
    least: int
    most: int | None
    weight: int = 1


Node: TypeAlias = Chars | Assertion | Sequence | Choice | Repeat


class Flags(NamedTuple):
    """Of the flags of RE2 those that make a difference to whether a name matches."""

    folds_case: bool = False  # (?i)
    has_lines: bool = False  # (?m): ^ and $ are also the beginnings and ends of lines
    dot_is_all: bool = False  # (?s): also the end of a line


@dataclass(slots=True)
class _Group:
    """A group being read."""

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


def parse(text: str, alphabet: Alphabet = TOPIC_NAMES) -> Node:
    """Read an expression. Raises RegexError."""
    if len(text) > LENGTH_MAX:
        raise RegexError(TOO_LARGE)
    return _Parser(text, alphabet).parse()


class _Parser:
    """Reads one expression; `_at` is how far it has come."""

    def __init__(self, text: str, alphabet: Alphabet) -> None:
        self._text = text
        self._alphabet = alphabet
        self._all = alphabet.chars
        self._line = alphabet.chars - {"\n"}
        self._work = 0  # characters put into sets
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
            raise RegexError(MISSING_PAREN)
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
            raise RegexError(error)
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
            raise RegexError(NESTED_REPEAT)
        if not parts:
            raise RegexError(NOTHING_TO_REPEAT)
        least, most = bounds
        weight = parts[-1].weight
        if is_counted:
            weight *= least if most is None else most
            if weight > REPEAT_MAX and max(least, most or 0) >= 2:
                raise RegexError(REPEAT_SIZE)
        parts[-1] = Repeat(parts[-1], least, most, max(weight, 1))
        return True

    def _counts(self) -> tuple[int, int | None] | None:
        """Read {n}, {n,} or {n,m}; None if it is not that, so that the brace stands for itself."""
        found = _COUNTS.match(self._text, self._at)
        if found is None:
            return None
        least, comma, most = found.groups()
        self._at = found.end()
        if max(len(least), len(most or "")) > REPEAT_DIGITS_MAX:
            raise RegexError(REPEAT_SIZE)
        low = int(least)
        high = (int(most) if most else None) if comma else low
        if low > REPEAT_MAX or (high is not None and not low <= high <= REPEAT_MAX):
            raise RegexError(REPEAT_SIZE)
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
            raise RegexError(TOO_DEEP)

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise RegexError(UNOPENED)
        group = self._groups.pop()
        self._flags = group.flags
        self._add(group.node())

    def _name(self) -> None:
        self._take("P")
        end = self._text.find(">", self._at)
        name = self._text[self._at + 1 : end]
        if end < 0 or not name or not WORD.issuperset(name):
            raise RegexError(INVALID_NAME)
        if name in self._names:
            raise RegexError(DUPLICATE_NAME)
        self._names.add(name)
        self._at = end + 1
        self._groups.append(_Group(self._flags))

    def _take_flags(self) -> bool:
        """Read flags after "(?"; tells whether they open a group. "U" makes no difference to what matches."""
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
                raise RegexError(INVALID_PERL)

    # Characters and classes

    def _charge(self, count: int) -> None:
        self._work += count
        if self._work > WORK_MAX:
            raise RegexError(TOO_LARGE)

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
        """Those characters of a class that names have, in any case if case is folded."""
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
        """Read what follows a backslash as a class, \\d or \\p{Lu}; None if it is none."""
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
                raise RegexError(INVALID_RANGE)
            name, self._at = self._text[self._at : end], end + 1
        if name.startswith("^"):
            is_negative, name = not is_negative, name[1:]
        self._charge(len(self._all))
        chars = self._present(_unicode_chars(name, self._alphabet))
        return self._other(chars) if is_negative else chars

    def _escaped_code(self) -> int:
        """Read what follows a backslash as one character."""
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
            raise RegexError(INVALID_ESCAPE)
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
            raise RegexError(INVALID_ESCAPE)
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
                raise RegexError(INVALID_RANGE)
        return self._range(low, high)

    def _class_char(self) -> int:
        char = self._next(MISSING_BRACKET)
        return self._escaped_code() if char == "\\" else ord(char)

    def _posix_class(self, name: str) -> frozenset[str]:
        group = _POSIX.get(name.removeprefix("^"))
        if group is None:
            raise RegexError(INVALID_RANGE)
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
    """The characters of a Unicode category or script that names may have, in any case."""
    chars = alphabet.chars.union(*alphabet.cases.values())
    if name == "Any":
        return chars
    if name in _CATEGORIES:
        return frozenset(char for char in chars if unicodedata.category(char).startswith(name))
    if name not in _SCRIPTS:
        raise RegexError(INVALID_RANGE)
    if name == "Common":
        return frozenset(char for char in chars if not char.isalpha())
    spelled = "CJK UNIFIED IDEOGRAPH" if name == "Han" else name.upper().replace("_", " ") + " "
    return frozenset(char for char in chars if char.isalpha() and unicodedata.name(char, "").startswith(spelled))
