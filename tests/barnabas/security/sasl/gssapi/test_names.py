r"""Principals and rules, with examples of KerberosNameTest (Kafka 4.3); test_apache_kafka.py compares many more."""

from __future__ import annotations

import pytest

from barnabas.config.errors import ConfigError
from barnabas.security.patterns import NAME_MAX
from barnabas.security.sasl.gssapi.names import KerberosName, KerberosNameError, ShortNamer, parse_name

RULES = (
    r"RULE:[1:$1]/L",
    r"RULE:[2:$1](Test.*)s/ABC///L",
    r"RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/L",
    r"RULE:[2:$1;$2@$0](.*;admin@R)s/;.*//",
    r"RULE:[2:$1]/U",
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a/b@R", KerberosName("a", "b", "R")),
        ("a@R", KerberosName("a", None, "R")),
        ("a/@R", KerberosName("a", "", "R")),
        ("a/b", KerberosName("a/b", None, None)),
        ("", KerberosName("", None, None)),
    ],
)
def test_a_principal_has_up_to_three_parts(text: str, name: KerberosName) -> None:
    assert parse_name(text) == name


@pytest.mark.parametrize("text", ["a/b/c@R", "a@R/b", "a@b@R", "@@"])
def test_other_principals_are_malformed(text: str) -> None:
    with pytest.raises(KerberosNameError, match="Malformed Kerberos name"):
        parse_name(text)


@pytest.mark.parametrize(
    ("principal", "user"),
    [
        ("User@R", "user"),
        ("TestABC/host@FOO.COM", "test"),
        ("ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
        ("App.SERVICE-name/example.com@REALM.COM", "service-name"),
        ("carol/admin@R", "carol"),
        ("carol/admin@S", "CAROL"),
        ("without realm", "without realm"),
    ],
)
def test_the_first_rule_that_applies_decides(principal: str, user: str) -> None:
    assert ShortNamer(RULES, "R").short_name(principal) == user


def test_the_default_is_for_the_default_realm() -> None:
    namer = ShortNamer(["DEFAULT"], "R")
    assert namer.short_name("kafka/host@R") == "kafka"
    with pytest.raises(KerberosNameError, match=r"no rule of .* applies to kafka/host@S"):
        namer.short_name("kafka/host@S")


def test_a_result_that_is_not_simple_ends_the_search() -> None:
    with pytest.raises(KerberosNameError, match="not simple"):
        ShortNamer(["RULE:[1:$1@$0]", "DEFAULT"], "R").short_name("a@R")


def test_long_names_are_refused() -> None:
    namer = ShortNamer(["RULE:[1:$1$1]"], "R")
    assert namer.short_name("a" * (NAME_MAX // 2 - 2) + "@R")
    for length in (NAME_MAX // 2 + 1, NAME_MAX):
        with pytest.raises(KerberosNameError, match=r"more than|too long"):
            namer.short_name("a" * length + "@R")


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "rule:[1:$1]",
        "RULE:[1:$1]/L/U",
        "RULE:[1:$1]/LU",
        "RULE:[1:$1/L",
        "RULE:[1:$1]/l",
        "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g",
        "RULE:[:$1]",
        "RULE:[1:$]",
        "RULE:[1:$2]",
        "RULE:[99999999999:$1]",
        "RULE:[1:$99999999999]",
        "RULE:[1:$1](a[)",
        "RULE:[1:$1]((?=a))",
        "RULE:[1:$1]s/(a)/$2/",
        "RULE:[1:$1]s/a/$/",
        "RULE:[1:$1]s/a/${x}/",
        "RULE:[1:$1]s/a/\\/",
    ],
)
def test_a_rule_that_could_fail_a_login_is_refused_at_start(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules") as caught:
        ShortNamer([rule], "R")
    assert "\n" not in str(caught.value)
