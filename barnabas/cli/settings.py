"""Warnings about settings that have no effect, and suggestions for unknown keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from barnabas.cli.errors import RequestError

_REFUSED_FOR_A_KEY = {"INVALID_CONFIG", "INVALID_REQUEST"}


@contextmanager
def explained(scope: str, names: Sequence[str]) -> Iterator[None]:
    """Send settings of a "broker", "topic" or "group" in the block; warn of accepted ones that have no effect.

    If the cluster refuses them, the error gains a suggestion for each unknown key.
    """
    from barnabas.config.effect import is_known, suggestion, warnings  # Why here: other commands do not load the table
    from barnabas.config.table.key import Scope

    kind = Scope(scope)
    try:
        yield
    except RequestError as error:
        meant = [suggestion(kind, name) for name in names if not is_known(kind, name)]
        hints = ", ".join(name for name in meant if name is not None)
        if not hints or _REFUSED_FOR_A_KEY.isdisjoint(error.codes):
            raise
        raise RequestError(f"{error}; did you mean {hints}?", error.codes) from error
    for line in warnings(kind, names):
        click.echo(f"barnabas: warning: {line}", err=True)
