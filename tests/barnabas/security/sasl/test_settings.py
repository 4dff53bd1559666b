"""SASL from settings. Tests scopes.py, server_settings.py, client_settings.py, oauthbearer/server_settings.py and
oauthbearer/client_settings.py.
"""

from __future__ import annotations

import pytest

from barnabas.common.clock import FakeClock
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.security.image import SecurityImage
from barnabas.security.sasl.client_settings import client_login
from barnabas.security.sasl.mechanism import InvalidCredentialsError
from barnabas.security.sasl.oauthbearer.server import OAuthBearerServer
from barnabas.security.sasl.plain import PlainServer
from barnabas.security.sasl.scopes import Scope, false_salt_secret
from barnabas.security.sasl.scram.server import ScramServer
from barnabas.security.sasl.server_settings import Credentials, ServerSettings, server_settings
from barnabas.security.values import ScramCredential
from tests.barnabas.security.sasl.test_scram import Users

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="n" password="s" user_alice="t";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="n" password="s"'
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
L = "listener.name.outside."


def make(properties: dict[str, str]) -> ServerSettings:
    found = Config.from_properties({"node.id": "1", **properties})
    return server_settings(found, "OUTSIDE", Credentials(Users(alice="t"), lambda: b"secret"), FakeClock())


def check_right_password(user: str, password: str) -> bool:
    """A callback."""
    return (user, password) == ("from", "callback")


def test_a_setting_is_found_from_the_nearest_to_all() -> None:
    scope = Scope(Config.from_properties({"node.id": "1", "connections.max.reauth.ms": "1"}), "OUTSIDE", "PLAIN")
    assert scope.value("connections.max.reauth.ms") == 1
    properties = {"node.id": "1", "connections.max.reauth.ms": "1", f"{L}connections.max.reauth.ms": "2"}
    assert Scope(Config.from_properties(properties), "Outside", "PLAIN").value("connections.max.reauth.ms") == 2
    properties[f"{L}plain.connections.max.reauth.ms"] = "3"
    assert Scope(Config.from_properties(properties), "OUTSIDE", "PLAIN").value("connections.max.reauth.ms") == 3
    assert Scope(Config.from_properties(properties), "OUTSIDE", "GSSAPI").value("connections.max.reauth.ms") == 2


def test_several_mechanisms() -> None:
    settings = make(
        {
            "sasl.enabled.mechanisms": "GSSAPI",
            f"{L}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256,OAUTHBEARER",
            f"{L}plain.sasl.jaas.config": PLAIN,
            f"{L}oauthbearer.sasl.jaas.config": OAUTH + ' unsecuredValidatorAllowableClockSkewMs="10";',
            f"{L}plain.connections.max.reauth.ms": "5000",
            "sasl.server.max.receive.size": "1000",
            f"{L}connection.failed.authentication.delay.ms": "7",
        }
    )
    assert list(settings.mechanisms) == ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER"]
    made = [type(begin()) for begin in settings.mechanisms.values()]
    assert made == [PlainServer, ScramServer, ScramServer, OAuthBearerServer]
    assert settings.max_reauth_ms["PLAIN"] == 5000
    assert settings.max_reauth_ms["OAUTHBEARER"] == 0
    assert (settings.receive_bytes_max, settings.failure_delay_ms) == (1000, 7)
    plain = settings.mechanisms["PLAIN"]()
    plain.evaluate(b"\0alice\0t")
    assert plain.identity is not None


