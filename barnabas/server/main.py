"""`python -P -m barnabas.server.main FILE [--override KEY=VALUE]...`: the roles of a file, as `kafka-server-start`.

`process.roles` decides: broker, controller, or both in one process. An error of the operator is one line on stderr and
exit code 1.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence

from barnabas.broker.main import clock_hand
from barnabas.broker.main import main as run_broker
from barnabas.broker.storage.log_manager import LogDirectoryError
from barnabas.broker.wiring.context import StartError
from barnabas.common import logs, threads
from barnabas.common.clocks.server_clock import ServerClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.disk.open_files import raise_limit
from barnabas.common.locks.factory import count_locks
from barnabas.common.processes.collector import collect_rarely
from barnabas.common.processes.process import EXIT_USER_ERROR, catch_signals, die_with_supervisor, end_at_once
from barnabas.config.command_line import parse_arguments
from barnabas.config.config import BROKER, CONTROLLER, Config
from barnabas.config.errors import ConfigError
from barnabas.controller.main import main as run_controller
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.protocol.errors import ApiError
from barnabas.server.combined_server import CombinedServer

log = logging.getLogger("barnabas.server")

SERVER = "server"
ALONE = {frozenset({BROKER}): run_broker, frozenset({CONTROLLER}): run_controller}


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run the roles of a file until a signal or a fatal error ends them; return the exit code."""
    environment = os.environ if environment is None else environment
    die_with_supervisor()
    collect_rarely()
    try:
        arguments = parse_arguments(SERVER, argv)
        logs.configure()
        alone = ALONE.get(Config.roles_of(arguments.file, overrides=arguments.overrides, environment=environment))
        if alone is not None:
            return alone(argv, environment)
        raise_limit()
        config = Config.load(arguments.file, role=BROKER, overrides=arguments.overrides, environment=environment)
        logs.use_format(config.barnabas_log_format)
        server = make_server(config, environment.get("CLUSTER_ID"))
    except (ConfigError, DirectoryError, LogDirectoryError, StartError, ApiError, OSError) as error:
        print(f"server: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    return run(server)


def make_server(config: Config, cluster_id: str | None) -> CombinedServer:
    """Build both roles; they accept fault injection and moves of their clock if the configuration allows them."""
    if config.barnabas_lock_counts:
        count_locks()
    if not config.barnabas_faults_enable:
        clock = ServerClock()
        return CombinedServer(config, clock, OsFileSystem(), cluster_id, hand=clock_hand(config, clock))
    from barnabas.broker.faults.kit import FaultKit  # Why here: not loaded without fault injection

    faults = FaultKit(config)
    return CombinedServer(config, faults.clock, faults.fs, cluster_id, faults, clock_hand(config, faults.clock))


def run(server: CombinedServer) -> int:
    """Start, wait for a signal or a fatal error, stop; return the exit code."""
    threads.set_fatal_handler(end_at_once)
    catch_signals(server.endings)
    try:
        server.start()
    except (DirectoryError, LogDirectoryError, OSError, ApiError) as error:
        print(f"server: {error}", file=sys.stderr)
        server.close()
        return EXIT_USER_ERROR
    threads.ServiceThread("broker-readiness", "readiness", lambda: _announce(server), daemon=True).start()
    ending = server.endings.get()
    node_id = server.broker.broker_id
    if isinstance(ending, str):
        print(f"server: {ending}", file=sys.stderr)
        server.close()
        return EXIT_USER_ERROR
    log.info("Node %d is shutting down", node_id)
    server.stop()
    log.info("Node %d has shut down", node_id)
    return 0


def _announce(server: CombinedServer) -> None:
    """Log when clients can use the node."""
    broker, config = server.broker, server.config
    if broker.wait_until_ready(config.initial_broker_registration_timeout_ms):
        sockets = broker.network.sockets
        ports = ", ".join(f"{name} on port {sockets.port(name)}" for name in sockets.acceptors)
        log.info(
            "Node %d is ready as broker and controller: %s, controllers on port %d, cluster id %s, metrics on port %d",
            broker.broker_id, ports, server.controller.port, server.controller.cluster_id, server.page.port,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
