"""TlsEndpoints: the TLS of every listener of a process, and of the listeners that it connects to.

Rules
1. New connections use the newest certificates; open ones keep theirs. A change is one assignment.
2. Certificates change because a setting did (`reconfigure`), or because a file did (`review`, called on a schedule).
   Both obey the rules of loaded.py. What cannot be used is logged once, and the old certificates stay. The files of
   refused settings are watched, too: they may be mended.
   What was set at run time is applied again after a restart, before the first client (`settle`). The rules of loaded.py
   do not hold then: they compare with what was in use, and the file may be several changes behind. If what the file
   says can no longer be loaded, such as a keystore that another one replaced, a broker starts with what it knows to
   have been set (`set_before`). A controller knows nothing before it has started.
3. The days until a certificate expires are logged once a day from WARN_DAYS on (ExpiryLog).

Threads: `reconfigure` and `review` take `_lock`; the rest reads attributes that are replaced whole.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.config.errors import ConfigError
from barnabas.security.principal import ANONYMOUS
from barnabas.security.tls.loaded import ExpiryLog, Loaded, Stamps, check_replacement, load, stamps_of
from barnabas.security.tls.principal_mapping import PrincipalMapper
from barnabas.security.tls.settings import settings_of

if TYPE_CHECKING:
    import ssl

    from barnabas.security.tls.session import TlsSession
    from barnabas.security.tls.settings import TlsSettings

log = logging.getLogger("barnabas.tls")

SHOWN_MAX: Final = 300  # characters of a name in an error


class TlsEndpoint:
    """The TLS of one listener."""

    def __init__(self, name: str, loaded: Loaded, *, is_sasl: bool, is_server: bool, is_between_nodes: bool) -> None:
        self.name = name  # fixed before start; the listener's
        self.is_sasl = is_sasl  # fixed before start
        # Replaced by TlsEndpoints if connections to the listener were made before it.
        self.is_server = is_server
        self.is_between_nodes = is_between_nodes
        self.loaded = loaded  # replaced whole by TlsEndpoints
        self.wanted = loaded.settings  # owner: TlsEndpoints; those of `loaded`, unless they were refused
        self.refused: Stamps | None = None  # owner: TlsEndpoints; the files that could not be used
        self._mapper = PrincipalMapper(loaded.settings.principal_mapping_rules)  # fixed before start

    @property
    def server_context(self) -> ssl.SSLContext:
        """The context for accepted connections."""
        context = self.loaded.server
        assert context is not None
        return context

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context for connections to such a listener."""
        return self.loaded.client

    def principal(self, session: TlsSession) -> str:
        """Return the principal of the other end of an established session.

        Raises ValueError if no rule of ssl.principal.mapping.rules matches its name.
        """
        name = session.peer_name()
        if name is None:
            return ANONYMOUS
        user = self._mapper.user_name(name)
        if user is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules matches {name[:SHOWN_MAX]!r}")
        return f"User:{user}"


