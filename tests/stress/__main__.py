"""`python -m tests.stress --faults 200 --seed N`: see the package's files; exits with 0 if all was well."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.stress.cluster import StressCluster, node_ids
from tests.stress.network import Network, enter, is_inside, is_possible
from tests.stress.run import StressRun


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
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    wants_network = arguments.network == "namespaces" or (arguments.network == "auto" and is_possible())
    if wants_network and not is_inside():
        enter(["-m", "tests.stress", *options(arguments, seed)])
    network = Network(node_ids()) if wants_network else None
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-stress-"))
    return stress(directory, network, arguments.faults, seed)


def options(arguments: argparse.Namespace, seed: int) -> list[str]:
    """The command line for the same run with everything decided."""
    directory = [] if arguments.directory is None else ["--directory", str(arguments.directory.resolve())]
    return ["--faults", str(arguments.faults), "--seed", str(seed), "--network", "namespaces", *directory]


def stress(directory: Path, network: Network | None, faults: int, seed: int) -> int:
    """Run; the data stays where it is if anything was wrong."""
    links = "every node in a network of its own" if network else "no links are cut: all nodes are on loopback"
    say(f"{faults} faults of seed {seed} ({links}; data in {directory})")
    if network is not None:
        network.start()
    try:
        cluster = StressCluster(directory, network)
        with cluster:
            StressRun(cluster, seed, say).execute(faults)
    except AssertionError as error:
        say(f"FAILED\n{error}\nagain with: python -m tests.stress --faults {faults} --seed {seed}")
        return 1
    say(f"{faults} faults of seed {seed}: nothing lost, duplicated, reordered or taken back; replicas identical")
    return 0


def say(text: str) -> None:
    """Print at once: whoever watches wants to know how far it is."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
