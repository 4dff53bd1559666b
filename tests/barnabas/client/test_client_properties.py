"""A client's security settings, for our connections and for librdkafka."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from barnabas.client.client_properties import ClientProperties
from barnabas.cluster.security.authority import Authority
from barnabas.common.clock import SystemClock
from barnabas.config.errors import ConfigError

CLOCK = SystemClock()


def loaded(directory: Path, text: str) -> ClientProperties:
    """The properties of a file with this text."""
    path = directory / "client.properties"
    path.write_text(text)
    return ClientProperties.load(path, CLOCK)


def test_without_a_protocol_nothing_is_secured(tmp_path: Path) -> None:
    properties = loaded(tmp_path, "bootstrap.servers=h:1\nacks=all\n")
    assert properties.security() is None
    assert properties.librdkafka() == {"security.protocol": "PLAINTEXT"}
    assert properties.bootstrap == "h:1"
    assert properties.without_effect() == []


def test_stores_become_pem_for_librdkafka(tmp_path: Path) -> None:
    authority = Authority(tmp_path, CLOCK.wall_ms())
    data = authority.issue("alice.pem", "alice").read_bytes()
    own, issuer = x509.load_pem_x509_certificates(data)
    key = load_pem_private_key(data, None)
    store = pkcs12.serialize_key_and_certificates(b"alice", key, own, [issuer], BestAvailableEncryption(b"secret"))  # type: ignore[arg-type]
    (tmp_path / "alice.p12").write_bytes(store)
    properties = loaded(
        tmp_path,
        "security.protocol=ssl\nssl.keystore.type=PKCS12\nssl.keystore.password=secret\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={tmp_path}/alice.p12\nssl.truststore.location={authority.certificate_file}\n"
        "ssl.endpoint.identification.algorithm=\n",
    )
    found = properties.librdkafka()
    assert found["security.protocol"] == "SSL"
    assert x509.load_pem_x509_certificates(found["ssl.ca.pem"].encode()) == [issuer]
    assert x509.load_pem_x509_certificates(found["ssl.certificate.pem"].encode()) == [own, issuer]
    assert load_pem_private_key(found["ssl.key.pem"].encode(), None)
    assert found["ssl.endpoint.identification.algorithm"] == "none"
    security = properties.security()
    assert security is not None
    assert security.session("broker") is not None


def test_cipher_suites_have_the_names_of_openssl(tmp_path: Path) -> None:
    found = loaded(
        tmp_path, "security.protocol=SSL\nssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\n"
    ).librdkafka()
    assert found["ssl.cipher.suites"] == "ECDHE-RSA-AES256-GCM-SHA384"
    assert found["ssl.endpoint.identification.algorithm"] == "https"
    assert "ssl.ca.pem" not in found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("security.protocol=TLS\n", "security.protocol=TLS is not supported"),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/nosuch\n", "/nosuch"),
        ("security.protocol=SSL\nssl.truststore.type=odd\n", "ssl.truststore.type=odd is not supported"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        loaded(tmp_path, text).librdkafka()
    assert "\n" not in str(raised.value)


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_by_password(tmp_path: Path, mechanism: str) -> None:
    properties = loaded(
        tmp_path,
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={PLAIN if mechanism == "PLAIN" else SCRAM} username="alice" password="se\\\\"cret";\n',
    )
    assert properties.librdkafka() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": 'se"cret',
    }
    security = properties.security()
    assert security is not None
    assert security.tls is None
    assert security.login is not None
    assert security.login.mechanism == mechanism
    assert security.login.begin("localhost").first()
    assert properties.without_effect() == []


def test_a_token_is_asked_for_when_it_is_needed(tmp_path: Path) -> None:
    payload = base64.urlsafe_b64encode(b'{"sub": "alice", "exp": 1900000000}').decode().rstrip("=")
    (tmp_path / "token").write_text(f"e30.{payload}.c2ln")
    properties = loaded(
        tmp_path,
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{tmp_path}/token\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n",
    )
    assert properties.librdkafka()["oauth_cb"]("") == (f"e30.{payload}.c2ln", 1_900_000_000)
    assert properties.without_effect() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "security.protocol=SASL_SSL needs sasl.mechanism, such as SCRAM-SHA-512"),
        ("sasl.mechanism=PLAIN\n", "^the client uses PLAIN, so sasl.jaas.config must be set"),
        (
            f"sasl.mechanism=PLAIN\nsasl.jaas.config={SCRAM};\n",
            "^sasl.jaas.config: .* is no login module of PLAIN: use",
        ),
        (
            "sasl.mechanism=OAUTHBEARER\nsasl.jaas.config="
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n",
            "^the client uses OAUTHBEARER, so sasl.oauthbearer.token.endpoint.url must be set to log in$",
        ),
        (f"sasl.mechanism=PLAIN\nsasl.jaas.config={SCRAM} username=secret", "^sasl.jaas.config: "),
        ("sasl.mechanism=DIGEST\n", "sasl.mechanism=DIGEST is not supported"),
        (
            f'sasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM} username=a password=secret tokenauth="true";\n',
            "librdkafka cannot log in with a delegation token",
        ),
    ],
)
def test_a_mistake_in_a_login_is_one_line_without_secrets(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        loaded(tmp_path, f"security.protocol=SASL_SSL\n{text}").librdkafka()
    assert "secret" not in str(raised.value)
    assert "listener.name" not in str(raised.value)


def test_settings_that_are_not_followed_are_named(tmp_path: Path) -> None:
    text = "ssl.engine.factory.class=x\nlinger.ms=5\nssl.key.password=x\n"
    assert loaded(tmp_path, text).without_effect() == ["ssl.engine.factory.class"]


def test_values_come_from_config_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    monkeypatch.setenv("CLIENT_MECHANISM", "SCRAM-SHA-256")
    package = "org.apache.kafka.common.config.provider"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    text = (
        f"config.providers=dir,env\nconfig.providers.dir.class={package}.DirectoryConfigProvider\n"
        f"config.providers.env.class={package}.EnvVarConfigProvider\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=${env:CLIENT_MECHANISM}\nclient.rack=${vault:rack}\n"
    )
    (tmp_path / "jaas").write_text(f'{login} required username="alice" password="s3cret";')
    properties = loaded(tmp_path, f"{text}sasl.jaas.config=${{dir:{tmp_path}:jaas}}\n")
    found = properties.librdkafka()
    assert (found["sasl.mechanism"], found["sasl.username"], found["sasl.password"]) == (
        "SCRAM-SHA-256", "alice", "s3cret",
    )  # fmt: skip
    assert properties.warnings == ("client.rack: ${vault:...} is not replaced, config.providers has no 'vault'",)
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config: .* has no file absent"):
        loaded(tmp_path, f"{text}sasl.jaas.config=${{dir:{tmp_path}:absent}}\n")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        ClientProperties.load(tmp_path / "nosuch", CLOCK)
