"""How OAUTHBEARER tokens are checked, made from the settings of a listener.

Source: OAuthBearerValidatorCallbackHandler, OAuthBearerUnsecuredValidatorCallbackHandler (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.common.clock import Clock
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.callbacks import load_callback
from barnabas.security.sasl.mechanism import ServerMechanism
from barnabas.security.sasl.oauthbearer import unsecured
from barnabas.security.sasl.oauthbearer.jwks import Jwks, JwksError
from barnabas.security.sasl.oauthbearer.server import OAuthBearerServer, Validate
from barnabas.security.sasl.oauthbearer.validator import Claims, JwtValidator
from barnabas.security.sasl.scopes import SERVER_HANDLER, Scope

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
#: Kafka's own handlers, recognized by name.
_SIGNED: Final = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
)
_UNSECURED: Final = (f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",)


def bearer_server(scope: Scope, clock: Clock) -> tuple[Callable[[], ServerMechanism], Jwks | None]:
    """Return what begins a login, and the keys to be kept current, if any; raises ConfigError."""
    validate, keys = _validator(scope, clock)
    return (lambda: OAuthBearerServer(validate)), keys


def _validator(scope: Scope, clock: Clock) -> tuple[Validate, Jwks | None]:
    handler = scope.own(SERVER_HANDLER)
    module = scope.login_module()
    options = {} if module is None else module.options
    asks_unsecured = handler in _UNSECURED or (
        handler is None and any(name.startswith(unsecured.PREFIX) for name in options)
    )
    if asks_unsecured:
        return _unsecured(scope, options, clock), None
    if handler is not None and handler not in _SIGNED:
        found: Callable[[str], Any] = load_callback(scope.name(SERVER_HANDLER), handler)
        return found, None
    url = scope.value("sasl.oauthbearer.jwks.endpoint.url")
    if not url:
        raise ConfigError(
            f"listener {scope.listener} uses OAUTHBEARER, so sasl.oauthbearer.jwks.endpoint.url must be set; for "
            f"tokens without a signature, an option {unsecured.PREFIX}Validator... in "
            f"{scope.name('sasl.jaas.config')}"
        )
    keys = _keys(scope, str(url), clock)
    return JwtValidator(keys, _expected(scope), clock.wall_ms), keys


def _unsecured(scope: Scope, options: Mapping[str, str], clock: Clock) -> Validate:
    try:
        return unsecured.make_validator(options, clock.wall_ms)
    except ValueError as error:
        raise ConfigError(f"{scope.name('sasl.jaas.config')}: {error}") from error


def _keys(scope: Scope, url: str, clock: Clock) -> Jwks:
    try:
        keys = Jwks(
            url,
            clock,
            refresh_ms=scope.value("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            retry_ms=scope.value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            retry_max_ms=scope.value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        )
        keys.read_file()
    except JwksError as error:
        raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from error
    return keys


def _expected(scope: Scope) -> Claims:
    issuer = scope.value("sasl.oauthbearer.expected.issuer")
    return Claims(
        frozenset(scope.value("sasl.oauthbearer.expected.audience")),
        issuer or None,
        scope.value("sasl.oauthbearer.clock.skew.seconds") * 1000,
        scope.value("sasl.oauthbearer.scope.claim.name"),
        scope.value("sasl.oauthbearer.sub.claim.name"),
    )
