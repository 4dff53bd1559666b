"""`barnabas server FILE`, `barnabas broker FILE`, `barnabas controller FILE`: one process from a server.properties."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import click

from barnabas.common.processes import interpreter
from barnabas.common.processes.allocator import with_settings

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_OVERRIDE = click.option("--override", multiple=True, metavar="KEY=VALUE", help="A property that overrides the file's.")


def _become(module: str, file: Path, overrides: tuple[str, ...], *more: str) -> NoReturn:
    """Replace this process by the server, which then has no command-line library in memory."""
    arguments = [*interpreter.command(module), str(file), *more]
    for override in overrides:
        arguments += ["--override", override]
    os.execvpe(arguments[0], arguments, with_settings(os.environ, module.split(".")[1]))


@click.command()
@_FILE
@_OVERRIDE
def server(file: Path, override: tuple[str, ...]) -> None:
    """Run the roles that FILE names (process.roles: broker, controller or both), as Kafka's kafka-server-start."""
    _become("barnabas.server.main", file, override)


@click.command()
@_FILE
@_OVERRIDE
def broker(file: Path, override: tuple[str, ...]) -> None:
    """Run one broker from FILE until SIGTERM (controlled shutdown) or SIGINT."""
    _become("barnabas.broker.main", file, override)


class _RunUnlessNamed(click.Group):
    """A group whose first argument may be a file instead of a command; `run FILE` is then meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `run` before a file."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunUnlessNamed)
def controller() -> None:
    """Run the controller from FILE (`barnabas controller FILE`), format its directory, or rebuild its lost log."""


@controller.command("run")
@_FILE
@_OVERRIDE
def run_controller(file: Path, override: tuple[str, ...]) -> None:
    """Run the controller from FILE until SIGTERM or SIGINT. The word `run` is optional."""
    _become("barnabas.controller.main", file, override)


@controller.command("recover")
@_FILE
@click.option(
    "--from-brokers", required=True, metavar="HOST:PORT,...", help="All brokers, at the addresses that brokers use."
)
@_OVERRIDE
def recover(file: Path, from_brokers: str, override: tuple[str, ...]) -> None:
    """Rebuild a lost metadata log from the brokers' metadata.

    Stop the controller and leave the brokers running (or start them: they wait). This restores topics, their ids,
    partitions, replicas, configs and features. The command reports what it cannot restore, or refuses to run.
    """
    _become("barnabas.controller.recover", file, override, "--from-brokers", from_brokers)


@controller.command("format")
@_FILE
@click.option("--cluster-id", help="The id that all controllers share. Default: CLUSTER_ID, or a new one (standalone).")
@click.option("--standalone", is_flag=True, help="This controller is the first voter of a new cluster.")
@click.option("--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY,...", help="The first voters of a new cluster.")
@click.option(
    "--no-initial-controllers", is_flag=True, help="It follows, until `barnabas quorum add` makes it a voter."
)
@_OVERRIDE
def format_controller(
    file: Path,
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    override: tuple[str, ...],
) -> None:
    """Format the directory that FILE names, as Kafka's `kafka-storage format`.

    With --standalone, --initial-controllers or --no-initial-controllers the voters are kept in the metadata
    (kraft.version 1) and can change. Without any of them, FILE must have controller.quorum.voters.
    """
    more = [] if cluster_id is None else ["--cluster-id", cluster_id]
    if standalone:
        more.append("--standalone")
    if initial_controllers is not None:
        more += ["--initial-controllers", initial_controllers]
    if no_initial_controllers:
        more.append("--no-initial-controllers")
    _become("barnabas.controller.metadata.format", file, override, *more)
