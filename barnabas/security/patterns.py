"""Patterns of the rules that turn names of certificates and of Kerberos into users, and replacement as Java does it.

Rules
1. Patterns are RE2's. It has neither look-around nor back-references in a pattern, and needs no more time for a bad
   name than for a good one.
2. The time to replace many matches grows with the square of a name's length, so callers refuse names of more than
   NAME_MAX characters.
3. In a replacement, `$1` is a group of the pattern, `$0` the match, and a backslash escapes the next character.

Threads: any; a compiled pattern is immutable. Source: java.util.regex.Matcher.replaceAll and replaceFirst.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.common.threads import HAS_GLOBAL_LOCK
from barnabas.config.errors import ConfigError

NAME_MAX: Final = 4096


def compiled(key: str, pattern: str) -> Any:
    """Return RE2's pattern; raises ConfigError, with the key that has it."""
    if not HAS_GLOBAL_LOCK:  # importing it would turn the lock on
        raise ConfigError(f"{key}: patterns need google-re2, which a free-threaded interpreter cannot use")
    import re2  # Why here: hardly any start needs it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ConfigError(f"{key}: invalid pattern {pattern!r}: {reason}") from error


def is_usable(replacement: str, groups: int) -> bool:
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


def replaced(pattern: Any, replacement: str, name: str, *, is_first_only: bool = False) -> str:
    """Replace every match, as Java's Matcher.replaceAll: an empty match may follow another one directly.

    `is_first_only`: replace only the first match, as replaceFirst.
    """
    parts = []
    at = copied = 0
    while at <= len(name):
        match = pattern.search(name, at)
        if match is None:
            break
        begin, end = match.span()
        parts += [name[copied:begin], _expanded(replacement, match, pattern.groups)]
        copied = end
        at = end + 1 if begin == end else end
        if is_first_only:
            break
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
