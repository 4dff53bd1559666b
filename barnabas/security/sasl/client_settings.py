"""How a node logs in to others, made from its settings.

The JAAS entry is that of the listener and mechanism on which the node itself is asked to log in, as in Kafka: PLAIN and
SCRAM take its `username` and `password` (SCRAM also `tokenauth="true"`), OAUTHBEARER see oauthbearer/login.py, GSSAPI
see gssapi/client_settings.py.
`sasl.login.callback.handler.class` may name a function: without arguments, it returns (user, password), or for
OAUTHBEARER the token.

Source: SaslChannelBuilder, LoginManager, JaasContext.loadServerContext (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from barnabas.common.clock import Clock
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.callbacks import load_callback
from barnabas.security.sasl.mechanism import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ClientLogin,
    ClientMechanism,
)
from barnabas.security.sasl.plain import PlainClient
from barnabas.security.sasl.scopes import JAAS, LOGIN_HANDLER, Scope, login_texts
from barnabas.security.sasl.scram.client import ScramClient
from barnabas.security.sasl.scram.messages import TOKEN_AUTH
from barnabas.security.values import ScramMechanism

log = logging.getLogger("barnabas.sasl")


def client_login(config: Config, listener: str, mechanism: str, key: str, clock: Clock) -> ClientLogin:
    """Return how to log in on a listener; `key` is the setting that names the mechanism. Raises ConfigError."""
    scope = Scope(config, listener, mechanism)
    if mechanism in (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512):
        return ClientLogin(mechanism, _by_password(scope))
    if mechanism == OAUTHBEARER:
        from barnabas.security.sasl.oauthbearer.client_settings import login_by_token  # Why here: loads much

        return ClientLogin(mechanism, login_by_token(scope, clock))
    if mechanism == GSSAPI:
        from barnabas.security.sasl.gssapi.client_settings import login_by_ticket  # Why here: it brings a library

        return ClientLogin(mechanism, login_by_ticket(scope, clock))
    supported = f"{PLAIN}, {SCRAM_SHA_256}, {SCRAM_SHA_512}, {OAUTHBEARER} or {GSSAPI}"
    raise ConfigError(f"{key}={mechanism} is not supported: it can be {supported}")


class CurrentLogin:
    """Begins logins by the settings in force; after a change that cannot be used, by those before it.

    Threads: any that opens a connection to another node.
    """

    def __init__(self, config: Config, listener: str, make: Callable[[], ClientLogin]) -> None:
        # Fixed before start.
        self._config = config  # its values change
        self._listener = listener
        self._make = make
        self._made = (config.current, self._texts(), make().begin)  # replaced whole

    def __call__(self, host: str) -> ClientMechanism:
        """Begin a login to a host; raises SaslError."""
        current, texts, begin = self._made
        if self._config.current is not current:
            current, newest = self._config.current, self._texts()
            if newest != texts:
                try:
                    begin = self._make().begin
                except ConfigError as error:
                    log.error("logins to other nodes go on as before: %s", error)
            self._made = (current, newest, begin)
        return begin(host)

    def _texts(self) -> dict[str, str]:
        return login_texts(self._config.current, self._listener)


def current_login(config: Config, listener: str, mechanism: str, key: str, clock: Clock) -> ClientLogin:
    """Return how to log in on a listener, each time by the settings in force (see `client_login`)."""
    begin = CurrentLogin(config, listener, lambda: client_login(config, listener, mechanism, key, clock))
    return ClientLogin(mechanism, begin)


def _by_password(scope: Scope) -> Callable[[str], ClientMechanism]:
    handler = scope.own(LOGIN_HANDLER)
    options: Mapping[str, str] = {}
    login: Callable[[], tuple[str, str]]
    if handler is None:
        options = scope.required_login_module().options
        pair = options.get("username", ""), options.get("password", "")
        if not all(pair):
            raise ConfigError(f"{scope.name(JAAS)} has no username and password to log in with")
        login = lambda: pair  # noqa: E731
    else:
        login = load_callback(scope.name(LOGIN_HANDLER), handler)
    if scope.mechanism == PLAIN:
        return lambda _host: PlainClient(*login())
    mechanism = ScramMechanism[scope.mechanism.replace("-", "_")]
    is_token = options.get(TOKEN_AUTH, "").lower() == "true"
    return lambda _host: ScramClient(mechanism, *login(), is_token=is_token)
