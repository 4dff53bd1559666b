"""The config providers: places that hold the values of settings, so that a properties file needs no secret.

    class                     what a variable reads
    FileConfigProvider        `${name:/path/to.properties:key}`: a key of a properties file
    DirectoryConfigProvider   `${name:/path/to/directory:file}`: the content of a file, such as a mounted secret
    EnvVarConfigProvider      `${name:VARIABLE}`: an environment variable

`param.allowed.paths` restricts the first two to some files and directories, `param.allowlist.pattern` the third to
variables whose whole name matches. The classes are Kafka's, in `org.apache.kafka.common.config.provider`; they are
recognized by name, and no others can be loaded.

Differences from Kafka: a value that a provider does not have is an error. Kafka keeps the text of the variable, which
then is the password.

Threads: any; a provider keeps no state.
Source: KIP-297, KIP-421, KIP-887, KIP-993; the classes above (Kafka 4.3).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from barnabas.config.errors import ConfigError
from barnabas.config.properties import parse_properties
from barnabas.config.types import invalid

PACKAGE: Final = "org.apache.kafka.common.config.provider"
ALLOWED_PATHS: Final = "allowed.paths"
ALLOWLIST_PATTERN: Final = "allowlist.pattern"


class Found(NamedTuple):
    """The value of a variable, and the file that holds it."""

    value: str
    file: Path | None = None


class ConfigProvider(Protocol):
    """A place that holds values."""

    def get(self, path: str, key: str) -> Found:
        """Return the value of a key; `path` is "" in a variable without one. Raises ConfigError with the reason."""


class AllowedPaths:
    """The files and directories that a provider may read; all of them if the setting is absent or empty."""

    def __init__(self, text: str) -> None:
        self._roots = [self._root(part) for part in text.split(",")] if text else None

    @staticmethod
    def _root(text: str) -> str:
        path = os.path.normpath(text.strip())
        if not os.path.isabs(path):
            raise ConfigError(f"Path {path} is not absolute")
        if not os.path.exists(path):
            raise ConfigError(f"Path {path} does not exist")
        return path

    def check(self, text: str) -> Path:
        """Return a path that may be read. Raises ConfigError."""
        path = os.path.normpath(text)
        if self._roots is not None and not any(_is_below(path, root) for root in self._roots):
            raise ConfigError(f"The path {text} is not allowed to be accessed ({ALLOWED_PATHS})")
        return Path(path)


def _is_below(path: str, root: str) -> bool:
    """Whether a normal path is the root or below it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


class FileConfigProvider:
    """Reads keys of properties files."""

    def __init__(self, parameters: Mapping[str, str], _environment: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(parameters.get(ALLOWED_PATHS, ""))

    def get(self, path: str, key: str) -> Found:
        """See ConfigProvider."""
        if not path:
            raise ConfigError("it names no file")
        file = self._allowed.check(path)
        try:
            properties = parse_properties(file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Could not read properties from file {path}: {_reason(error)}") from error
        if key not in properties:
            raise ConfigError(f"{path} has no key {key}")
        return Found(properties[key], file)


class DirectoryConfigProvider:
    """Reads whole files of a directory, the final line break included, as Kafka does; settings are trimmed later."""

    def __init__(self, parameters: Mapping[str, str], _environment: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(parameters.get(ALLOWED_PATHS, ""))

    def get(self, path: str, key: str) -> Found:
        """See ConfigProvider; a key is the name of a file directly in the directory."""
        if not path:
            raise ConfigError("it names no directory")
        directory = self._allowed.check(path)
        if not directory.is_dir():
            raise ConfigError(f"The path {path} is not a directory")
        file = directory / key
        if not key or "/" in key or not file.is_file():
            raise ConfigError(f"{path} has no file {key}")
        try:
            return Found(file.read_text("utf-8"), file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Could not read file {file}: {_reason(error)}") from error


class EnvVarConfigProvider:
    """Reads environment variables."""

    def __init__(self, parameters: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._environment = environment
        pattern = parameters.get(ALLOWLIST_PATTERN)
        try:
            self._allowed = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"{ALLOWLIST_PATTERN}={pattern} is not a pattern: {error}") from error

    def get(self, path: str, key: str) -> Found:
        """See ConfigProvider."""
        if path:
            raise ConfigError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        if self._allowed is not None and not self._allowed.fullmatch(key):
            raise ConfigError(f"the variable {key} is not allowed to be accessed ({ALLOWLIST_PATTERN})")
        if key not in self._environment:
            raise ConfigError(f"the environment has no variable {key}")
        return Found(self._environment[key])


_CLASSES: Final[Mapping[str, Callable[[Mapping[str, str], Mapping[str, str]], ConfigProvider]]] = {
    f"{PACKAGE}.{cls.__name__}": cls for cls in (FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider)
}


def make_providers(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, ConfigProvider]:
    """Return the providers that `config.providers` lists, by name. Raises ConfigError."""
    made: dict[str, ConfigProvider] = {}
    names = [name.strip() for name in properties.get("config.providers", "").split(",")]
    for name in filter(None, names):
        prefix = f"config.providers.{name}."
        key = f"{prefix}class"
        if key not in properties:
            raise ConfigError(f"config.providers names {name}, but {key} is missing")
        cls = _CLASSES.get(properties[key].strip())
        if cls is None:
            raise invalid(key, properties[key], f"this class cannot be loaded; it can be {', '.join(sorted(_CLASSES))}")
        start = f"{prefix}param."
        parameters = {text.removeprefix(start): value for text, value in properties.items() if text.startswith(start)}
        try:
            made[name] = cls(parameters, environment)
        except ConfigError as error:
            raise ConfigError(f"config.providers.{name}: {error}") from error
    return made


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else "it is not UTF-8 text"
