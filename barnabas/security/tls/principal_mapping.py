"""ssl.principal.mapping.rules: how the distinguished name of a certificate becomes the name of a user.

Notation: rules separated by commas; the first that matches the whole name decides.
    DEFAULT                              the name itself
    RULE:pattern/replacement/            every match of the pattern replaced; $1 is a group of it
    RULE:pattern/replacement/L (or U)    the same, in lower (or upper) case

Different from Kafka: patterns are RE2's, which has neither look-around nor back-references in a pattern, and needs no
more time for a bad name than for a good one. A name of more than NAME_MAX characters matches no pattern: the time to
replace many matches grows with its square.

Threads: any; immutable. Source: Kafka's SslPrincipalMapper (4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.common.threads import HAS_GLOBAL_LOCK
from barnabas.config.errors import ConfigError

KEY: Final = "ssl.principal.mapping.rules"
DEFAULT: Final = "DEFAULT"
NAME_MAX: Final = 4096

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
                name = _replaced(rule, distinguished_name)
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
            rule = _Rule(_compiled(pattern), replacement, case)
            if not _is_usable(replacement, rule.pattern.groups):
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


def _is_usable(replacement: str, groups: int) -> bool:
    """Return whether Java can use a replacement: each dollar names a group, or is escaped by a backslash."""
    at = 0
    while at < len(replacement):
        if replacement[at] == "\\":
            at += 2
            continue
        following = replacement[at + 1 : at + 2]
        if replacement[at] == "$" and not (following.isdecimal() and (groups or following == "0")):
            return False
        at += 1
    return True


def _compiled(pattern: str) -> Any:
    if not HAS_GLOBAL_LOCK:  # importing it would turn the lock on
        raise ConfigError(f"{KEY}: patterns need google-re2, which a free-threaded interpreter cannot use")
    import re2  # Why here: hardly any start needs it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ConfigError(f"{KEY}: invalid pattern {pattern!r}: {reason}") from error


def _invalid(text: str, start: int) -> ConfigError:
    return ConfigError(f"{KEY}: invalid rule {text[start:]!r}: expected DEFAULT or RULE:pattern/replacement/[LU]")


def _replaced(rule: _Rule, name: str) -> str:
    """Replace every match, as Java's String.replaceAll: an empty match may follow another one directly."""
    parts = []
    at = copied = 0
    while at <= len(name):
        match = rule.pattern.search(name, at)
        if match is None:
            break
        begin, end = match.span()
        parts += [name[copied:begin], _expanded(rule.replacement, match, rule.pattern.groups)]
        copied = end
        at = end + 1 if begin == end else end
    return "".join([*parts, name[copied:]])


def _expanded(replacement: str, match: Any, groups: int) -> str:
    """Replace $n by the group, and a backslash with the character after it by that character."""
    parts = []
    at = 0
    while at < len(replacement):
        character = replacement[at]
        at += 1
        if character == "\\" and at < len(replacement):
            parts.append(replacement[at])
            at += 1
        elif character == "$" and replacement[at : at + 1].isdecimal() and int(replacement[at]) <= groups:
            end = at + 1
            while replacement[end : end + 1].isdecimal() and int(replacement[at : end + 1]) <= groups:
                end += 1
            parts.append(match.group(int(replacement[at:end])) or "")
            at = end
        else:
            parts.append(character)
    return "".join(parts)
