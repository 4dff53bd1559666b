"""`barnabas up`: a cluster on this machine until SIGINT or SIGTERM.

Prints one line for scripts, `ready bootstrap=HOST:PORT,... metrics=HOST:PORT,...`, when clients can use every broker.
A process that dies is left dead and named, so that failures can be watched; `barnabas node start ID` brings it back.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from barnabas.cli.errors import UserError
from barnabas.cli.slow_motion import slow_motion_option, slow_motion_properties
from barnabas.cli.supervisor import supervise
from barnabas.cli.text import key_value
from barnabas.cluster import LocalCluster, ProcessDiedError

PORT_MAX = 65535


@click.command()
@click.option(
    "--brokers", type=click.IntRange(1, 99), default=3, show_default=True, help="How many brokers, ids 0, 1, ..."
)
@click.option(
    "--port",
    type=click.IntRange(0, PORT_MAX),
    default=9092,
    show_default=True,
    help="Port of broker 0, the others' count up; 0 takes free ports.",
)
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Kept and reused; else a temporary one."
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Any key of Kafka's server properties.")
@slow_motion_option
def up(brokers: int, port: int, data_dir: Path | None, configs: tuple[str, ...], slow_motion: float | None) -> int:
    """Start a controller (id 100) and brokers (ids 0, 1, ...) on 127.0.0.1, and run until SIGINT or SIGTERM."""
    if port + brokers - 1 > PORT_MAX:
        raise UserError(f"--port {port}: {brokers} brokers need the ports up to {port + brokers - 1}")
    config = {**slow_motion_properties(slow_motion), **dict(map(key_value, configs))}
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
    return supervise(cluster)


def _check(cluster: LocalCluster) -> None:
    """Refuse what the processes would refuse, before any is started; warn of unknown keys."""
    import logging

    from barnabas.config.config import Config
    from barnabas.config.errors import ConfigError

    logging.basicConfig(format="barnabas: %(message)s", level=logging.WARNING)
    try:
        for node in (cluster.controller, cluster.brokers[0]):
            Config.from_properties(cluster.properties(node), role=node.role)
    except ConfigError as error:
        raise UserError(str(error)) from error
