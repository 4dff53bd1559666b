"""Java properties: the format of `server.properties`, and the environment variables of Kafka's images.

Format: one `key=value`, `key:value` or `key value` in each line. Blanks before the key and around the separator are
ignored; `#` and `!` start comments. A line that ends in an odd number of backslashes continues in the next line, whose
leading blanks are dropped. `\\n`, `\\t`, `\\r`, `\\f`, `\\uXXXX` are escapes; a backslash before any other character is
dropped.

Source: java.util.Properties; Kafka's KafkaDockerWrapper for the variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.config.errors import ConfigError

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ESCAPE: Final = r"(?s)\\(u([0-9a-fA-F]{4})|.)"
_UNICODE_CUT_SHORT: Final = r"(?<!\\)(\\\\)*\\u(?![0-9a-fA-F]{4})"

#: Variables that are not config keys: those that set up the image or the JVM, and some of ours.
_NOT_KEYS: Final = frozenset(
    (
        "KAFKA_CLUSTER_ID",
        "KAFKA_DEBUG",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
        # Ours, for commands, tests and the build. A machine, or a container, may have them for all that runs there.
        "BARNABAS_BOOTSTRAP",
        "BARNABAS_COMMAND_CONFIG",
        "BARNABAS_CONTROL_URL",
        "BARNABAS_DATA_DIR",
        "BARNABAS_FAULTS_TOKEN",
        "BARNABAS_FAULTS_URLS",
        "BARNABAS_METRICS_URLS",
        "BARNABAS_PURE",
        "BARNABAS_PYTHON",
        "BARNABAS_READY",
        "BARNABAS_SUPERVISOR_PID",
    )
)


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties in a file's text; of a repeated key the last counts."""
    properties = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that KAFKA_* variables name: `__` means `_`, `___` means `-`, `_` means a dot.

    BARNABAS_* variables name our own keys in the same way (BARNABAS_METRICS_PORT is barnabas.metrics.port).
    """
    properties = {}
    for variable in sorted(environment.keys() - _NOT_KEYS):
        if variable.startswith("KAFKA_"):
            properties[_key_of(variable.removeprefix("KAFKA_"))] = environment[variable]
        elif variable.startswith("BARNABAS_"):
            properties[_key_of(variable)] = environment[variable]
    return properties


def _key_of(variable: str) -> str:
    lowered = variable.lower()
    return lowered.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank ones, with continued lines joined."""
    pending: str | None = None
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(_BLANKS)
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = line if pending is None else pending + line
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending = line[:-1]
        else:
            pending = None
            yield line
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """Split a logical line at its first unescaped separator."""
    at = 0
    while at < len(line) and line[at] not in _BLANKS + "=:":
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    if re.search(_UNICODE_CUT_SHORT, text):
        raise ConfigError(f"malformed \\uXXXX escape in {text!r}")

    def value(match: re.Match[str]) -> str:
        if match[2]:
            return chr(int(match[2], 16))
        return _ESCAPES.get(match[1], match[1])

    return re.sub(_ESCAPE, value, text)
