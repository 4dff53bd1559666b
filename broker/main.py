"""`python -P -m barnabas.broker.main FILE [--override KEY=VALUE]...`: one broker process.

Build, start, wait for SIGTERM or SIGINT, stop. An error of the operator is one line on stderr and exit code 1: a bad
key, a taken port, a directory in use, another cluster's controller.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.broker_server import BrokerServer
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
from barnabas.config.config import BROKER, Config
from barnabas.config.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.broker.clock.hand import ClockHand
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.broker")

Endings = queue.SimpleQueue[int | str]  # signals, and lines for the operator; the first one ends the process


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run a broker until a signal or a fatal error ends it; return the exit code."""
    environment = os.environ if environment is None else environment
    die_with_supervisor()
    collect_rarely()
    endings: Endings = queue.SimpleQueue()
    try:
        arguments = parse_arguments(BROKER, argv)
        logs.configure()
        raise_limit()
        config = Config.load(arguments.file, role=BROKER, overrides=arguments.overrides, environment=environment)
        config.require_one_role()
        logs.use_format(config.barnabas_log_format)
        server = make_server(config, endings.put)
    except (ConfigError, LogDirectoryError, StartError, OSError) as error:
        print(f"broker: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    return run(server, endings)


def make_server(config: Config, on_fatal: Callable[[str], None]) -> BrokerServer:
    """Build a broker; it accepts fault injection and moves of its clock if the configuration allows them."""
    if config.barnabas_lock_counts:
        count_locks()
    if not config.barnabas_faults_enable:
        clock = ServerClock()
        return BrokerServer(config, clock, OsFileSystem(), on_fatal, hand=clock_hand(config, clock))
    from barnabas.broker.faults.kit import FaultKit  # Why here: not loaded without fault injection

    faults = FaultKit(config)
    return BrokerServer(config, faults.clock, faults.fs, on_fatal, faults, clock_hand(config, faults.clock))


def clock_hand(config: Config, clock: Clock) -> ClockHand | None:
    """Return what moves the clock of a process; None unless barnabas.clock.enable. Raises ConfigError."""
    if not config.barnabas_clock_enable:
        return None
    from barnabas.broker.clock.hand import ClockHand  # Why here: few clusters move their clock

    return ClockHand(config, clock)


def run(server: BrokerServer, endings: Endings) -> int:
    """Start, wait for a signal or a fatal error, stop; return the exit code."""
    threads.set_fatal_handler(end_at_once)
    catch_signals(endings)
    try:
        server.start()
    except (LogDirectoryError, OSError) as error:
        print(f"broker: {error}", file=sys.stderr)
        server.close()
        return EXIT_USER_ERROR
    threads.ServiceThread("broker-readiness", "readiness", lambda: _announce(server), daemon=True).start()
    ending = endings.get()
    if isinstance(ending, str):
        print(f"broker: {ending}", file=sys.stderr)
        server.close()
        return EXIT_USER_ERROR
    log.info("Broker %d is shutting down", server.broker_id)
    server.stop()
    log.info("Broker %d has shut down", server.broker_id)
    return 0


def _announce(server: BrokerServer) -> None:
    """Log when clients can use the broker."""
    if server.wait_until_ready(server.config.initial_broker_registration_timeout_ms):
        sockets = server.network.sockets
        ports = ", ".join(f"{name} on port {sockets.port(name)}" for name in sockets.acceptors)
        log.info(
            "Broker %d is ready: %s, cluster id %s, metrics on port %d",
            server.broker_id, ports, server.services.cluster_id, server.pages.server.port,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
