"""Reads RE2's syntax into a tree; `re2.py` makes an automaton of it.

Grammar
    expression  = branch ("|" branch)*
    branch      = (atom repetition?)*
    repetition  = ("*" | "+" | "?" | "{n}" | "{n,}" | "{n,m}") "?"?
    atom        = character | "." | "^" | "$" | class | escape | "(" group ")" | "(?flags)"

Rules
1. A set of characters is a set of those that names of topics may have (`ALPHABET`).
2. Errors have RE2/J's words.

Source: RE2/J 1.8, Parser.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
DIGITS: Final = frozenset(string.digits)
DEPTH_MAX: Final = 200
REPEAT_MAX: Final = 1000
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
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": frozenset(),
    "cntrl": frozenset(),
    "digit": DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": ALPHABET & frozenset(string.punctuation),
    "space": frozenset(),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_FOLDED = {0x17F: "sS", 0x212A: "kK"}  # letters beyond ASCII that fold into it


class RegexError(ValueError):
    """Not an expression of RE2; the text says why."""


@dataclass(slots=True, frozen=True)
class Chars:
    """One character of a set."""

    chars: frozenset[str]


@dataclass(slots=True, frozen=True)
class Assertion:
    """A place: "^" the name's beginning, "$" its end, "b" a word's boundary, "B" none."""

    kind: str


@dataclass(slots=True, frozen=True)
class Sequence:
    """One after the other."""

    parts: tuple[Node, ...]


@dataclass(slots=True, frozen=True)
class Choice:
    """One of these."""

    branches: tuple[Node, ...]


@dataclass(slots=True, frozen=True)
class Repeat:
    """So many times; `most` None: any number."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = Chars | Assertion | Sequence | Choice | Repeat


@dataclass(slots=True)
class _Group:
    """A group being read."""

    folds_case: bool  # as it was before the group
    branches: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)

    def end_branch(self) -> None:
        self.branches.append(self.parts[0] if len(self.parts) == 1 else Sequence(tuple(self.parts)))
        self.parts = []

    def node(self) -> Node:
        self.end_branch()
        return self.branches[0] if len(self.branches) == 1 else Choice(tuple(self.branches))


def parse(text: str) -> Node:
    """Read an expression. Raises RegexError."""
    return _Parser(text).parse()


class _Parser:
    """Reads one expression; `_at` is how far it has come."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._folds_case = False
        self._groups = [_Group(folds_case=False)]
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
        parts[-1] = Repeat(parts[-1], *bounds)
        return True

    def _counts(self) -> tuple[int, int | None] | None:
        """Read {n}, {n,} or {n,m}; None if it is not that, so that the brace stands for itself."""
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_count(least) or not (not most or _is_count(most)):
            return None
        self._at = end + 1
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
        self._add(Chars(ALPHABET))

    def _caret(self) -> None:
        self._add(Assertion("^"))

    def _dollar(self) -> None:
        self._add(Assertion("$"))

    def _bar(self) -> None:
        self._groups[-1].end_branch()

    def _open(self) -> None:
        if self._take("?"):
            if self._peek("P<") or self._peek("<"):
                self._name()
            elif not self._flags():
                return
        else:
            self._groups.append(_Group(self._folds_case))
        if len(self._groups) > DEPTH_MAX:
            raise RegexError(TOO_DEEP)

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise RegexError(UNOPENED)
        group = self._groups.pop()
        self._folds_case = group.folds_case
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
        self._groups.append(_Group(self._folds_case))

    def _flags(self) -> bool:
        """Read flags after "(?"; tells whether they open a group. Of them only "i" makes a difference to names."""
        folds_case, is_set, has_seen = self._folds_case, True, False
        before = self._folds_case
        while True:
            char = self._next(INVALID_PERL)
            if char in "imsU":
                has_seen = True
                folds_case = is_set if char == "i" else folds_case
            elif char == "-" and is_set:
                is_set, has_seen = False, False
            elif char in ":)" and (is_set or has_seen):
                self._folds_case = folds_case
                if char == ":":
                    self._groups.append(_Group(before))
                return char == ":"
            else:
                raise RegexError(INVALID_PERL)

    # Characters and classes

    def _range(self, low: int, high: int) -> frozenset[str]:
        chars = frozenset(char for char in ALPHABET if low <= ord(char) <= high)
        if not self._folds_case:
            return chars
        beyond = (char for code, folded in _FOLDED.items() if low <= code <= high for char in folded)
        return self._folded(chars.union(beyond))

    def _folded(self, chars: frozenset[str]) -> frozenset[str]:
        return chars.union(char.swapcase() for char in chars) if self._folds_case else chars

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
        chars = self._folded(group & ALPHABET)
        return ALPHABET - chars if char.isupper() else chars

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
        chars = self._folded(_unicode_chars(name))
        return ALPHABET - chars if is_negative else chars

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
            chars |= self._class_item()
        self._add(Chars(ALPHABET - chars if is_negative else chars))

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
        chars = self._folded(group)
        return ALPHABET - chars if name.startswith("^") else chars


_OCTAL = frozenset("01234567")
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


def _is_count(text: str) -> bool:
    return bool(text) and DIGITS.issuperset(text) and (text == "0" or not text.startswith("0"))


def _unicode_chars(name: str) -> frozenset[str]:
    """The characters of a Unicode category or script that names may have."""
    if name == "Any":
        return ALPHABET
    if name in _CATEGORIES:
        return frozenset(char for char in ALPHABET if unicodedata.category(char).startswith(name))
    if name not in _SCRIPTS:
        raise RegexError(INVALID_RANGE)
    return {"Latin": _POSIX["alpha"], "Common": ALPHABET - _POSIX["alpha"]}.get(name, frozenset())
