"""`barnabas up`: a cluster on this machine until SIGINT or SIGTERM.

Prints one line for scripts, `ready bootstrap=HOST:PORT,... metrics=HOST:PORT,...`, when clients can use every broker.
A process that dies is left dead and named, so that failures can be watched; `barnabas node start ID` brings it back.
For test runs there is `--ephemeral` (`barnabas.cli.ephemeral`).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from barnabas.cli.ephemeral import run_ephemeral
from barnabas.cli.errors import UserError
from barnabas.cli.slow_motion import slow_motion_option, slow_motion_properties
from barnabas.cli.supervisor import Supervisor
from barnabas.cli.text import key_value
from barnabas.cluster import LocalCluster, ProcessDiedError

PORT = 9092
PORT_MAX = 65535


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--brokers", type=click.IntRange(1, 99), default=3, show_default=True, help="How many brokers, ids 0, 1, ..."
)
@click.option(
    "--port",
    type=click.IntRange(0, PORT_MAX),
    help=f"Port of broker 0 (default {PORT}), the others' count up; 0 takes free ports.",
)
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Kept and reused; else a temporary one."
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Any key of Kafka's server properties.")
@click.option(
    "--ephemeral",
    is_flag=True,
    help="For tests: ends with whoever started it, or with COMMAND, and leaves nothing. Free ports unless --port.",
)
@click.option("--print-env", is_flag=True, help="With --ephemeral: print NAME=VALUE lines when it is ready.")
@slow_motion_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def up(
    brokers: int,
    port: int | None,
    data_dir: Path | None,
    configs: tuple[str, ...],
    ephemeral: bool,
    print_env: bool,
    slow_motion: float | None,
    command: tuple[str, ...],
) -> int:
    """Start a controller (id 100) and brokers (ids 0, 1, ...) on 127.0.0.1, and run until SIGINT or SIGTERM.

    With --ephemeral, until COMMAND ends, if there is one: `barnabas up --ephemeral -- pytest`.
    """
    if port is None:
        port = 0 if ephemeral else PORT
    if port + brokers - 1 > PORT_MAX:
        raise UserError(f"--port {port}: {brokers} brokers need the ports up to {port + brokers - 1}")
    config = {**slow_motion_properties(slow_motion), **dict(map(key_value, configs))}
    if ephemeral:
        if data_dir is not None:
            raise UserError("--ephemeral leaves nothing: it goes without --data-dir")
        return run_ephemeral(brokers, port, config, command=command, print_env=print_env, check=_check)
    if command or print_env:
        raise UserError("a COMMAND and --print-env go with --ephemeral only")
    if data_dir is not None:
        return _run(LocalCluster(data_dir.absolute(), brokers, port, config))
    directory = Path(tempfile.mkdtemp(prefix="barnabas-"))
    try:
        return _run(LocalCluster(directory, brokers, port, config))
    except ProcessDiedError:
        directory = Path()  # the message names a log in it
        raise
    finally:
        if directory.name:
            shutil.rmtree(directory, ignore_errors=True)


def _run(cluster: LocalCluster) -> int:
    cluster.plan()
    if cluster.config:
        _check(cluster)
    return Supervisor(cluster).run()


def _check(cluster: LocalCluster) -> None:
    """Refuse what the processes would refuse, before any is started, and give the plan up; warn of unknown keys."""
    import logging

    from barnabas.config.config import Config
    from barnabas.config.errors import ConfigError

    logging.basicConfig(format="barnabas: %(message)s", level=logging.WARNING)
    try:
        for node in (cluster.controller, cluster.brokers[0]):
            Config.from_properties(cluster.properties(node), role=node.role)
    except ConfigError as error:
        cluster.stop()
        raise UserError(str(error)) from error
