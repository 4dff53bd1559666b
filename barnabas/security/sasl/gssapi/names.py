r"""sasl.kerberos.principal.to.local.rules: how a Kerberos principal becomes the name of a user.

A principal is `service@REALM` or `service/host@REALM`. The first rule that applies decides:
    DEFAULT                                the service, if the realm is the default realm
    RULE:[n:format](match)s/from/to/g/L    for principals with n components: 1, or 2 with a host. In `format`, $0 is
                                           the realm, $1 and $2 the components. If `match` matches all of the result,
                                           `from` is replaced by `to` once, or everywhere with `g`; L and U change the
                                           case

Everything after `]` is optional. A result with a slash or an at sign fails the login, as in Kafka.

Different from Kafka: patterns are RE2's (patterns.py), and a rule that would fail a login, such as $3 in a format for
two components, is refused at start. A principal of more than NAME_MAX characters is refused.

Threads: any; immutable. Source: KerberosName, KerberosRule, KerberosShortNamer (Kafka 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from barnabas.config.errors import ConfigError
from barnabas.security.patterns import NAME_MAX, compiled, replaced

KEY: Final = "sasl.kerberos.principal.to.local.rules"
DEFAULT: Final = "DEFAULT"

_RULE: Final = re.compile(
    r"RULE:\[(?P<count>[0-9]{1,9}):(?P<format>[^\]]*)\]"
    r"(?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<source>[^/]*)/(?P<target>[^/]*)/(?P<all>g)?)?"
    r"/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$([0-9]*)")
_ESCAPED: Final = re.compile(r"\\[\s\S]")


class KerberosNameError(ValueError):
    """A principal has no user name: it is malformed, or no rule applies."""


class KerberosName(NamedTuple):
    """A principal in its parts."""

    service: str
    host: str | None
    realm: str | None


def parse_name(text: str) -> KerberosName:
    """Split a principal; raises KerberosNameError. A text without a realm is a service, whatever it has."""
    names, at, realm = text.partition("@")
    if not at:
        return KerberosName(text, None, None)
    service, slash, host = names.partition("/")
    if "/" in host or "/" in realm or "@" in realm:
        raise KerberosNameError(f"Malformed Kerberos name: {text}")
    return KerberosName(service, host if slash else None, realm)


class _Rule(NamedTuple):
    """A rule with RULE; DEFAULT is None."""

    components: int
    format: tuple[str | int, ...]  # texts, and numbers of parameters
    match: Any  # a pattern, None: everything
    source: Any  # a pattern, None: nothing is replaced
    target: str
    is_first_only: bool
    case: str  # "", "L" or "U"

    def apply(self, parameters: Sequence[str]) -> str | None:
        """Return the name; None if the rule does not apply. `parameters` are the realm and the components."""
        if len(parameters) - 1 != self.components:
            return None
        name = "".join(parameters[part] if isinstance(part, int) else part for part in self.format)
        if len(name) > NAME_MAX:
            raise KerberosNameError(f"a rule makes a name of more than {NAME_MAX} characters")
        if self.match is not None and not self.match.fullmatch(name):
            return None
        if self.source is not None:
            name = replaced(self.source, self.target, name, is_first_only=self.is_first_only)
        return name


class ShortNamer:
    """The parsed rules. `default_realm` is the realm of DEFAULT; "" if the machine has none."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Parse the rules; raise ConfigError."""
        self._rules = tuple(_parse(rule) for rule in rules)  # fixed before start
        self._default_realm = default_realm  # fixed before start

    def short_name(self, principal: str) -> str:
        """Return the name of the user; raises KerberosNameError."""
        if len(principal) > NAME_MAX:
            raise KerberosNameError(f"a principal of {len(principal)} characters is too long")
        name = parse_name(principal)
        if name.realm is None:
            return name.service
        parameters = [name.realm, name.service, *([] if name.host is None else [name.host])]
        for rule in self._rules:
            if rule is None:
                found = name.service if name.realm == self._default_realm else None
            else:
                found = rule.apply(parameters)
            if found is None:
                continue
            if "/" in found or "@" in found:
                raise KerberosNameError(f"a rule of {KEY} makes {found}, which is not simple, of {principal}")
            return _in_case(found, "" if rule is None else rule.case)
        raise KerberosNameError(f"no rule of {KEY} applies to {principal}")


def _parse(text: str) -> _Rule | None:
    if text == DEFAULT:
        return None
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{KEY}: invalid rule {text!r}: expected DEFAULT or RULE:[n:format](match)s/from/to/g/L")
    count = int(found["count"])
    match = None if found["match"] is None else compiled(KEY, found["match"])
    source = None if found["source"] is None else compiled(KEY, found["source"])
    target = found["target"] or ""
    if source is not None and not _is_usable(target, source.groups):
        raise ConfigError(f"{KEY}: invalid rule {text!r}: {target!r} names a group that {found['source']!r} has not")
    return _Rule(
        count, _format(text, found["format"], count), match, source, target, not found["all"], found["case"] or ""
    )


def _format(rule: str, text: str, count: int) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    end = 0
    for found in _PARAMETER.finditer(text):
        number = int(found[1]) if 0 < len(found[1]) < 10 else -1
        if not 0 <= number <= count:
            raise ConfigError(f"{KEY}: invalid rule {rule!r}: {found[0]} is not one of $0 to ${count}")
        parts += [text[end : found.start()], number]
        end = found.end()
    return (*parts, text[end:])


def _is_usable(replacement: str, groups: int) -> bool:
    """Return whether Java can use a replacement for every match: backslashes escape, dollars name groups."""
    rest = _ESCAPED.sub("", replacement)
    numbers = [rest[at + 1 : at + 2] for at, character in enumerate(rest) if character == "$"]
    return "\\" not in rest and all(digit in "0123456789" and digit and int(digit) <= groups for digit in numbers)


def _in_case(name: str, case: str) -> str:
    return name.lower() if case == "L" else name.upper() if case == "U" else name
