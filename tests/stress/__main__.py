"""`python -m tests.stress --faults 200 --seed N`: see the package's files; exits with 0 if the checks passed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.stress.cluster import ApacheStressCluster, StressCluster, node_ids
from tests.stress.faults.broken import BROKEN
from tests.stress.faults.network import Network, enter, is_inside, is_possible
from tests.stress.run import StressRun, Workload
from tests.support.access import add_security_option
from tests.support.kafka.kafka_jars import KafkaRuntime, KafkaRuntimeError, kafka_runtime
from tests.support.seeded_run import parse_seeded, run_seeded, say, seeded_parser


def main() -> int:
    """Run with the options of the command line."""
    parser = seeded_parser("stress", "faults under load, then the proof")
    parser.add_argument("--faults", type=int, default=200, help="number of faults")
    parser.add_argument(
        "--network",
        choices=("auto", "namespaces", "loopback"),
        default="auto",
        help="`loopback` cuts no links; `auto` uses network namespaces if the kernel allows it",
    )
    parser.add_argument(
        "--system",
        choices=("barnabas", "apache"),
        default="barnabas",
        help="`apache`: faults of processes only, no links are cut",
    )
    parser.add_argument("--controllers", type=int, choices=(1, 3), default=1, help="3: a quorum, which has faults too")
    parser.add_argument("--combined", action="store_true", help="no separate controllers: each broker is one, too")
    parser.add_argument("--broken", choices=list(BROKEN), default=None, help="break the brokers: the checks must fail")
    parser.add_argument("--only", action="append", default=[], metavar="KIND", help="e.g. kill_leader, stray_pushes")
    parser.add_argument("--java", type=int, default=2, help="number of Java producers with five requests in flight")
    parser.add_argument("--librdkafka", type=int, default=1, help="number of librdkafka producers")
    parser.add_argument("--librdkafka-in-flight", type=int, default=1, help="their requests in flight")
    add_security_option(parser)
    arguments = parse_seeded(parser)
    if arguments.system == "apache":
        arguments.network = "loopback"
    if arguments.combined and (arguments.broken or arguments.controllers > 1 or arguments.system == "apache"):
        parser.error("--combined goes with none of --broken, --controllers and --system apache")
    uses_network = arguments.network == "namespaces" or (arguments.network == "auto" and is_possible())
    if uses_network and not is_inside():
        enter(["-m", "tests.stress", *sys.argv[1:], "--seed", str(arguments.seed), "--network", "namespaces"])
    try:
        runtime = kafka_runtime()
    except KafkaRuntimeError as error:
        sys.exit(str(error))
    network = Network(node_ids(0 if arguments.combined else arguments.controllers)) if uses_network else None
    say("each node has its own network" if network else "no links are cut: all nodes are on the loopback interface")
    return run_seeded(
        "stress",
        arguments,
        f"{arguments.faults} faults",
        lambda directory: stress(directory, network, runtime, arguments),
        "nothing lost, duplicated, reordered or rolled back; replicas identical",
    )


def stress(directory: Path, network: Network | None, runtime: KafkaRuntime, arguments: argparse.Namespace) -> None:
    """Run on a cluster in this directory. Raises AssertionError if a check fails."""
    if network is not None:
        network.start()
    workload = Workload(arguments.java, arguments.librdkafka, arguments.librdkafka_in_flight)
    cluster: ApacheStressCluster | StressCluster
    if arguments.system == "apache":
        cluster = ApacheStressCluster(runtime, directory)
    else:
        security, controllers = arguments.security, arguments.controllers
        cluster = StressCluster(
            directory, network, arguments.broken, security, controllers, is_combined=arguments.combined
        )
    with cluster:
        StressRun(cluster, runtime, workload, arguments.seed, say, arguments.only).execute(arguments.faults)


if __name__ == "__main__":
    sys.exit(main())
