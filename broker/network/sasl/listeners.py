"""SaslListeners: the SASL of every listener of a process, made from the settings in force.

Rules
1. New logins use the newest settings. A login that has begun keeps its own, and a connection that has logged in lives
   on. When its session ends, it logs in by the newest settings.
2. A change is checked before it is accepted. One that cannot be used after all is logged, and the old settings stay
   whole. It is tried again at the next change of the broker's config, since a file that it names may be mended.
3. A listener whose settings are the same keeps its mechanisms, and the keys that these have read. One whose settings
   changed keeps keys of the same address, until that answers again: no client is refused meanwhile.

Threads: `add` and `start` are main's. `reconfigure` and `stop` take `_lock`; `check` is for any thread.
Source: Kafka stores such changes too; there, only listeners and network threads that are added later use them
(SaslChannelBuilder, DynamicListenerConfig, 4.3).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from barnabas.config.errors import ConfigError
from barnabas.security.sasl.scopes import login_texts

if TYPE_CHECKING:
    from barnabas.broker.network.sasl.server_authenticator import ListenerSasl
    from barnabas.broker.network.sasl.sources import SaslSources
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.security.sasl.server_settings import ServerSettings

log = logging.getLogger("barnabas.sasl")


class SaslListeners:
    """See the module. `config` is that of the process, whose values change."""

    def __init__(self, sources: SaslSources, config: Config, clock: Clock) -> None:
        # Fixed before start.
        self._sources = sources
        self._config = config
        self._clock = clock
        self._listeners: dict[str, ListenerSasl] = {}
        self._lock = threading.Lock()  # before no other
        self._texts: dict[str, dict[str, str]] = {}  # guarded by: _lock; what the settings were made from
        self._refused: dict[str, str] = {}  # guarded by: _lock; why newer settings are not used
        self._is_running = False  # guarded by: _lock

    def add(self, name: str) -> ListenerSasl:
        """Return the SASL of a listener; raises ConfigError."""
        listener = self._listeners[name] = self._sources.listener(self._config, name, self._clock)
        self._texts[name] = login_texts(self._config.current, name)
        return listener

    def start(self) -> None:
        """Start the threads that keep keys current."""
        with self._lock:
            self._is_running = True
            for listener in self._listeners.values():
                for source in listener.settings.key_sources:
                    source.start()

    def check(self, changed: Config) -> None:
        """Raise ConfigError if changed settings could not be used, unless those in force cannot for the same reason."""
        for name in self._listeners:
            try:
                self._sources.settings(changed, name, self._clock)
            except ConfigError as error:
                if not self._is_known(name, str(error), changed):
                    raise

    def _is_known(self, name: str, reason: str, changed: Config) -> bool:
        """Return whether the settings in force have this fault too, and the change is of no key that it names."""
        with self._lock:
            if self._refused.get(name) != reason:
                return False
        before, after = login_texts(self._config.current, name), login_texts(changed.current, name)
        return not any(key in reason and before.get(key) != after.get(key) for key in (*before, *after))

    def reconfigure(self) -> None:
        """Use the settings that are in force now (rules 1 to 3)."""
        with self._lock:
            for name, listener in self._listeners.items():
                texts = login_texts(self._config.current, name)
                if texts == self._texts[name]:
                    self._refused.pop(name, None)
                elif self._renew(name, listener):
                    self._texts[name] = texts

    def stop(self) -> None:
        """End the threads."""
        with self._lock:
            if not self._is_running:
                return
            self._is_running = False
            for listener in self._listeners.values():
                for source in listener.settings.key_sources:
                    source.stop()

    def _renew(self, name: str, listener: ListenerSasl) -> bool:
        """Use new settings; False if they cannot be used, and then the old ones are as they were."""
        try:
            settings = self._sources.settings(self._config, name, self._clock)
            self._start_sources(settings, listener.settings)
        except Exception as error:
            if self._refused.get(name) != str(error):
                self._refused[name] = str(error)
                is_foreseen = isinstance(error, ConfigError)
                log.error("listener %s keeps its logins: %s", name, error, exc_info=None if is_foreseen else error)
            return False
        self._refused.pop(name, None)
        before, listener.settings = listener.settings, settings
        if self._is_running:
            for source in before.key_sources:
                source.stop()
        log.info("listener %s uses new settings of logins: %s", name, ", ".join(settings.mechanisms))
        return True

    def _start_sources(self, settings: ServerSettings, before: ServerSettings) -> None:
        """Let the sources of keys take over what the former ones have, and start them: all or none."""
        for source in settings.key_sources:
            for former in before.key_sources:
                source.take_over(former)
        if not self._is_running:
            return
        try:
            for source in settings.key_sources:
                source.start()
        except Exception:
            for source in settings.key_sources:
                source.stop()
            raise
