"""`barnabas config keys`."""

from __future__ import annotations

import json

import pytest

from barnabas.config.table.keys import DYNAMIC_KEYS, TABLE
from tests.barnabas.cli.conftest import Barnabas


def test_every_key_is_listed(barnabas: Barnabas) -> None:
    rows = json.loads(barnabas("config", "keys", "--json").out)
    assert len(rows) == len(TABLE) + len(DYNAMIC_KEYS)
    assert all(row["doc"] and row["type"] and row["scope"] for row in rows)


def test_a_row_has_type_default_bounds_and_whether_it_is_dynamic(barnabas: Barnabas) -> None:
    outcome = barnabas("config", "keys", "num.io.")
    assert outcome.out.splitlines()[0] == "key\tscope\ttype\tdefault\tbounds\tdynamic\teffect\tdoc"
    assert outcome.rows == [
        ["num.io.threads", "broker", "int", "8", "[1,...]", "cluster-wide", "yes", "Request handler threads."]
    ]
    (node_id,) = barnabas("config", "keys", "node.id").rows
    assert (node_id[0], node_id[5]) == ("node.id", "no")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["retention.ms", "--scope", "topic"], {"delete.retention.ms", "local.retention.ms", "retention.ms"}),
        (["log.roll.*.ms"], {"log.roll.jitter.ms"}),
        (["consumer.session.timeout.ms", "--scope", "group"], {"consumer.session.timeout.ms"}),
    ],
)
def test_keys_are_chosen_by_a_part_or_a_pattern(barnabas: Barnabas, arguments: list[str], names: set[str]) -> None:
    assert {row[0] for row in barnabas("config", "keys", *arguments).rows} == names


def test_an_unknown_key_suggests_the_closest_one(barnabas: Barnabas) -> None:
    outcome = barnabas("config", "keys", "num.io.thraeds")
    assert outcome == (1, "", "barnabas: no key matches num.io.thraeds; did you mean num.io.threads?\n")