def test_a_callback_checks_passwords() -> None:
    settings = make(
        {
            "sasl.enabled.mechanisms": "PLAIN",
            f"{L}plain.sasl.server.callback.handler.class": f"{__name__}:check_right_password",
        }
    )
    plain = settings.mechanisms["PLAIN"]()
    plain.evaluate(b"\0from\0callback")
    assert plain.identity is not None


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "uses GSSAPI, so listener.name.outside.gssapi.sasl.jaas.config must be set; it is the default of"),
        (
            {"sasl.enabled.mechanisms": "DIGEST-MD5"},
            "has DIGEST-MD5, which is not supported here; supported are PLAIN,",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN"},
            "listener OUTSIDE uses PLAIN, so listener.name.outside.plain.sasl.jaas.config must be set",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", f"{L}plain.sasl.jaas.config": "x"},
            "listener.name.outside.plain.sasl.jaas.config: Login module control flag not specified",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", f"{L}plain.sasl.jaas.config": PLAIN.replace("user_alice", "user")},
            "has no option user_NAME",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                f"{L}plain.sasl.server.callback.handler.class": "org.example.Handler",
            },
            "Java classes cannot be loaded here",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                f"{L}scram-sha-256.sasl.server.callback.handler.class": "os:path",
            },
            "SCRAM has its credentials in the metadata log",
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url must be set"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", f"{L}oauthbearer.sasl.jaas.config": OAUTH + ";"},
            "sasl.oauthbearer.jwks.endpoint.url must be set; for tokens without a signature",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "http://example.org/keys",
            },
            "is neither a file: nor an https: address",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{L}oauthbearer.sasl.jaas.config": OAUTH + ' unsecuredValidatorAllowableClockSkewMs="-1";',
            },
            "must not be negative",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://example.org/keys",
                f"{L}oauthbearer.sasl.jaas.config": OAUTH + ' ssl.truststore.type="PEM" ssl.truststore.location="/no";',
            },
            "listener.name.outside.oauthbearer.sasl.jaas.config: .*/no",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://example.org/keys",
                f"{L}sasl.oauthbearer.jwt.validator.class": "org.example.Mine",
            },
            "sasl.oauthbearer.jwt.validator.class=org.example.Mine is not supported: it can be .*BrokerJwtValidator",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://example.org/keys",
                "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "0",
            },
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms=0: it must be at least 1",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_start(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make(properties)
    assert "\n" not in str(caught.value)


