"""Settings without effect: a process refuses those that would protect, and warns of the others.

Rules
1. A setting that is meant to protect, and would not, is an error at start and at run time. Why: an operator must not
   rely on protection that does not exist. An empty or default value requests no protection.
2. Other settings without effect are reported in one line for each reason, their keys sorted. Unknown keys are reported
   with the known key that may have been meant.
3. Only names are shown, never values. Names may come from clients: unprintable characters are escaped, and a line shows
   at most NAMES_MAX names.

Threads: any; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from barnabas.config.errors import ConfigError
from barnabas.config.listeners import (
    ACCEPTING_KEYS,
    LISTENER_LIMITS,
    MECHANISM_NAMES,
    RENEWAL_KEYS,
    SSL_KEYS,
    base_name,
    is_for_listeners,
    is_for_logins,
)
from barnabas.config.table.key import Key, Scope
from barnabas.config.table.keys import BROKER_KEYS, DYNAMIC_KEYS, GROUP_KEYS, TOPIC_KEYS

#: The most keys that one line names.
NAMES_MAX: Final = 20
#: Longer names are shown cut, and are not compared with the known ones.
_COMPARED_LENGTH_MAX: Final = 100
#: No suggestions for more unknown keys than this: they are hardly typos, and each comparison takes milliseconds.
_SUGGESTED_MAX: Final = 5
_LIKENESS_MIN: Final = 0.8


class Missing(NamedTuple):
    """A feature that is not built, and the keys that configure it; a key that ends in a dot is a prefix."""

    reason: str
    keys: tuple[str, ...]
    but: tuple[str, ...] = ()  # keys that do not belong to it, though a prefix matches

    def has(self, name: str) -> bool:
        """Whether a key (without its listener) configures this feature."""
        if name in self.but:
            return False
        return any(name.startswith(key) if key.endswith(".") else name == key for key in self.keys)


_SASL: Final = Missing(
    "no listener uses SASL, so no client would be authenticated",
    ("sasl.", "connections.max.reauth.ms"),
    but=("sasl.kerberos.kinit.cmd", *RENEWAL_KEYS),
)
#: SASL settings that belong to one mechanism of one listener.
_OF_MECHANISMS: Final = (
    "sasl.jaas.config",
    "sasl.server.callback.handler.class",
    "sasl.login.callback.handler.class",
)
_TLS_CHOICES: Final = ("ssl.keymanager.algorithm", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm")
_TLS: Final = (*SSL_KEYS, *_TLS_CHOICES)
#: Features that would protect (rule 1).
PROTECTIVE: Final = (
    Missing("TLS has no such setting, and no classes can be loaded", ("ssl.", "security.providers"), _TLS),
    Missing(
        "no such classes can be loaded",
        (
            "principal.builder.class",
            "sasl.login.class",
            "sasl.client.callback.handler.class",
        ),
    ),
    Missing("no tokens are fetched by assertions", ("sasl.oauthbearer.assertion.",)),
    _SASL,
)
_PROVIDERS: Final = Missing("", ("config.providers", "config.providers."))
#: Other features that are not built.
HARMLESS: Final = (
    Missing(
        "coordinators append at once, on the thread of the request, and keep no buffers",
        (
            "group.coordinator.append.linger.ms",
            "group.coordinator.cached.buffer.max.bytes",
            "group.coordinator.threads",
            "share.coordinator.append.linger.ms",
            "share.coordinator.cached.buffer.max.bytes",
            "share.coordinator.threads",
        ),
    ),
    Missing("one thread loads groups, and one matches patterns", ("group.coordinator.background.threads",)),
    Missing("a request to the controller has request.timeout.ms in all", ("controller.socket.timeout.ms",)),
    Missing("a connection to another node is opened within its request's time", ("socket.connection.setup.",)),
    Missing("the kernel sizes the buffers of connections to leaders", ("replica.socket.receive.buffer.bytes",)),
    Missing(
        "there is no tiered storage",
        (
            "remote.",
            "log.local.retention.bytes",
            "log.local.retention.ms",
            "local.retention.bytes",
            "local.retention.ms",
            "follower.fetch.last.tiered.offset.enable",
        ),
    ),
    Missing("OpenSSL makes this choice", _TLS_CHOICES),
    Missing("no program renews tickets: libkrb5 gets new ones with a keytab", ("sasl.kerberos.kinit.cmd",)),
    Missing("listeners for clients wait for users and ACLs, no others do", ("early.start.listeners",)),
    Missing(
        "copies between log directories are limited second by second", ("alter.log.dirs.replication.quota.window.",)
    ),
    Missing("a new snapshot replaces the log and the snapshots before it at once", ("metadata.max.retention.",)),
    Missing("decisions do not wait for others: those that meet share a flush", ("controller.quorum.append.linger.ms",)),
    Missing("metrics are read from the /metrics page", ("metric.reporters", "metrics.", "kafka.metrics.")),
)
_ONE_LISTENER: Final = Missing(
    f"only {', '.join(LISTENER_LIMITS)} and settings of TLS and SASL can be set for one listener", ()
)
#: Keys that Kafka keeps to itself (ConfigDef.defineInternal), so the table has none of them.
_INTERNAL: Final = Missing(
    "the times of this task are fixed",
    (
        "share.coordinator.cold.partition.snapshot.interval.ms",
        "share.coordinator.state.topic.prune.interval.ms",
    ),
)
_OTHER: Final = Missing("", ())


# -- keys of a file


def check_protection(originals: Mapping[str, str], protocols: Collection[str]) -> None:
    """Raise ConfigError for settings that are meant to protect and would not (rule 1).

    `protocols` are those of the listeners that the process has or connects to.
    """
    for missing in PROTECTIVE:
        if missing is _SASL and any(protocol.startswith("SASL_") for protocol in protocols):
            _check_mechanisms_keys(originals)
            continue
        names = [name for name, text in originals.items() if missing.has(_bare(name)) and _requests(name, text)]
        if names:
            raise ConfigError(f"{_listed(names)} {_be(names)} not supported: {missing.reason}")


def _check_mechanisms_keys(originals: Mapping[str, str]) -> None:
    for key in _OF_MECHANISMS:
        if key in originals:
            raise ConfigError(
                f"{key} has no effect: it must be set for a mechanism of a listener, as "
                f"listener.name.<listener>.<mechanism>.{key}"
            )
    for name in originals:
        mechanism, bare = base_name(name).partition(".")[0], _bare(name)
        is_of_mechanism = base_name(name) == f"{mechanism}.{bare}" != name and is_for_logins(bare)
        if is_of_mechanism and mechanism not in MECHANISM_NAMES:
            raise ConfigError(
                f"{_shown(name)} has no effect: {_shown(mechanism)} is no mechanism; those are "
                f"{', '.join(MECHANISM_NAMES)}, in lower case"
            )


def warnings_of_file(
    names: Iterable[str],
    listeners: Iterable[str],
    *,
    peers: Iterable[str] = (),
    is_without_tls: bool = False,
    is_without_logins: bool = False,
) -> Iterator[str]:
    """Yield a line for each reason why keys of a file have no effect.

    `listeners` are the names of those that the process has or uses, and `peers` of those that it may only connect to;
    `is_without_tls`: none of them uses TLS; `is_without_logins`: none of them uses SASL.
    """
    if is_without_tls:
        idle = {name for name in names if name in SSL_KEYS}
        if idle:
            yield f"{_no_effect(idle)}: no listener uses TLS"
    yield from warnings_of_listeners(names, listeners, peers, is_without_logins=is_without_logins)


def warnings_of_listeners(
    names: Iterable[str], listeners: Iterable[str], peers: Iterable[str] = (), *, is_without_logins: bool = False
) -> Iterator[str]:
    """Yield a line for each reason why broker keys have no effect; one is that their listener is not there.

    `peers` are listeners that the process only connects to; `is_without_logins`: no listener uses SASL.
    """
    names = list(names)
    renewal = {name for name in names if is_without_logins and _bare(name) in RENEWAL_KEYS}
    if renewal:
        yield f"{_no_effect(renewal)}: no listener uses SASL"
    own, others = (tuple(f"listener.name.{name.lower()}." for name in each) for each in (listeners, peers))
    stray = {name for name in names if is_for_listeners(_bare(name)) and not _is_plain_or_of(name, own)}
    stray -= {name for name in stray if name.startswith(others) and _bare(name) not in ACCEPTING_KEYS}
    if stray:
        yield f"{_no_effect(stray)}: there is no such listener"
    yield from warnings(Scope.BROKER, [name for name in names if name not in stray])


# -- keys set at run time, and of every origin


def protects(name: str) -> Missing | None:
    """Return the protective feature, not built, that a broker key configures; None for other keys."""
    bare = _bare(name)
    return next((missing for missing in (*PROTECTIVE, _PROVIDERS) if missing.has(bare)), None)


def warnings(scope: Scope, names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each reason why keys of brokers, topics or groups have no effect."""
    reasons: dict[Missing, list[str]] = {}
    unknown = []
    for name in names:
        key = _ROWS[scope](name)
        missing = _reason(name) if key is None or not key.honoured else None
        if key is None and _PROVIDERS.has(name):
            continue
        if key is None and missing is _OTHER:
            unknown.append(name)
        elif missing is not None:
            reasons.setdefault(missing, []).append(name)
        elif base_name(name) != name and not is_for_listeners(_bare(name)):
            reasons.setdefault(_ONE_LISTENER, []).append(name)
    if unknown:
        keys = "key" if len(unknown) == 1 else "keys"
        show = partial(_with_suggestion, scope) if len(unknown) <= _SUGGESTED_MAX else _shown
        yield f"unknown config {keys} {_be(unknown)} ignored: {_listed(unknown, show)}"
    for missing, found in sorted(reasons.items(), key=lambda item: item[0].reason):
        yield f"{_no_effect(found)}{': ' if missing.reason else ''}{missing.reason}"


