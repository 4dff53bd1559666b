"""JAAS notation: `module flag option="value" ...;`, the format of sasl.jaas.config.

Rules
1. A word consists of letters, digits, `-`, `_`, `.` and `$`; anything else needs quotes, single or double, in which
   `\\` escapes. A word that begins as a number does is a number, which is no value.
2. `// …`, `/* … */` and `/ …` are comments.
3. An error names the key, never a value. A word without `=` may be the rest of a value that lacks its quotes, so an
   error names the key before it.

Source: JaasConfig (Kafka 4.3), which reads with java.io.StreamTokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
#: Modules that look up names in a directory service on behalf of whoever wrote the text; as Kafka refuses them.
DISALLOWED: Final = (
    "com.sun.security.auth.module.JndiLoginModule",
    "com.sun.security.auth.module.LdapLoginModule",
)

_SPACE_OR_COMMENT: Final = re.compile(r"(?:[\x00-\x20]+|//[^\r\n]*|/\*[\s\S]*?(?:\*/|\Z)|/[^\r\n]*)+")
_WORD: Final = re.compile(r"[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_$.\-\u00a0-\U0010ffff]*")
_NUMBER: Final = re.compile(r"[0-9.\-]+")
_ESCAPES: Final = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL: Final = re.compile(r"[0-3][0-7]{1,2}|[0-7]{1,2}")


class JaasError(ValueError):
    """The text is not in JAAS notation."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry: a login module and its options, which may be secrets."""

    name: str
    flag: str
    options: Mapping[str, str] = field(repr=False)


class _Token(NamedTuple):
    text: str | None  # of a word or a quoted text; None for numbers and punctuation
    symbol: str = ""


def parse_jaas(text: str) -> LoginModule:
    """Return the one entry of a text; raises JaasError."""
    modules = _modules(text)
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    if len(modules) != 1:
        raise JaasError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    if modules[0].name.strip() in DISALLOWED:
        raise JaasError(f"{modules[0].name.strip()} is not allowed")
    return modules[0]


def _modules(text: str) -> list[LoginModule]:
    tokens = _tokens(text)
    return [_module(token, tokens) for token in tokens]


def _module(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    if first.text is None:
        raise JaasError("Login module not specified in JAAS config")
    flag = next(tokens, None)
    if flag is None:
        raise JaasError("Login module control flag not specified in JAAS config")
    if flag.text is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    if flag.text.upper() not in FLAGS:
        raise JaasError(f"Invalid login module control flag '{flag.text}' in JAAS config")
    options: dict[str, str] = {}
    for key in tokens:
        if key.symbol == ";":
            return LoginModule(first.text, flag.text.upper(), options)
        equals, value = next(tokens, None), next(tokens, None)
        if equals is None or equals.symbol != "=" or value is None or value.text is None or key.text is None:
            is_key = not options or (equals is not None and equals.symbol == "=")
            what = f"for key '{key.text}'" if is_key else f"for what follows key '{next(reversed(options))}'"
            raise JaasError(f"Value not specified {what} in JAAS config")
        options[key.text] = value.text
    raise JaasError("JAAS config entry not terminated by semi-colon")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while True:
        skipped = _SPACE_OR_COMMENT.match(text, position)
        if skipped is not None:
            position = skipped.end()
        if position >= len(text):
            return
        char = text[position]
        if char in "\"'":
            quoted, position = _quoted(text, position)
            yield _Token(quoted)
        elif (word := _WORD.match(text, position)) is not None:
            position = word.end()
            yield _Token(word[0])
        elif (number := _NUMBER.match(text, position)) is not None:
            position = number.end()
            yield _Token(None)
        else:
            position += 1
            yield _Token(None, char)


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Return the text between the quotes at `start`, and where it ends: at its quote, a line's end or the last one."""
    quote, position = text[start], start + 1
    parts: list[str] = []
    while position < len(text) and text[position] not in (quote, "\n", "\r"):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            octal = _OCTAL.match(text, position)
            if octal is not None:
                char, position = chr(int(octal[0], 8)), octal.end()
            else:
                char = _ESCAPES.get(text[position], text[position])
                position += 1
        parts.append(char)
    if position < len(text) and text[position] == quote:
        position += 1
    return "".join(parts), position
