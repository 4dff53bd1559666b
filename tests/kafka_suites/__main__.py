"""Apache Kafka's own integration tests, as they are in its jars, against Barnabas.

    python -m tests.kafka_suites [--only PATTERN] [--target apache] [--into DIRECTORY]

A test that fails runs a second time, alone. A test of cannot_pass.txt may fail, and is left out if it ends the JVM. Two
kinds are counted separately: what asks for an object of Kafka's JVM, and what names a class that the broker should
load. Anything else is a finding: the last lines name it, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.kafka_suites.results import FAILED, PASSED, Result, findings, leave_out, read_list
from tests.kafka_suites.suite import HERE, classes_with_tests, run, runtime
from tests.support.kafka.kafka_jars import KafkaRuntime, KafkaRuntimeError


def main() -> int:
    """Run the tests; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_suites", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of class names, such as '*PlaintextConsumer*'")
    parser.add_argument("--target", choices=("barnabas", "apache"), default="barnabas")
    parser.add_argument("--into", type=Path, metavar="DIRECTORY", help="of output and reports (default: a new one)")
    arguments = parser.parse_args()
    into = arguments.into or Path(tempfile.mkdtemp(prefix="kafka-suites-"))
    print(f"output and reports: {into}", flush=True)
    cannot_pass = read_list((HERE / "cannot_pass.txt").read_text()) if arguments.target == "barnabas" else {}
    try:
        jars = runtime()
        classes = [name for name in classes_with_tests(jars) if fnmatch.fnmatchcase(name, arguments.only)]
        results = [
            result
            for name in classes
            for result in _run_class(
                jars, name, into.resolve() / name, leave_out(cannot_pass), is_apache=arguments.target == "apache"
            )
        ]
    except KafkaRuntimeError as error:
        sys.exit(str(error))
    found = findings(results, cannot_pass, classes)
    print("\n".join([_counts(results), *found]))
    return 1 if found or not results else 0


def _run_class(jars: KafkaRuntime, name: str, directory: Path, left_out: list[str], *, is_apache: bool) -> list[Result]:
    """Run a class but for the tests that are left out, then each test of it that failed a second time."""
    classes_and_methods = (test.rpartition(".") for test in left_out)
    patterns = [
        f"^{re.escape(owner)}#{re.escape(method)}$" for owner, _, method in classes_and_methods if owner == name
    ]
    exclusions = [option for pattern in patterns for option in ("--exclude-methodname", pattern)]
    results = run(jars, ["-c", name, *exclusions], directory, is_apache=is_apache)
    print(f"{name}: {_counts(results) or 'no results'}", flush=True)
    for test in {result.test for result in results if result.outcome == FAILED}:
        method = test.rpartition(".")[2]
        # Why a pattern: to select a method, the launcher wants the types of its parameters, too.
        only = ["-c", name, "--include-methodname", f"^{re.escape(name)}#{re.escape(method)}$"]
        again = run(jars, only, directory / method, is_apache=is_apache)
        if again and all(result.outcome == PASSED for result in again):
            print(f"{test}: passed when run again, alone", flush=True)
            results = [result for result in results if result.test != test] + again
    return results


def _counts(results: list[Result]) -> str:
    counts = Counter(result.outcome for result in results)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
