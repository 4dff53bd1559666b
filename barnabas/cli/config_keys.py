"""`barnabas config keys`: the table of all keys of brokers, controllers, topics and groups. It asks no cluster."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.complete import complete_keys
from barnabas.cli.errors import UserError
from barnabas.cli.output import json_option, show
from barnabas.cli.suggest import did_you_mean

if TYPE_CHECKING:
    from barnabas.config.key import Key

COLUMNS = ("key", "scope", "type", "default", "bounds", "dynamic", "effect", "doc")
GLOB = frozenset("*?[")


@click.command("keys")
@click.argument("pattern", required=False, shell_complete=complete_keys)
@click.option("--scope", type=click.Choice(["broker", "topic", "group"]), help="Only keys of these.")
@json_option
def keys(pattern: str | None, scope: str | None, as_json: bool) -> None:
    """List config keys: type, default, bounds, whether they change at run time, what they are for.

    PATTERN is a part of the name (retention), or has * and ? in it (log.*.ms). `dynamic` is whether a running cluster
    takes a change: no, per-broker or cluster-wide. `effect` no: the key is known and checked, and does nothing here.
    """
    from barnabas.config.keys import DYNAMIC_KEYS, TABLE

    every = sorted((*TABLE, *DYNAMIC_KEYS.values()), key=lambda key: (key.name, key.scope.value))
    found = [key for key in every if scope in (None, key.scope.value) and _is_meant(pattern, key.name)]
    if not found:
        hint = did_you_mean(pattern or "", {key.name for key in every})
        raise UserError(f"no key has {pattern} in its name{hint}")
    show(map(_row, found), COLUMNS, as_json=as_json)


def _is_meant(pattern: str | None, name: str) -> bool:
    if pattern is None:
        return True
    return fnmatch.fnmatchcase(name, pattern) if GLOB.intersection(pattern) else pattern in name


def _row(key: Key) -> dict[str, Any]:
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
    """The default as it is written in a file; null: none, or that of the broker's keys that it follows."""
    from barnabas.config.key import REQUIRED

    if key.default == REQUIRED:
        return REQUIRED
    return None if key.default is None or key.sensitive else key.to_text(key.default)
