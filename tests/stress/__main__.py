"""`python -m tests.stress --faults 200 --seed N`: see the package's files; exits with 0 if all was well."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.stress.broken import BROKEN
from tests.stress.cluster import ApacheStressCluster, StressCluster, node_ids
from tests.stress.network import Network, enter, is_inside, is_possible
from tests.stress.run import StressRun, Workload
from tests.support.kafka_jars import KafkaRuntimeError, kafka_runtime


def main() -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description="faults under load, then the proof")
    parser.add_argument("--faults", type=int, default=200, help="how many there are in all")
    parser.add_argument("--seed", type=int, default=None, help="what they derive from; by default a new one")
    parser.add_argument("--directory", type=Path, default=None, help="where the data goes; by default a temporary one")
    parser.add_argument(
        "--network",
        choices=("auto", "namespaces", "loopback"),
        default="auto",
        help="with `loopback` no links are cut; `auto` takes namespaces where the kernel lets it",
    )
    parser.add_argument(
        "--system",
        choices=("barnabas", "apache"),
        default="barnabas",
        help="`apache`: processes only, no links are cut",
    )
    parser.add_argument("--broken", choices=list(BROKEN), default=None, help="break the brokers: it must be noticed")
    parser.add_argument("--only", action="append", default=[], metavar="KIND", help="e.g. kill_leader, stray_pushes")
    parser.add_argument("--java", type=int, default=2, help="how many Java producers, five requests in flight")
    parser.add_argument("--librdkafka", type=int, default=1, help="how many producers of librdkafka")
    parser.add_argument("--librdkafka-in-flight", type=int, default=1, help="their requests in flight")
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1 << 32)
    if arguments.system == "apache":
        arguments.network = "loopback"
    wants_network = arguments.network == "namespaces" or (arguments.network == "auto" and is_possible())
    if wants_network and not is_inside():
        enter(["-m", "tests.stress", *sys.argv[1:], "--seed", str(arguments.seed), "--network", "namespaces"])
    network = Network(node_ids()) if wants_network else None
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-stress-"))
    return stress(directory, network, arguments)


def stress(directory: Path, network: Network | None, arguments: argparse.Namespace) -> int:
    """Run; the data stays where it is if anything was wrong."""
    links = "every node in a network of its own" if network else "no links are cut: all nodes are on loopback"
    what = f"{arguments.faults} faults of seed {arguments.seed}"
    say(f"{what} ({links}; data in {directory})")
    try:
        runtime = kafka_runtime()
    except KafkaRuntimeError as error:
        sys.exit(str(error))
    if network is not None:
        network.start()
    workload = Workload(arguments.java, arguments.librdkafka, arguments.librdkafka_in_flight)
    cluster: ApacheStressCluster | StressCluster
    if arguments.system == "apache":
        cluster = ApacheStressCluster(runtime, directory)
    else:
        cluster = StressCluster(directory, network, arguments.broken)
    try:
        with cluster:
            StressRun(cluster, runtime, workload, arguments.seed, say, arguments.only).execute(arguments.faults)
    except AssertionError as error:
        again = [*sys.argv[1:], "--seed", str(arguments.seed)]
        say(f"FAILED\n{error}\nagain with: python -m tests.stress {' '.join(again)}")
        return 1
    say(f"{what}: nothing lost, duplicated, reordered or taken back; replicas identical")
    if arguments.directory is None:
        shutil.rmtree(directory)
    return 0


def say(text: str) -> None:
    """Print at once: whoever watches wants to know how far it is."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