class TlsEndpoints:
    """See the module."""

    def __init__(
        self,
        originals: Mapping[str, str],
        wall_ms: Callable[[], int],
        *,
        awaits_settings: bool = False,
        expiry: ExpiryLog | None = None,
        set_before: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Take the settings of the file; with `awaits_settings` those set at run time are still to come.

        `expiry` is the process's, if it has several roles. `set_before` returns what was set at run time, as far as an
        earlier process of this node knew it.
        """
        self._wall_ms = wall_ms  # fixed before start
        self._expiry = ExpiryLog() if expiry is None else expiry  # fixed before start
        self._set_before = set_before  # fixed before start
        self._lock = threading.Lock()  # before that of _expiry
        self._originals = dict(originals)  # replaced whole under _lock
        self._by_name: dict[str, TlsEndpoint] = {}  # replaced whole under _lock
        self._is_settled = not awaits_settings  # guarded by: _lock

    def listener(self, name: str, protocol: str, *, is_between_nodes: bool = False) -> TlsEndpoint:
        """Return the TLS of a listener of this process, loaded at its first use; raises ConfigError."""
        return self._endpoint(name, protocol, is_server=True, is_between_nodes=is_between_nodes)

    def peer(self, name: str, protocol: str) -> TlsEndpoint:
        """Return the TLS for connections to a listener, loaded at its first use; raises ConfigError."""
        return self._endpoint(name, protocol, is_server=False, is_between_nodes=False)

    def all(self) -> list[TlsEndpoint]:
        """Return the TLS of all listeners so far."""
        return list(self._by_name.values())

    def seconds_left(self, name: str) -> float:
        """Return the seconds until the first certificate of a listener's chain expires; NaN without one."""
        expires_ms = self._by_name[name.upper()].loaded.expires_ms()
        return float("nan") if expires_ms is None else (expires_ms - self._wall_ms()) / 1000

    def settle(self) -> None:
        """Hold to the rules from now on, since what was set at run time is in use (rule 2)."""
        with self._lock:
            self._is_settled = True

    def check(self, originals: Mapping[str, str]) -> None:
        """Raise ConfigError if the changed settings could not be applied."""
        for endpoint in self.all():
            self._replacement(endpoint, originals, obeys=True)

    def reconfigure(self, originals: Mapping[str, str]) -> None:
        """Apply changed settings; one that cannot be used is logged, and changes nothing for its listener."""
        with self._lock:
            self._originals = dict(originals)
            for endpoint in self._by_name.values():
                self._renew(endpoint)

    def review(self) -> None:
        """Load files that changed, and log certificates that expire soon."""
        with self._lock:
            for endpoint in self._by_name.values():
                stamps = stamps_of(endpoint.wanted)
                if stamps not in (endpoint.loaded.stamps, endpoint.refused):
                    self._renew(endpoint)
                self._warn(endpoint)

    def _endpoint(self, name: str, protocol: str, *, is_server: bool, is_between_nodes: bool) -> TlsEndpoint:
        name = name.upper()
        with self._lock:
            endpoint = self._by_name.get(name)
            if endpoint is None or (is_server and not endpoint.is_server):
                is_sasl = protocol == "SASL_SSL"
                try:
                    loaded = self._first(name, is_sasl=is_sasl, is_server=is_server, is_between_nodes=is_between_nodes)
                    found = TlsEndpoint(
                        name, loaded, is_sasl=is_sasl, is_server=is_server, is_between_nodes=is_between_nodes
                    )
                except ConfigError as error:
                    raise ConfigError(f"listener {name}: {error}") from error
                if endpoint is None:
                    endpoint = found
                endpoint.loaded, endpoint.wanted = loaded, loaded.settings
                endpoint.is_server, endpoint.is_between_nodes = is_server, is_between_nodes
                self._by_name = {**self._by_name, name: endpoint}
                self._warn(endpoint)
            return endpoint

    def _first(self, name: str, *, is_sasl: bool, is_server: bool, is_between_nodes: bool) -> Loaded:
        """Load what the file says, or else what was set at run time (rule 2); raises the ConfigError of the file."""

        def loaded(originals: Mapping[str, str]) -> Loaded:
            settings = settings_of(originals, name, is_sasl=is_sasl)
            return load(settings, is_server=is_server, is_between_nodes=is_between_nodes, now_ms=self._wall_ms())

        try:
            return loaded(self._originals)
        except ConfigError as error:
            known = {} if self._is_settled else self._set_before()
            if not known:
                raise
            try:
                found = loaded({**self._originals, **known})
            except ConfigError:
                raise error from None
            log.warning("listener %s: %s; it starts with what was set at run time", name, error)
            return found

    def _settings(self, endpoint: TlsEndpoint, originals: Mapping[str, str]) -> TlsSettings:
        """Return the settings of an endpoint's listener; raises ConfigError."""
        try:
            return settings_of(originals, endpoint.name, is_sasl=endpoint.is_sasl)
        except ConfigError as error:
            raise ConfigError(f"listener {endpoint.name}: {error}") from error

    def _replacement(self, endpoint: TlsEndpoint, originals: Mapping[str, str], *, obeys: bool) -> Loaded | None:
        """Return what replaces an endpoint's certificates; None if nothing changed. Raises ConfigError.

        With `obeys` it has to obey the rules for a replacement (rule 2).
        """
        old = endpoint.loaded
        settings = self._settings(endpoint, originals)
        try:
            if settings == old.settings and stamps_of(settings) == old.stamps:
                return None
            is_new = endpoint.is_between_nodes and not obeys
            new = load(settings, is_server=endpoint.is_server, is_between_nodes=is_new, now_ms=self._wall_ms())
            if obeys:
                check_replacement(old, new, is_between_nodes=endpoint.is_between_nodes)
        except ConfigError as error:
            raise ConfigError(f"listener {endpoint.name}: {error}") from error
        return new

    def _renew(self, endpoint: TlsEndpoint) -> None:
        stamps = stamps_of(endpoint.wanted)
        try:
            endpoint.wanted = self._settings(endpoint, self._originals)
            stamps = stamps_of(endpoint.wanted)
            new = self._replacement(endpoint, self._originals, obeys=self._is_settled)
        except Exception as error:
            endpoint.refused = stamps
            is_foreseen = isinstance(error, ConfigError)
            log.error("new certificates are not used: %s", error, exc_info=None if is_foreseen else error)
            return
        endpoint.refused = None
        if new is None:
            return
        endpoint.loaded = new
        log.info("listener %s uses new certificates: %s", endpoint.name, new.subject() or "the trusted ones")

    def _warn(self, endpoint: TlsEndpoint) -> None:
        self._expiry.note(f"listener {endpoint.name}", endpoint.loaded.expires_ms(), self._wall_ms())
