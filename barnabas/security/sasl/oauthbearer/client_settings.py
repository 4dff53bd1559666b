"""How a node logs in to others by OAUTHBEARER, made from its settings.

Source: OAuthBearerLoginCallbackHandler, JwtRetrieverFactory (Kafka 4.3).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.common.clock import Clock
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.callbacks import load_callback
from barnabas.security.sasl.mechanism import ClientMechanism
from barnabas.security.sasl.oauthbearer import unsecured
from barnabas.security.sasl.oauthbearer.client import OAuthBearerClient
from barnabas.security.sasl.oauthbearer.login import (
    Backoff,
    ClientCredentials,
    ProviderTokens,
    Refresh,
    token_of_file,
)
from barnabas.security.sasl.oauthbearer.web import TIMEOUT_MS, Web, WebError, check_url, tls_of
from barnabas.security.sasl.scopes import JAAS, LOGIN_HANDLER, Scope

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
#: Kafka's own classes, recognized by name; the address decides between the last two.
_RETRIEVERS: Final = tuple(
    f"{_PACKAGE}{name}" for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
)
_OPTION: Final = "extension_"


def login_by_token(scope: Scope, clock: Clock) -> Callable[[str], ClientMechanism]:
    """Return what begins a login; raises ConfigError."""
    token: Callable[[], str]
    handler = scope.own(LOGIN_HANDLER)
    module = scope.required_login_module() if handler is None else scope.login_module()
    options: Mapping[str, str] = {} if module is None else module.options
    if handler is not None and not handler.startswith("org.apache.kafka."):
        token = load_callback(scope.name(LOGIN_HANDLER), handler)
    elif any(name.startswith(f"{unsecured.PREFIX}Login") for name in options):
        token = _unsecured(scope, options, clock)
    else:
        token = _from_endpoint(scope, options, clock)
    extensions = {name.removeprefix(_OPTION): text for name, text in options.items() if name.startswith(_OPTION)}
    return lambda _host: OAuthBearerClient(token, extensions)


def _unsecured(scope: Scope, options: Mapping[str, str], clock: Clock) -> Callable[[], str]:
    try:
        unsecured.make_token(options, clock.wall_ms())
    except Exception as error:
        raise ConfigError(f"{scope.name(JAAS)}: {error}") from error
    return lambda: unsecured.make_token(options, clock.wall_ms())


def _from_endpoint(scope: Scope, options: Mapping[str, str], clock: Clock) -> Callable[[], str]:
    url = scope.value(_URL)
    if not url:
        raise ConfigError(f"listener {scope.listener} uses {scope.mechanism}, so {_URL} must be set to log in")
    try:
        check_url(url)
    except WebError as error:
        raise ConfigError(f"{_URL}: {error}") from error
    retriever = scope.value(_RETRIEVER)
    fitting = (_RETRIEVERS[0], _RETRIEVERS[2 if url.startswith("file:") else 1])
    if retriever not in fitting:
        raise ConfigError(f"{_RETRIEVER}={retriever} is not supported: with {_URL}={url} it can be {fitting[1]}")
    if url.startswith("file:"):
        read = Web().read
        return lambda: token_of_file(url, read)
    secret = scope.value("sasl.oauthbearer.client.credentials.client.secret")
    credentials = ClientCredentials(
        scope.value("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId", ""),
        secret.value if secret is not None else options.get("clientSecret", ""),
        scope.value("sasl.oauthbearer.scope") or options.get("scope"),
    )
    if not credentials.client_id or not credentials.secret:
        raise ConfigError(
            f"{_URL}={url} needs sasl.oauthbearer.client.credentials.client.id and "
            "sasl.oauthbearer.client.credentials.client.secret"
        )
    web = Web(
        tls_of(scope, options, clock.wall_ms()),
        scope.value("sasl.login.connect.timeout.ms") or TIMEOUT_MS,
        scope.value("sasl.login.read.timeout.ms") or TIMEOUT_MS,
    )
    refresh = Refresh(
        scope.value("sasl.login.refresh.window.factor"),
        scope.value("sasl.login.refresh.window.jitter"),
        scope.value("sasl.login.refresh.min.period.seconds"),
        scope.value("sasl.login.refresh.buffer.seconds"),
    )
    backoff = Backoff(scope.value("sasl.login.retry.backoff.ms"), scope.value("sasl.login.retry.backoff.max.ms"))
    return ProviderTokens(url, credentials, clock, web.read, refresh=refresh, backoff=backoff, chance=random.random)
