"""`python -m tests.simulation --seed N`: one simulated life of a cluster; its last line is `digest <hex>`.

With `--runs` it continues with the next seeds. Each runs in a fork of an interpreter that has imported everything, so
that a history does not depend on those before it. The last line is then the digest of all digests.

Exits with 0 if nothing was wrong. A seed that fails is printed with the version and the command that repeats it.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import sys
import time
import traceback
from pathlib import Path

from barnabas.testing.simulation.machine import interpreter, patches
from barnabas.testing.simulation.machine.digest import Digest
from barnabas.testing.simulation.machine.scheduler import Scheduler
from tests.simulation.load.story import Story, StoryError
from tests.simulation.mutants import mutant
from tests.simulation.mutants.tables.all import MUTANTS
from tests.simulation.shrinking.life import Life, LifeError
from tests.simulation.shrinking.shrink import Shrinker
from tests.support.seeded_run import say, seeded_parser

HASH_SEED = "PYTHONHASHSEED"
DIGEST = "digest "
VIRTUAL = " virtual seconds"
real_monotonic = time.monotonic  # before it is replaced


def options() -> argparse.Namespace:
    """The options of this process."""
    parser = seeded_parser("simulation", "a cluster's life by a seed", has_directory=False)
    parser.add_argument("--runs", type=int, default=1, help="run this seed and the next ones, so many in all")
    parser.add_argument("--story", default="", help="parts of the story, which the seed draws: producers=2,copiers=0")
    parser.add_argument("--brokers", type=int, help="number of brokers, of the story")
    parser.add_argument("--seconds", type=int, help="virtual seconds under load and faults, of the story")
    parser.add_argument("--no-faults", action="store_true", help="nothing breaks")
    parser.add_argument("--mutant", choices=list(MUTANTS), help="make a mistake on purpose: the run should fail")
    parser.add_argument("--real-seconds", type=float, help="begin no new seed of --runs after this time")
    parser.add_argument("--until-failure", action="store_true", help="end --runs at the first seed that fails")
    parser.add_argument("--trace", type=Path, help="write every effect to this file, for diff")
    parser.add_argument("--logs", type=Path, help="write the nodes' logs to this file, with virtual times")
    parser.add_argument("--log-level", default="INFO", help="of --logs")
    parser.add_argument("--live", type=Path, help="write the live page of every node at each step to this directory")
    parser.add_argument("--life", type=Path, help="run the life of this file, which --keep or --shrink has written")
    parser.add_argument("--keep", type=Path, help="write the life of this seed to a file")
    parser.add_argument("--shrink", action="store_true", help="shrink the first life that fails to a short story")
    parser.add_argument(
        "--shrink-orders", type=int, default=4, help="how often --shrink runs each story, in other orders"
    )
    parser.add_argument("--shrink-trials", type=int, default=400, help="how many lives --shrink runs at most")
    arguments = parser.parse_args()
    if arguments.life is not None:
        try:
            arguments.life = Life.read(arguments.life)
            Story(**arguments.life.story)
        except (LifeError, TypeError) as error:
            parser.error(str(error))
        arguments.seed = arguments.life.seed
    if arguments.seed is None:
        arguments.seed = int.from_bytes(os.urandom(4), "big")
    try:
        arguments.story = Story.given(arguments.story)
    except StoryError as error:
        parser.error(str(error))
    given = {"brokers": arguments.brokers, "seconds": arguments.seconds, "faults": 0 if arguments.no_faults else None}
    arguments.story |= {name: value for name, value in given.items() if value is not None}
    return arguments


def main() -> None:
    """Run the seeds; ends the process."""
    arguments = options()
    if os.environ.get(HASH_SEED) != "0":  # the order of sets of strings
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        interpreter.fix_addresses()
        os.execve(sys.executable, command, {**os.environ, HASH_SEED: "0"})
    scheduler = Scheduler(arguments.seed)
    patches.install(scheduler)
    if arguments.mutant is not None:
        mutant.apply(MUTANTS[arguments.mutant])
    # Why here: it imports the code under test, which must find the simulated machine.
    import tests.simulation.cluster.run  # noqa: F401

    if arguments.shrink:
        sys.stdout.flush()
        os._exit(shrink(scheduler, arguments))
    failed: list[int] = []
    virtual_s = 0.0
    end = None if arguments.real_seconds is None else real_monotonic() + arguments.real_seconds
    digests = hashlib.sha256()
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        code, text = in_a_fork(scheduler, seed, arguments)
        lines = text.splitlines()
        if code:
            failed.append(seed)
        if code or arguments.runs == 1:
            say("\n".join(lines[:-1] if arguments.runs == 1 else lines))
        digests.update(lines[-1].encode() if lines else b"")
        virtual_s += sum(float(line.split()[0]) for line in lines if VIRTUAL in line)
        if arguments.runs == 1:
            say(lines[-1] if lines else f"the run of seed {seed} ended with {code}")
        elif (failed and arguments.until_failure) or (end is not None and real_monotonic() > end):
            break
    if arguments.runs > 1:
        spent = os.times()
        pace = virtual_s / max(spent.children_user + spent.children_system, 0.01)
        say(
            f"{seed - arguments.seed + 1} runs, {len(failed)} failed: {failed}, {virtual_s:.1f}{VIRTUAL}, "
            f"{pace:.1f} in each second of a core"
        )
        say(f"{DIGEST}{digests.hexdigest()}")
    sys.stdout.flush()
    os._exit(1 if failed else 0)


def in_a_fork(scheduler: Scheduler, seed: int, arguments: argparse.Namespace) -> tuple[int, str]:
    """Run a seed in a child; return its exit code and what it printed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        code = 2
        try:
            code = run_one(scheduler, seed, arguments)
        except Exception:
            say(f"seed {seed} ended with an exception: again with: {again(seed)}\n{traceback.format_exc()}")
        finally:
            sys.stdout.flush()
            # Why not sys.exit: it would end the tasks that are left by an exception in each, and run their `finally`.
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, errors="replace") as output:
        text = output.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), text


