"""`--command-config`: how a command connects to a secured cluster, in properties of Kafka's Java client.

The first of these counts: the option; $BARNABAS_COMMAND_CONFIG; if the command talks to a running local cluster that
`barnabas up --security` made, the settings of its user `admin`. Otherwise the connection is PLAINTEXT.

The choice is kept in click's context, so that each connection of the command finds it. Call `connector` on the thread
that runs the command: other threads have no context.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.errors import UserError
from barnabas.cli.local.running import cluster_at

if TYPE_CHECKING:
    from barnabas.client.client_properties import ClientProperties
    from barnabas.client.connection import Connect

logging.getLogger("barnabas.client").addHandler(logging.NullHandler())  # errors of logins are shown by the commands

T = TypeVar("T")
VARIABLE = "BARNABAS_COMMAND_CONFIG"
_META = "barnabas.command_config"
_META_OPTION = "barnabas.command_config.option"


def command_config_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--command-config`, for each command that connects to brokers."""
    return click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        is_eager=True,  # --bootstrap asks for what it has
        expose_value=False,
        callback=_remember,
        help=f"Security settings, as for Kafka's tools: security.protocol, ssl.*, sasl.*. Default: ${VARIABLE}.",
    )(command)


def _remember(ctx: click.Context, _parameter: click.Parameter, file: Path | None) -> None:
    ctx.meta[_META_OPTION] = file is not None
    if file is None and os.environ.get(VARIABLE):
        file = Path(os.environ[VARIABLE])
    if file is not None and not ctx.resilient_parsing:
        ctx.meta[_META] = _load(file)


def chosen() -> ClientProperties | None:
    """Return the settings that the user gave; None if there are none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_META)


def is_by_option() -> bool:
    """Return whether `chosen` comes from the command line, and not from the variable."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_META_OPTION))


def settings_for(bootstrap: str) -> ClientProperties | None:
    """Return the settings for a cluster; None for a PLAINTEXT one. Raises UserError."""
    given = chosen()
    if given is not None:
        return given
    file = _file_of_local_cluster(bootstrap)
    return None if file is None else _load(file)


def connector(bootstrap: str) -> Connect:
    """Return what makes our own connections to a cluster; raises UserError."""
    from barnabas.client.connection import NodeConnection
    from barnabas.config.errors import ConfigError

    properties = settings_for(bootstrap)
    if properties is None:
        return NodeConnection
    try:
        return partial(NodeConnection, security=properties.security())
    except ConfigError as error:
        raise UserError(f"{properties.source}: {error}") from error


def librdkafka_settings(bootstrap: str) -> dict[str, Any]:
    """Return the security settings of librdkafka for a cluster; raises UserError."""
    from barnabas.config.errors import ConfigError

    properties = settings_for(bootstrap)
    if properties is None:
        return {}
    try:
        return properties.librdkafka()
    except ConfigError as error:
        raise UserError(f"{properties.source}: {error}") from error


def _load(file: Path) -> ClientProperties:
    from barnabas.client.client_properties import ClientProperties  # Why here: most commands need none
    from barnabas.common.clock import SystemClock
    from barnabas.config.errors import ConfigError

    try:
        properties = ClientProperties.load(file, SystemClock())
        ignored = properties.without_effect()
    except ConfigError as error:
        raise UserError(f"{file}: {error}") from error
    for line in properties.warnings:
        click.echo(f"barnabas: warning: {file}: {line}", err=True)
    if ignored:
        click.echo(f"barnabas: warning: {file}: commands do not follow {', '.join(ignored)}", err=True)
    return properties


def _file_of_local_cluster(bootstrap: str) -> Path | None:
    """Return the settings file of the running local cluster that has one of these addresses."""
    found = cluster_at(bootstrap)
    file = None if found is None else found[1].get("command_config")
    return Path(file) if file else None
