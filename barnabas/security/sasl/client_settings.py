"""How a node logs in to others, made from its settings.

The JAAS entry is that of the listener and mechanism on which the node itself is asked to log in, as in Kafka: PLAIN and
SCRAM take its `username` and `password` (SCRAM also `tokenauth="true"`), OAUTHBEARER see oauthbearer/login.py.
`sasl.login.callback.handler.class` may name a function: without arguments, it returns (user, password), or for
OAUTHBEARER the token.

Source: SaslChannelBuilder, LoginManager, JaasContext.loadServerContext (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.common.clock import Clock
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.callbacks import load_callback
from barnabas.security.sasl.mechanism import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ClientLogin,
    ClientMechanism,
)
from barnabas.security.sasl.plain import PlainClient
from barnabas.security.sasl.scopes import JAAS, LOGIN_HANDLER, Scope
from barnabas.security.sasl.scram.client import ScramClient
from barnabas.security.sasl.scram.messages import TOKEN_AUTH
from barnabas.security.values import ScramMechanism


def client_login(config: Config, listener: str, mechanism: str, key: str, clock: Clock) -> ClientLogin:
    """Return how to log in on a listener; `key` is the setting that names the mechanism. Raises ConfigError."""
    scope = Scope(config, listener, mechanism)
    if mechanism in (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512):
        return ClientLogin(mechanism, _by_password(scope))
    if mechanism == OAUTHBEARER:
        from barnabas.security.sasl.oauthbearer.client_settings import login_by_token  # Why here: loads much

        return ClientLogin(mechanism, login_by_token(scope, clock))
    raise ConfigError(
        f"{key}={mechanism} is not supported: it can be {PLAIN}, {SCRAM_SHA_256}, {SCRAM_SHA_512} or {OAUTHBEARER}"
    )


def _by_password(scope: Scope) -> Callable[[], ClientMechanism]:
    handler = scope.own(LOGIN_HANDLER)
    options: Mapping[str, str] = {}
    login: Callable[[], tuple[str, str]]
    if handler is None:
        options = scope.required_login_module().options
        pair = options.get("username", ""), options.get("password", "")
        if not all(pair):
            raise ConfigError(f"{scope.name(JAAS)} has no username and password to log in to other nodes")
        login = lambda: pair  # noqa: E731
    else:
        login = load_callback(scope.name(LOGIN_HANDLER), handler)
    if scope.mechanism == PLAIN:
        return lambda: PlainClient(*login())
    mechanism = ScramMechanism[scope.mechanism.replace("-", "_")]
    is_token = options.get(TOKEN_AUTH, "").lower() == "true"
    return lambda: ScramClient(mechanism, *login(), is_token=is_token)