def reason_without_effect(key: Key) -> str:
    """Return why a key of the table has no effect; empty if it has one."""
    return "" if key.honoured else _reason(key.name).reason


def is_known(scope: Scope, name: str) -> bool:
    """Return whether the table has a key, possibly under one listener's prefix."""
    return _ROWS[scope](name) is not None


def suggestion(scope: Scope, name: str) -> str | None:
    """Return the known key that may have been meant."""
    from difflib import get_close_matches  # Why here: hardly any start needs it

    if len(name) > _COMPARED_LENGTH_MAX:
        return None
    return next(iter(get_close_matches(name, _NAMES[scope], 1, _LIKENESS_MIN)), None)


def _broker_row(name: str) -> Key | None:
    return DYNAMIC_KEYS.get(name) or BROKER_KEYS.get(_bare(name))


_ROWS: Final[Mapping[Scope, Callable[[str], Key | None]]] = {
    Scope.BROKER: _broker_row,
    Scope.TOPIC: TOPIC_KEYS.get,
    Scope.GROUP: GROUP_KEYS.get,
}
_NAMES: Final[Mapping[Scope, Collection[str]]] = {
    Scope.BROKER: (*BROKER_KEYS, *DYNAMIC_KEYS),
    Scope.TOPIC: TOPIC_KEYS.keys(),
    Scope.GROUP: GROUP_KEYS.keys(),
}


