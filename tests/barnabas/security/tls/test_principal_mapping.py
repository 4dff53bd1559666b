"""ssl.principal.mapping.rules, with the examples of Kafka's documentation (KIP-371)."""

from __future__ import annotations

import pytest

from barnabas.config.errors import ConfigError
from barnabas.security.tls.principal_mapping import PrincipalMapper

NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
RULES = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", NAME, NAME),
        (" DEFAULT ", NAME, NAME),
        (RULES, NAME, "Duke"),
        (RULES, "CN=adminUser,OU=Admin,O=U,L=U,ST=U,C=U", "adminuser@admin"),
        (RULES, "OU=x,cn=Web.1,O=y", "WEB.1"),
        (RULES, "O=none", "O=none"),
        ("RULE:^CN=(.*?),.*$/$1/", "O=none", None),
        ("", NAME, None),
        ("RULE:x/y/, ,DEFAULT,", NAME, NAME),
        ("RULE:.*/x/", "abc", "xx"),  # Java's replaceAll: the empty match at the end counts
        ("RULE:(.*)/$1/", "abc", "abc"),
        ("RULE:CN=(.*)/$1$2$0/", "CN=a", "a$2CN=a"),
        ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
        (r"RULE:CN=(.*)/\$1\\$1/", "CN=a", r"$1\a"),
        (r"RULE:CN=(.*)\/(.*)/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:CN=(a)?.*/<$1>/", "CN=b", "<>"),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, name: str, user: str | None) -> None:
    assert PrincipalMapper(rules).user_name(name) == user


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/X",
        "DEFAULT x",
        "RULE:(/b/",
        "RULE:a/$1/",
        "RULE:(a)/$/",
        "RULE:(?=a)/b/",
    ],
)
def test_other_notations_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules") as caught:
        PrincipalMapper(rules)
    assert "\n" not in str(caught.value)


def test_a_bad_name_costs_no_more_than_a_good_one() -> None:
    assert PrincipalMapper("RULE:(a*)*b/$1/").user_name("a" * 5000) is None


def test_a_very_long_name_matches_no_pattern() -> None:
    """An authority may sign any name, and a pattern may match at each of its characters."""
    mapper = PrincipalMapper("RULE:[ab]*?b?/y/,DEFAULT")
    assert mapper.user_name("a" * 4096) != "a" * 4096
    assert mapper.user_name("a" * 4097) == "a" * 4097
    assert PrincipalMapper("RULE:.*/y/").user_name("a" * 4097) is None
