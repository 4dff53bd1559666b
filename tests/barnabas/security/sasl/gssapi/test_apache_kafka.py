"""Rules give principals the names that Apache Kafka's own class gives them. Tests names.py."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.config.errors import ConfigError
from barnabas.security.sasl.gssapi.names import KerberosNameError, ShortNamer
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import SMALL_JVM

SOURCE = Path(__file__).with_name("NamesCheck.java")
CASES = 6000
SEED = 7

REALMS = ("R", "R", "R", "EXAMPLE.COM", "")
NAMES = ("alice", "Alice", "kafka", "App.Web", "a", "", "svc-1", "bob$", "o'x", "ÄÖ", "aaa", "a.b")
HOSTS = (None, None, "h1.example.com", "admin", "", "localhost")
#: What rules are made of, and what makes a rule invalid.
COUNTS = ("1", "1", "2", "02"), ("3", "0", "")
FORMATS = ("$1", "$1", "$0x", "x$1y", "", "$1$1", "$01", "a$1.b", "$1@$0", "$1;$2"), ("a$3", "$", "$1$")
MATCHES = (
    (None, None, ".*", "a.*", "App\\..*", "[a-z]+", "^alice$", ".*@R", "a|kafka", "\\w+", "[^;]*", ""),
    ("(.*", "["),
)
SOURCES = ("a", "App\\.", "@.*", ".*", "a*", "([a-z])([a-z])", ";.*", "^", "$", "(a)?", "", "A", "[.]"), ("(a", "*")
TARGETS = ("", "$0", "x", "\\$1", "x$0y", "$00", "\\\\", "-", "é"), ("$", "$1", "$2$1", "\\", "$9", "${a}")
CASES_OF = ("", "", "/L", "/U", "/", "L", "U"), ("/LU", "/g", "/l")


def one_of(rng: random.Random, good_and_bad: tuple[Sequence[Any], Sequence[Any]]) -> Any:
    good, bad = good_and_bad
    return rng.choice(bad if rng.random() < 0.03 else good)


def a_rule(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return str(one_of(rng, (("DEFAULT",), ("DEFAULTS", "default", "", "RULE:"))))
    match = one_of(rng, MATCHES)
    text = f"RULE:[{one_of(rng, COUNTS)}:{one_of(rng, FORMATS)}]"
    text += "" if match is None else f"({match})"
    if rng.random() < 0.5:
        source = one_of(rng, SOURCES)
        target = rng.choice(("$1", "<$1$2>", "$12")) if source.startswith("([a-z") else one_of(rng, TARGETS)
        text += f"s/{source}/{target}/{rng.choice(('', 'g'))}"
    return text + str(one_of(rng, CASES_OF))


def a_case(rng: random.Random) -> tuple[str, str, list[str]]:
    host, realm = rng.choice(HOSTS), rng.choice(REALMS)
    principal = rng.choice(NAMES) + ("" if host is None else f"/{host}") + (f"@{realm}" if rng.random() < 0.95 else "")
    if rng.random() < 0.05:
        principal += rng.choice(("@R", "/x", "@"))
    return rng.choice(REALMS), principal, [a_rule(rng) for _ in range(rng.choice((1, 1, 2, 3)))]


def our_answer(realm: str, principal: str, rules: list[str]) -> str:
    try:
        return "=" + ShortNamer(rules, realm).short_name(principal)
    except ConfigError:
        return "refused at start"
    except KerberosNameError as error:
        return "IllegalArgumentException" if "Malformed" in str(error) else "NoMatchingRule"


def test_names_agree(apache_runtime: KafkaRuntime) -> None:
    rng = random.Random(SEED)
    cases = [a_case(rng) for _ in range(CASES)]
    lines = "".join("\t".join((realm, principal, *rules)) + "\n" for realm, principal, rules in cases)
    command = apache_runtime.command("NamesCheck", *SMALL_JVM, classes=apache_runtime.compiled(SOURCE))
    output = subprocess.run(command, input=lines.encode(), capture_output=True, check=True).stdout
    seen: Counter[str] = Counter()
    for case, theirs in zip(cases, output.decode().splitlines(), strict=True):
        ours = our_answer(*case)
        if ours == "refused at start":
            seen[ours] += 1  # Kafka answers if it needs no rule that could fail
            continue
        assert ours == theirs, case
        seen[theirs[:1] if theirs.startswith("=") else theirs] += 1
    assert seen["="] > CASES // 4
    assert seen["NoMatchingRule"] > CASES // 4
    assert seen["refused at start"] < CASES // 3
    assert seen["IllegalArgumentException"] > 50


def test_what_kafka_refuses_at_start_is_refused_here(apache_runtime: KafkaRuntime) -> None:
    """A principal without a realm is a user whatever the rules are, unless they cannot be read."""
    rng = random.Random(SEED + 1)
    rules = [a_rule(rng) for _ in range(2000)]
    lines = "".join(f"R\tsimple\t{rule}\n" for rule in rules)  # without a realm no rule is applied
    command = apache_runtime.command("NamesCheck", *SMALL_JVM, classes=apache_runtime.compiled(SOURCE))
    output = subprocess.run(command, input=lines.encode(), capture_output=True, check=True).stdout
    refused = 0
    for rule, theirs in zip(rules, output.decode().splitlines(), strict=True):
        if theirs != "=simple":
            refused += 1
            assert our_answer("R", "simple", [rule]) == "refused at start", rule
    assert refused > 100