def _reason(name: str) -> Missing:
    bare = _bare(name)
    return next((missing for missing in (*PROTECTIVE, *HARMLESS, _INTERNAL) if missing.has(bare)), _OTHER)


def _bare(name: str) -> str:
    """Return the key without its listener and SASL mechanism: `listener.name.<listener>.[<mechanism>.]<key>`."""
    base = base_name(name)
    if base != name and base not in BROKER_KEYS:
        without_mechanism = base.partition(".")[2]
        return without_mechanism if without_mechanism in BROKER_KEYS else base
    return base


def _is_plain_or_of(name: str, prefixes: tuple[str, ...]) -> bool:
    return base_name(name) == name or name.startswith(prefixes)


def _requests(name: str, text: str) -> bool:
    """Return whether a value requests protection (rule 1)."""
    key = BROKER_KEYS.get(_bare(name))
    return bool(text.strip()) and (key is None or key.parse(text) != key.default)


def _be(names: Collection[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _no_effect(names: Collection[str]) -> str:
    return f"{_listed(names)} {'has' if len(names) == 1 else 'have'} no effect"


def _with_suggestion(scope: Scope, name: str) -> str:
    meant = suggestion(scope, name)
    return _shown(name) if meant is None else f"{_shown(name)} (did you mean {meant}?)"


def _shown(name: str) -> str:
    """Return a name that fits into a line."""
    cut = name if len(name) <= _COMPARED_LENGTH_MAX else f"{name[:_COMPARED_LENGTH_MAX]}..."
    return cut if cut.isprintable() else ascii(cut)


def _listed(names: Collection[str], show: Callable[[str], str] = _shown) -> str:
    """Return the names, sorted, at most NAMES_MAX of them."""
    rest = len(names) - NAMES_MAX
    listed = ", ".join(map(show, sorted(names)[:NAMES_MAX]))
    return f"{listed} and {rest} more" if rest > 0 else listed
