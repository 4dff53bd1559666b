"""Variables in settings: `${provider:path:key}`, replaced by what the provider reads.

Rules
1. A value may hold several variables, and text around them. What a provider returns is not searched again.
2. A variable of a provider that `config.providers` names must have a value; an error names the setting, the variable
   and the reason, never a value.
3. `${...}` with another name stays as it is, as in Kafka, and is warned of: it may belong to the value.
4. The settings of the providers themselves are not replaced.

Threads: any.
Source: KIP-297, ConfigTransformer, AbstractConfig.resolveConfigVariables (Kafka 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.config.secrets.providers import ConfigProvider

PROVIDERS_KEY: Final = "config.providers"
# Provider, path (may be absent) and key. Compiled at its first use, not at the start.
_VARIABLE: Final = r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}"


class Resolved(NamedTuple):
    """Properties without variables.

    `replaced` are the keys whose values came from a provider, `files` what was read, with the keys it gave, and
    `warnings` lines about variables that stay (rule 3).
    """

    properties: dict[str, str]
    replaced: frozenset[str] = frozenset()
    files: Mapping[Path, tuple[str, ...]] = {}
    warnings: tuple[str, ...] = ()


def resolve(properties: Mapping[str, str], environment: Mapping[str, str]) -> Resolved:
    """Replace the variables in all values. Raises ConfigError (rule 2)."""
    if not any("${" in value for value in properties.values()) and PROVIDERS_KEY not in properties:
        return Resolved(dict(properties))
    from barnabas.config.secrets.providers import make_providers  # Why here: most files have no variables

    replacer = _Replacer(make_providers(properties, environment))
    texts = {
        name: text if name.startswith(PROVIDERS_KEY) or "${" not in text else replacer.replace(name, text)
        for name, text in properties.items()
    }
    files = {file: tuple(sorted(keys)) for file, keys in replacer.files.items()}
    return Resolved(texts, frozenset(replacer.replaced), files, tuple(replacer.warnings()))


def has_variable(text: str) -> bool:
    """Whether a value has the form of a variable somewhere."""
    return re.search(_VARIABLE, text) is not None


class _Replacer:
    """Replaces variables and notes where the values come from."""

    def __init__(self, providers: Mapping[str, ConfigProvider]) -> None:
        self._providers = providers
        self.replaced: set[str] = set()
        self.files: dict[Path, set[str]] = {}
        self._left: dict[str, set[str]] = {}  # provider -> keys

    def replace(self, name: str, text: str) -> str:
        """Return the value of a key without variables."""

        def value(match: re.Match[str]) -> str:
            provider = self._providers.get(match[1])
            if provider is None:
                self._left.setdefault(match[1], set()).add(name)
                return match[0]
            try:
                found = provider.get(match[2] or "", match[3])
            except ConfigError as error:
                raise ConfigError(f"{name}: {match[0]} cannot be resolved: {error}") from error
            self.replaced.add(name)
            if found.file is not None:
                self.files.setdefault(found.file, set()).add(name)
            return found.value

        return re.sub(_VARIABLE, value, text)

    def warnings(self) -> Iterator[str]:
        """Yield a line for each name that is not a provider's."""
        for provider, keys in sorted(self._left.items()):
            shown = provider if provider.isprintable() else ascii(provider)
            yield f"{', '.join(sorted(keys))}: ${{{shown}:...}} is not replaced, {PROVIDERS_KEY} has no {shown!r}"
