"""`barnabas up`: a cluster on this machine until SIGINT, SIGTERM or `barnabas down`.

When clients can use every broker, it prints a summary on a terminal, and otherwise one line for programs:
`ready bootstrap=HOST:PORT,... metrics=HOST:PORT,...` (`barnabas.cli.local.ready`). A process that dies is reported and
stays dead, so that users can watch failures; `barnabas node start ID` starts it again. `--detach` continues in the
background (`barnabas.cli.local.detached`). Test runs use `--ephemeral` (`barnabas.cli.local.ephemeral`).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.errors import ArgumentError, UserError
from barnabas.cli.local import detached
from barnabas.cli.local.slow_motion import slow_motion_option, slow_motion_properties
from barnabas.cli.local.supervisor import Supervisor
from barnabas.cli.text import key_value, properties_of
from barnabas.cluster import LocalCluster, ProcessDiedError
from barnabas.common.processes.arguments import hide

if TYPE_CHECKING:
    from barnabas.cluster.security.cluster_security import ClusterSecurity

PORT = 9092
COMPAT_KEY = "barnabas.compat.release"
CONTROLLERS_MAX = 9
PORT_MAX = 65535


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--brokers", type=click.IntRange(1, 99), default=3, show_default=True, help="Number of brokers.")
@click.option(
    "--controllers",
    type=click.IntRange(1, CONTROLLERS_MAX),
    default=1,
    show_default=True,
    help="Number of controllers; several elect the active one, and go on while a majority of them runs.",
)
@click.option(
    "--combined",
    is_flag=True,
    help="Every broker is a controller, too: with --brokers 1 the cluster is one process. Excludes --controllers.",
)
@click.option("--first-id", type=click.IntRange(0, 1000), default=0, show_default=True, help="Id of the first broker.")
@click.option(
    "--security",
    type=click.Choice(["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"], case_sensitive=False),
    default="plaintext",
    show_default=True,
    help="How every connection is secured: makes certificates, users and settings for clients, and an authorizer.",
)
@click.option("--users", metavar="NAME:PASSWORD,...", default="", help="With --security: users besides admin.")
@click.option(
    "--port",
    type=click.IntRange(0, PORT_MAX),
    help=f"Port of the first broker (default {PORT}); the next brokers get the next ports. 0: free ports.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Kept and reused. Default: a temporary one.",
)
@click.option(
    "--compat",
    metavar="RELEASE",
    help="Answer clients as this release of Kafka, 0.10.0 to 4.2: with its APIs, versions and features.",
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Any key of Kafka's server properties.")
@click.option(
    "--config-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A properties file with such keys, for values that nobody shall see in the list of processes.",
)
@click.option(
    "--ephemeral",
    is_flag=True,
    help="For tests: end with the parent process or COMMAND and leave nothing behind. Free ports unless --port.",
)
@click.option("-d", "--detach", is_flag=True, help="Run in the background: see `barnabas status`, `barnabas down`.")
@click.option("--temporary", is_flag=True, hidden=True, help="Remove --data-dir at the end.")
@click.option("--print-env", is_flag=True, help="With --ephemeral: print NAME=VALUE lines when ready.")
@slow_motion_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def up(
    brokers: int,
    controllers: int,
    combined: bool,
    first_id: int,
    security: str,
    users: str,
    port: int | None,
    data_dir: Path | None,
    compat: str | None,
    configs: tuple[str, ...],
    config_file: Path | None,
    ephemeral: bool,
    detach: bool,
    temporary: bool,
    print_env: bool,
    slow_motion: float | None,
    command: tuple[str, ...],
) -> int:
    """Start a controller (id 100) and brokers (ids 0, 1, ...) on 127.0.0.1; run until Ctrl-C or `barnabas down`.

    With --ephemeral and a COMMAND, run until it ends: `barnabas up --ephemeral -- pytest`.
    """
    _hide(users)
    if port is None:
        port = 0 if ephemeral else PORT
    if port + brokers - 1 > PORT_MAX:
        raise ArgumentError(f"--port {port}: {brokers} brokers need the ports up to {port + brokers - 1}")
    config = {**slow_motion_properties(slow_motion), **properties_of(config_file), **dict(map(key_value, configs))}
    config |= _compat_properties(compat)
    if combined and controllers > 1:
        raise ArgumentError("--combined excludes --controllers: every broker is a controller")
    if combined and brokers > CONTROLLERS_MAX:
        raise ArgumentError(f"--combined: at most {CONTROLLERS_MAX} nodes, since each of them is a controller")
    secure = _security(security, users)
    if ephemeral:
        # Why here and below: the process keeps what it imports as long as the cluster runs.
        from barnabas.cli.local.ephemeral import run_ephemeral

        if data_dir is not None or detach:
            raise ArgumentError(
                "--ephemeral excludes --data-dir and --detach: it leaves nothing and ends with its parent"
            )
        return run_ephemeral(
            brokers,
            port,
            config,
            command=command,
            print_env=print_env,
            check=_check,
            first_id=first_id,
            security=secure,
            controllers=controllers,
            is_combined=combined,
        )
    if command or print_env:
        raise ArgumentError("a COMMAND and --print-env need --ephemeral")
    is_temporary = temporary or data_dir is None
    directory = _new_directory() if data_dir is None else data_dir.absolute()
    with _removed_after_interrupt(directory, is_temporary=is_temporary):
        if detach:
            options = ["--brokers", str(brokers), "--port", str(port), "--first-id", str(first_id)]
            options += ["--combined"] if combined else ["--controllers", str(controllers)]
            if secure is not None:
                secure(directory)  # remembers the users, so that no process shows their passwords
                options += ["--security", security]
            return detached.start(options, config, directory, is_temporary=is_temporary)
        own = None if secure is None else secure(directory)
        cluster = LocalCluster(
            directory,
            brokers,
            port,
            config,
            first_id=first_id,
            security=own,
            controller_count=controllers,
            is_combined=combined,
        )
        return _run(cluster, is_temporary=is_temporary)


@contextlib.contextmanager
def _removed_after_interrupt(directory: Path, *, is_temporary: bool) -> Iterator[None]:
    """Remove a temporary directory if Ctrl-C ends the start before a supervisor is responsible for it."""
    try:
        yield
    except KeyboardInterrupt:
        if is_temporary:
            _remove(directory)
        raise


def _new_directory() -> Path:
    import tempfile

    return Path(tempfile.mkdtemp(prefix="barnabas-"))


def _remove(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


def _hide(users: str) -> None:
    if not hide([users]):
        click.echo("barnabas: warning: the list of processes shows --users: /proc/self/mem cannot be written", err=True)


def _compat_properties(release: str | None) -> dict[str, str]:
    return {} if release is None else {COMPAT_KEY: release}


def _security(protocol: str, users: str) -> Callable[[Path], ClusterSecurity] | None:
    """Return what makes the security of a cluster in a directory; None for PLAINTEXT. Raises ClusterError."""
    if protocol.lower() == "plaintext":
        if users:
            raise ArgumentError("--users needs --security ssl, sasl_plaintext or sasl_ssl")
        return None
    from barnabas.cluster.security.cluster_security import ClusterSecurity, parse_users  # Why here: it loads much
    from barnabas.common.clock import SystemClock

    named, now_ms = parse_users(users), SystemClock().wall_ms()
    return lambda directory: ClusterSecurity(directory, protocol.upper(), named, now_ms)


def _run(cluster: LocalCluster, *, is_temporary: bool) -> int:
    """Run a cluster until it is over, then remove its directory if that is temporary."""
    try:
        return _supervise(cluster, is_temporary=is_temporary)
    except ProcessDiedError:
        is_temporary = False  # the message names a log in the directory
        raise
    finally:
        if is_temporary:
            _remove(cluster.directory)


def _supervise(cluster: LocalCluster, *, is_temporary: bool) -> int:
    cluster.plan()
    if cluster.config:
        _check(cluster)
    left_out = cluster.left_out()
    if left_out:
        names = ", ".join(left_out)
        print(
            f"barnabas: warning: {cluster.directory} also has data of {names}, not started now (--brokers, "
            "--first-id): their replicas are missing, and partitions without other replicas are offline",
            file=sys.stderr,
            flush=True,
        )
    if cluster.forgets_clock():
        print(
            f"barnabas: warning: the clock of {cluster.directory} was moved ahead, and its brokers now go back to the "
            "present: start it with barnabas.clock.enable=true, or remove the file clock",
            file=sys.stderr,
            flush=True,
        )
    return Supervisor(cluster, is_temporary=is_temporary).run()


def _check(cluster: LocalCluster) -> None:
    """Check the properties as the processes will, before any starts; warn of unknown keys.

    Raises UserError, after releasing the cluster's directory and ports.
    """
    import logging

    from barnabas.config.config import Config
    from barnabas.config.errors import ConfigError

    logging.basicConfig(format="barnabas: %(message)s", level=logging.WARNING)
    try:
        for node in (cluster.controller, cluster.brokers[0]):
            config = Config.from_properties(cluster.properties(node), role=node.role)
    except ConfigError as error:
        cluster.stop()
        raise UserError(str(error)) from error
    found = (config.barnabas_pages_auth_token, config.barnabas_pages_auth_users, config.barnabas_pages_change_token)
    cluster.use_credentials(*(value and value.value for value in found))
