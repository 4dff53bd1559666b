"""ssl.principal.mapping.rules: how the distinguished name of a certificate becomes the name of a user.

Notation: rules separated by commas; the first that matches the whole name decides.
    DEFAULT                              the name itself
    RULE:pattern/replacement/            every match of the pattern replaced; $1 is a group of it
    RULE:pattern/replacement/L (or U)    the same, in lower (or upper) case

Different from Kafka: patterns are RE2's (patterns.py). A name of more than NAME_MAX characters matches no pattern.

Threads: any; immutable. Source: Kafka's SslPrincipalMapper (4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.config.errors import ConfigError
from barnabas.security.patterns import NAME_MAX, compiled, is_usable, replaced

KEY: Final = "ssl.principal.mapping.rules"
DEFAULT: Final = "DEFAULT"

_RULE: Final = "RULE:"


class _Rule(NamedTuple):
    pattern: Any  # None for DEFAULT
    replacement: str
    case: str  # "", "L" or "U"


class PrincipalMapper:
    """The parsed rules."""

    def __init__(self, rules: str = DEFAULT) -> None:
        """Parse the rules; raise ConfigError."""
        self._rules = tuple(_parse(rules.strip()))  # fixed before start

    def user_name(self, distinguished_name: str) -> str | None:
        """Return the name of the user; None if no rule matches."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished_name
            if len(distinguished_name) <= NAME_MAX and rule.pattern.fullmatch(distinguished_name):
                name = replaced(rule.pattern, rule.replacement, distinguished_name)
                return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        return None


def _parse(text: str) -> Iterator[_Rule]:
    at = 0
    while at < len(text):
        start = at
        if text[at] == ",":  # as in Kafka, an empty rule is none
            at += 1
            continue
        if text[at].isspace():
            at += 1
            continue
        if text.startswith(DEFAULT, at):
            at += len(DEFAULT)
            rule = _Rule(None, "", "")
        elif text.startswith(_RULE, at):
            pattern, at = _until_slash(text, at + len(_RULE), start)
            replacement, at = _until_slash(text, at, start)
            case = text[at] if text[at : at + 1] in ("L", "U") else ""
            at += len(case)
            rule = _Rule(compiled(KEY, pattern), replacement, case)
            if not is_usable(replacement, rule.pattern.groups):
                raise _invalid(text, start)
        else:
            raise _invalid(text, start)
        rest = text[at:].lstrip()
        if rest and rest[0] != ",":
            raise _invalid(text, start)
        yield rule


def _until_slash(text: str, at: int, start: int) -> tuple[str, int]:
    """Return the text up to the next slash without a backslash before it, and where it goes on."""
    begin = at
    while at < len(text) and text[at] != "/":
        at += 2 if text[at] == "\\" else 1
    if at >= len(text):
        raise _invalid(text, start)
    return text[begin:at], at + 1


def _invalid(text: str, start: int) -> ConfigError:
    return ConfigError(f"{KEY}: invalid rule {text[start:]!r}: expected DEFAULT or RULE:pattern/replacement/[LU]")
