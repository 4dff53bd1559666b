"""JAAS notation, as Kafka reads it."""

from __future__ import annotations

import pytest

from barnabas.security.sasl.jaas import JaasError, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="a b;=";', {"username": "alice", "password": "a b;="}),
        (f"{PLAIN} REQUIRED username='it\"s' password=word-1_$.x ;", {"username": 'it"s', "password": "word-1_$.x"}),
        (f'{PLAIN} required\n  user_alice="s"\n\tuser_bob="t";\n', {"user_alice": "s", "user_bob": "t"}),
        (f'{PLAIN} optional password="\\"\\\\\\n\\101\\q";', {"password": '"\\\nAq'}),
        (f'{PLAIN} required // a comment\n /* another */ password="//no" / to the end\n;', {"password": "//no"}),
        (f'{PLAIN} required password="é€";', {"password": "é€"}),
        (f"{PLAIN} sufficient;", {}),
    ],
)
def test_entries(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert module.name == PLAIN
    assert module.options == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Login module not specified in JAAS config"),
        (";", "Login module not specified in JAAS config"),
        (PLAIN, "Login module control flag not specified in JAAS config"),
        (f"{PLAIN};", "Login module control flag is not available in the JAAS config"),
        (f"{PLAIN} needed;", "Invalid login module control flag 'needed' in JAAS config"),
        (f'{PLAIN} required username="a"', "JAAS config entry not terminated by semi-colon"),
        (f"{PLAIN} required username;", "Value not specified for key 'username' in JAAS config"),
        (f"{PLAIN} required username=;", "Value not specified for key 'username' in JAAS config"),
        (
            f"{PLAIN} required password=half secret;",
            "Value not specified for what follows key 'password' in JAAS config",
        ),
        (f"{PLAIN} required password=x pin=;", "Value not specified for key 'pin' in JAAS config"),
        (f"{PLAIN} required pin=1234;", "Value not specified for key 'pin' in JAAS config"),
        (f"{PLAIN} required; {PLAIN} required;", "JAAS config property contains 2 login modules, should be 1 module"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "JndiLoginModule is not allowed"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(JaasError, match=message.replace("'", ".")):
        parse_jaas(text)


def test_no_secret_is_shown() -> None:
    module = parse_jaas(f'{PLAIN} required username="alice" password="s3cret";')
    assert "s3cret" not in repr(module)
    with pytest.raises(JaasError) as caught:
        parse_jaas(f'{PLAIN} required password="s3cret" other=s3cret')
    assert "s3cret" not in str(caught.value)


def test_long_text_is_read_in_linear_time() -> None:
    options = "".join(f' user_{number}="{"x" * 50}"' for number in range(20_000))
    assert len(parse_jaas(f"{PLAIN} required{options};").options) == 20_000