def test_unsigned_tokens_are_refused_unless_asked_for() -> None:
    unsigned = {"sasl.enabled.mechanisms": "OAUTHBEARER", f"{L}oauthbearer.sasl.jaas.config": OAUTH + ";"}
    handler = (
        "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    )
    assert make({**unsigned, f"{L}oauthbearer.sasl.server.callback.handler.class": handler})
    with pytest.raises(ConfigError):
        make(unsigned)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_node_logs_in_to_another(mechanism: str) -> None:
    """The client and the server that are made from the settings of one listener."""
    properties = {
        "node.id": "1",
        "sasl.enabled.mechanisms": mechanism,
        f"{L}plain.sasl.jaas.config": PLAIN.replace("user_alice", 'user_n="s" user_alice'),
        f"{L}scram-sha-256.sasl.jaas.config": SCRAM + ";",
        f"{L}scram-sha-512.sasl.jaas.config": SCRAM + ";",
        f"{L}oauthbearer.sasl.jaas.config": OAUTH + ' unsecuredLoginStringClaim_sub="n";',
    }
    found = Config.from_properties(properties)
    from barnabas.security.values import ScramMechanism

    sha = ScramMechanism.SCRAM_SHA_512 if mechanism.endswith("512") else ScramMechanism.SCRAM_SHA_256
    clock = FakeClock()
    server = server_settings(found, "OUTSIDE", Credentials(Users(sha, n="s"), lambda: b""), clock).mechanisms[
        mechanism
    ]()
    client = client_login(found, "OUTSIDE", mechanism, "key", clock).begin("localhost")
    token: bytes | None = client.first()
    while token is not None:
        token = client.evaluate(server.evaluate(token))
    assert client.is_complete
    assert server.identity is not None
    assert server.identity.principal == "User:n"


@pytest.mark.parametrize(
    ("mechanism", "properties", "message"),
    [
        ("DIGEST-MD5", {}, "key=DIGEST-MD5 is not supported: it can be PLAIN"),
        ("GSSAPI", {}, "listener.name.outside.gssapi.sasl.jaas.config must be set"),
        ("PLAIN", {}, "listener.name.outside.plain.sasl.jaas.config must be set"),
        ("PLAIN", {f"{L}plain.sasl.jaas.config": PLAIN.replace("password=", "pass=")}, "has no username and password"),
        ("OAUTHBEARER", {}, "listener.name.outside.oauthbearer.sasl.jaas.config must be set"),
        (
            "OAUTHBEARER",
            {f"{L}oauthbearer.sasl.jaas.config": OAUTH + ";"},
            "sasl.oauthbearer.token.endpoint.url must be set",
        ),
        (
            "OAUTHBEARER",
            {
                f"{L}oauthbearer.sasl.jaas.config": OAUTH + ";",
                "sasl.oauthbearer.token.endpoint.url": "https://example.org/token",
            },
            "needs sasl.oauthbearer.client.credentials.client.id",
        ),
        (
            "OAUTHBEARER",
            {
                f"{L}oauthbearer.sasl.jaas.config": OAUTH + ' clientId="a" clientSecret="b" ssl.truststore.type="DER";',
                "sasl.oauthbearer.token.endpoint.url": "https://example.org/token",
            },
            "listener.name.outside.oauthbearer.sasl.jaas.config: ssl.truststore.type=DER is not supported",
        ),
        (
            "OAUTHBEARER",
            {
                f"{L}oauthbearer.sasl.jaas.config": OAUTH + ";",
                "sasl.oauthbearer.token.endpoint.url": "file:///token",
                "sasl.oauthbearer.jwt.retriever.class": (
                    "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever"
                ),
            },
            "jwt.retriever.class=.* is not supported: with .*=file:///token it can be .*FileJwtRetriever",
        ),
    ],
)
def test_a_login_that_cannot_work_is_refused_at_start(mechanism: str, properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client_login(Config.from_properties({"node.id": "1", **properties}), "OUTSIDE", mechanism, "key", FakeClock())


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", SCRAM), ("SCRAM-SHA-512", PLAIN[:-1]), ("OAUTHBEARER", SCRAM), ("GSSAPI", SCRAM)],
)
def test_a_login_module_of_another_mechanism_is_refused(mechanism: str, module: str) -> None:
    key = f"{L}{mechanism.lower()}.sasl.jaas.config"
    for entry in (f'{module} user_alice="t";', PLAIN.replace("PlainLogin", "PlianLogin")):
        name = entry.split()[0]
        properties = {"sasl.enabled.mechanisms": mechanism, key: entry}
        with pytest.raises(ConfigError, match=f"{key}: {name} is no login module of {mechanism}: use .*LoginModule$"):
            make(properties)
        with pytest.raises(ConfigError, match=f"{name} is no login module of {mechanism}"):
            client_login(Config({"node.id": "1", **properties}), "OUTSIDE", mechanism, "key", FakeClock())


def test_a_login_module_may_have_a_shaded_name() -> None:
    """Applications that contain Kafka's client rename its packages, as kafkashaded.org.apache.kafka."""
    entry = f'kafkashaded.{PLAIN[:-1]} username="a" password="b" user_alice="t";'
    properties = {"sasl.enabled.mechanisms": "PLAIN", f"{L}plain.sasl.jaas.config": entry}
    assert make(properties)
    assert client_login(Config({"node.id": "1", **properties}), "OUTSIDE", "PLAIN", "key", FakeClock())
    properties[f"{L}plain.sasl.jaas.config"] = entry.replace("kafkashaded.", "x")
    with pytest.raises(ConfigError, match="is no login module of PLAIN"):
        make(properties)


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_callback_may_go_with_any_login_module(mechanism: str) -> None:
    prefix = f"{L}{mechanism.lower()}.sasl."
    properties = {
        "sasl.enabled.mechanisms": mechanism,
        f"{prefix}jaas.config": "org.example.Module required;",
        f"{prefix}server.callback.handler.class": f"{__name__}:check_right_password",
        f"{prefix}login.callback.handler.class": f"{__name__}:check_right_password",
    }
    assert make(properties)
    assert client_login(Config({"node.id": "1", **properties}), "OUTSIDE", mechanism, "key", FakeClock())


def test_false_salts_are_those_of_a_cluster() -> None:
    plain = Config.from_properties({"node.id": "1"})
    keyed = Config.from_properties({"node.id": "1", "delegation.token.secret.key": "k"})
    logged = SecurityImage(false_salts=ScramCredential(b"", b"secret", b"", 4096))
    secrets = {
        (config is keyed, cluster, image is logged): false_salt_secret(config, cluster, image)
        for config in (plain, keyed)
        for cluster in ("a", "b")
        for image in (SecurityImage(), logged)
    }
    assert len(set(secrets.values())) == 6
    for cluster in ("a", "b"):
        assert secrets[True, cluster, False] == secrets[True, cluster, True], "the key alone decides, if there is one"


def test_a_user_of_scram_without_a_credential_fails() -> None:
    settings = make({"sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    server = settings.mechanisms["SCRAM-SHA-256"]()
    nonce = server.evaluate(b"n,,n=nobody,r=abc").split(b",")[0]
    with pytest.raises(InvalidCredentialsError):
        server.evaluate(b"c=biws," + nonce + b",p=AAAA")