def run_one(scheduler: Scheduler, seed: int, arguments: argparse.Namespace) -> int:
    """Run a seed, and print what came out; return the exit code."""
    import barnabas
    from barnabas.testing.simulation.logs import keep_logs
    from tests.simulation.cluster.run import Run
    from tests.simulation.live_steps import LiveSteps

    trace = None if arguments.trace is None else arguments.trace.open("w")
    life = life_of(seed, arguments)
    keep_logs(scheduler, arguments.logs, arguments.log_level)  # first: logging takes locks, and each is a point
    network = patches.begin(scheduler, seed, Digest(trace), life.order)
    story = Story(**life.story)
    run = Run(scheduler, network, story, life.decisions)
    if arguments.live is not None:
        run.faults.on_step = LiveSteps(scheduler, run.nodes, arguments.live).step
    outcome = run.run()
    if arguments.keep is not None:
        life._replace(decisions=outcome.decisions).write(arguments.keep)
    say(f"seed {seed} of Barnabas {barnabas.__version__}")
    say(f"story {story}")
    for line in (*outcome.told, *outcome.problems):
        say(line)
    say(f"clients: {'; '.join(outcome.done)}")
    say(f"{outcome.virtual_s:.1f}{VIRTUAL}, {outcome.turns} turns")
    if outcome.problems:
        say(f"FAILED: again with: {again(seed)}")
    if trace is not None:
        trace.close()
    say(f"{DIGEST}{outcome.digest}")
    return 1 if outcome.problems else 0


def life_of(seed: int, arguments: argparse.Namespace) -> Life:
    """The life that the options ask for."""
    if arguments.life is not None:
        life: Life = arguments.life
        return life
    return Life(seed, 0, dataclasses.asdict(Story.drawn(seed, **arguments.story)), None)


def shrink(scheduler: Scheduler, arguments: argparse.Namespace) -> int:
    """Shrink the first life of the options that fails, and print what is left of it; return the exit code."""
    from tests.simulation.shrinking.trials import Trials

    trials = Trials(scheduler)
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        first = trials.run(life_of(seed, arguments))
        if first.problems:
            break
        say(f"nothing was wrong with seed {seed}")
    else:
        return 0
    shrinker = Shrinker(
        lambda life: trials.run(life).problems, orders=arguments.shrink_orders, trials_max=arguments.shrink_trials
    )
    shortest = shrinker.shrink(first.life)
    path = Path(f"build/life-{shortest.seed}.json") if arguments.keep is None else arguments.keep
    shortest.write(path)
    last = trials.run(shortest)
    before, after = len(first.life.decisions or ()), len(shortest.decisions or ())
    say(f"{shrinker.trials} lives; of {before} faults {after} are left")
    say(", ".join(f"{name} {number}" for name, number in shortest.story.items() if number))
    for line in (*last.told, *last.problems):
        say(line)
    say(f"FAILED: again with: {again(shortest.seed, '--life', str(path))}")
    return 1


def again(seed: int, *options: str) -> str:
    """The command that repeats a run of this command."""
    kept: list[str] = list(options)
    given = iter(sys.argv[1:])
    for option in given:
        name, _, value = option.partition("=")
        in_life = ("--life", "--brokers", "--seconds", "--story") if options else ()
        left_out = ("--seed", "--runs", "--real-seconds", "--keep", "--shrink-orders", "--shrink-trials", *in_life)
        if name in left_out:
            if not value:
                next(given, None)
        elif name not in ("--until-failure", "--shrink"):
            kept.append(option)
    return " ".join(["python -m tests.simulation", *([] if options else ["--seed", str(seed)]), *kept])


if __name__ == "__main__":
    main()
