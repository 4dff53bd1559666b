"""`barnabas config keys`: the table of all keys of brokers, controllers, topics and groups. It needs no cluster."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

import click

from barnabas.cli.complete import complete_keys
from barnabas.cli.errors import UserError
from barnabas.cli.output import Row, json_option, show
from barnabas.cli.suggest import did_you_mean

if TYPE_CHECKING:
    from barnabas.config.table.key import Key

COLUMNS = ("key", "scope", "type", "default", "bounds", "dynamic", "effect", "doc")
GLOB = frozenset("*?[")


@click.command("keys")
@click.argument("pattern", required=False, shell_complete=complete_keys)
@click.option("--scope", type=click.Choice(["broker", "topic", "group"]), help="Only keys of this scope.")
@json_option
def keys(pattern: str | None, scope: str | None, as_json: bool) -> None:
    """List config keys: type, default, bounds and purpose.

    PATTERN is a part of the name (retention) or contains * and ? (log.*.ms). `dynamic` says whether a running cluster
    accepts a change: no, per-broker or cluster-wide. `effect` no: the key is known and checked, but does nothing here.
    """
    from barnabas.config.table.keys import DYNAMIC_KEYS, TABLE

    every = sorted((*TABLE, *DYNAMIC_KEYS.values()), key=lambda key: (key.name, key.scope.value))
    found = [key for key in every if scope in (None, key.scope.value) and _matches(pattern, key.name)]
    if not found:
        hint = did_you_mean(pattern or "", {key.name for key in every})
        raise UserError(f"no key matches {pattern}{hint}")
    show(map(_row, found), COLUMNS, as_json=as_json)


def _matches(pattern: str | None, name: str) -> bool:
    if pattern is None:
        return True
    return fnmatch.fnmatchcase(name, pattern) if GLOB.intersection(pattern) else pattern in name


def _row(key: Key) -> Row:
    return {
        "key": key.name,
        "scope": key.scope.value,
        "type": key.type.name.lower(),
        "default": _default(key),
        "bounds": None if key.validator is None else str(key.validator),
        "dynamic": key.mode.value if key.live else "no",
        "effect": key.honoured,
        "doc": key.doc,
    }


def _default(key: Key) -> str | None:
    """The default as written in a file; None if there is none, or if it follows one of the broker's keys."""
    from barnabas.config.table.key import REQUIRED

    if key.default == REQUIRED:
        return REQUIRED
    return None if key.default is None or key.sensitive else key.to_text(key.default)
