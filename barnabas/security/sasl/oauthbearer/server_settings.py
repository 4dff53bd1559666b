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
from barnabas.security.sasl.oauthbearer.jwks import Jwks
from barnabas.security.sasl.oauthbearer.server import OAuthBearerServer, Validate
from barnabas.security.sasl.oauthbearer.validator import Claims, JwtValidator
from barnabas.security.sasl.oauthbearer.web import Web, WebError, check_url, tls_of
from barnabas.security.sasl.scopes import SERVER_HANDLER, Scope

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
#: Kafka's own handlers, recognized by name.
_SIGNED: Final = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
)
_REFRESH: Final = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
_RETRY: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
_RETRY_MAX: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
_VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"
_VALIDATORS: Final = (f"{_PACKAGE}DefaultJwtValidator", f"{_PACKAGE}BrokerJwtValidator")
_UNSECURED: Final = (f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",)


def bearer_server(scope: Scope, clock: Clock) -> tuple[Callable[[], ServerMechanism], Jwks | None]:
    """Return what begins a login, and the keys to be kept current, if any; raises ConfigError."""
    validate, keys = _validator(scope, clock)
    return (lambda: OAuthBearerServer(validate)), keys


def _validator(scope: Scope, clock: Clock) -> tuple[Validate, Jwks | None]:
    handler = scope.own(SERVER_HANDLER)
    module = scope.login_module()
    options: Mapping[str, str] = {} if module is None else module.options
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
    checker = scope.value(_VALIDATOR)
    if checker not in _VALIDATORS:
        raise ConfigError(f"{_VALIDATOR}={checker} is not supported: it can be {_VALIDATORS[1]}")
    keys = _keys(scope, str(url), options, clock)
    return JwtValidator(keys, _expected(scope), clock.wall_ms), keys


def _unsecured(scope: Scope, options: Mapping[str, str], clock: Clock) -> Validate:
    try:
        return unsecured.make_validator(options, clock.wall_ms)
    except ValueError as error:
        raise ConfigError(f"{scope.name('sasl.jaas.config')}: {error}") from error


def _keys(scope: Scope, url: str, options: Mapping[str, str], clock: Clock) -> Jwks:
    refresh_ms = scope.value(_REFRESH)
    retry_ms = scope.value(_RETRY)
    retry_max_ms = scope.value(_RETRY_MAX)
    for key, pause_ms in ((_REFRESH, refresh_ms), (_RETRY, retry_ms), (_RETRY_MAX, retry_max_ms)):
        if pause_ms < 1:  # the provider would be asked without a pause
            raise ConfigError(f"{key}={pause_ms}: it must be at least 1")
    try:
        check_url(url)
        keys = Jwks(
            url,
            clock,
            Web(tls_of(scope, options, clock.wall_ms()) if url.startswith("https:") else None).read,
            refresh_ms=refresh_ms,
            retry_ms=retry_ms,
            retry_max_ms=retry_max_ms,
        )
        keys.read_file()
    except WebError as error:
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
