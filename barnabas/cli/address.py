"""The addresses of the cluster that a command talks to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import click

from barnabas.cli.errors import ArgumentError, UserError
from barnabas.cli.local.running import running_directories
from barnabas.cli.security.command_config import chosen, command_config_option, is_by_option
from barnabas.common.processes.cluster_file import read_cluster_file

T = TypeVar("T")
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
VARIABLE = "BARNABAS_BOOTSTRAP"
BOOTSTRAP_NAMES = ("-b", "--bootstrap", "--bootstrap-server", "bootstrap")  # the last one is the parameter's
PORT_MAX = 65535


def default_bootstrap() -> str:
    """$BARNABAS_BOOTSTRAP, else the one running local cluster, else 127.0.0.1:9092. Raises UserError if several run."""
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    clusters = [read_cluster_file(directory) for directory in running_directories()]
    found = [cluster["bootstrap"] for cluster in clusters if cluster is not None]
    if len(found) > 1:
        raise UserError(f"several clusters run here: choose with --bootstrap {' or '.join(found)}")
    return found[0] if found else DEFAULT_BOOTSTRAP


def bootstrap_or_default(value: str | None) -> str:
    """The addresses of --bootstrap, or the default. Raises UserError.

    The bootstrap.servers of --command-config count before $BARNABAS_BOOTSTRAP, those of $BARNABAS_COMMAND_CONFIG after
    it: a container sets both, since its network has other addresses than the file.
    """
    if value is not None:
        return value
    given = chosen()
    is_first = is_by_option() or not os.environ.get(VARIABLE)
    return given.bootstrap if given is not None and given.bootstrap and is_first else default_bootstrap()


def _checked(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    for text in [] if value is None else value.split(","):
        host_port(text)
    return value


def _checked_or_default(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str:
    return bootstrap_or_default(_checked(ctx, parameter, value))


def bootstrap_option(command: Callable[..., T], *, has_default: bool = True) -> Callable[..., T]:
    """`--bootstrap` (in Kafka's tools --bootstrap-server) and `--command-config`, for commands that need a cluster.

    Without `has_default` the value may be None: the command has another way, or asks `bootstrap_or_default`.
    """
    command = command_config_option(command)
    return click.option(
        *BOOTSTRAP_NAMES,
        metavar="HOST:PORT,...",
        callback=_checked_or_default if has_default else _checked,
        help=f"The cluster. Default: ${VARIABLE}, else the running local cluster, else {DEFAULT_BOOTSTRAP}.",
    )(command)


def host_port(text: str) -> tuple[str, int]:
    """Split HOST:PORT. Raises UserError."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        raise ArgumentError(f"'{text}' is not HOST:PORT")
    return host.strip("[]"), int(port)
