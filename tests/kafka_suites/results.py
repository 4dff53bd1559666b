"""What a run of tests gave: read from JUnit's report, and compared with the list of tests that cannot pass."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INSIDE_THE_JVM: Final = "barnabas.InsideTheJvm: "  # the class of the shim that says so
PASSED: Final = "passed"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
INSIDE: Final = "looks into the JVM"
ENDS_THE_JVM: Final = "ends the JVM"  # how the reason of a test begins that is left out
NEEDS_JAVA: Final = "needs Java in the broker"
_REFUSED_CLASS: Final = re.compile(  # how a node ends at start
    r"\S+ is not supported: no such classes can be loaded|for configuration \S+: Java classes cannot be loaded here"
    r"|Class \S+ could not be found: authorizer\.class\.name can be [\w.]+"
)
_PARAMETERS: Final = re.compile(r"\(.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one invocation of a test."""

    class_name: str
    method: str
    invocation: str  # "[1]"; "" if there is only one
    outcome: str
    reason: str = ""  # the first line of its failure

    @property
    def test(self) -> str:
        """`package.Class.method`."""
        return f"{self.class_name}.{self.method}"


def read_report(file: Path) -> list[Result]:
    """The results in a report of JUnit's launcher; none if the launcher wrote no report."""
    if not file.exists():
        return []
    return [_result(case) for case in ElementTree.parse(file).getroot().iter("testcase")]


def _result(case: ElementTree.Element) -> Result:
    name = case.get("name", "")
    method = _PARAMETERS.sub("", name)
    invocation = name[name.rfind("[") :] if name.endswith("]") else ""
    class_name = case.get("classname", "")
    if case.find("skipped") is not None:
        return Result(class_name, method, invocation, SKIPPED)
    problem = case.find("failure")
    problem = case.find("error") if problem is None else problem
    if problem is None:
        return Result(class_name, method, invocation, PASSED)
    text = f"{problem.get('message', '')}\n{problem.text or ''}"
    found = text.find(INSIDE_THE_JVM)
    if found >= 0:
        reason = text[found + len(INSIDE_THE_JVM) :].splitlines()[0]
        return Result(class_name, method, invocation, INSIDE, reason)
    refused = _REFUSED_CLASS.search(text)
    if refused:
        return Result(class_name, method, invocation, NEEDS_JAVA, refused[0])
    reason = next((line for line in text.splitlines() if line.strip()), "")
    return Result(class_name, method, invocation, FAILED, f"{problem.get('type', '')}: {reason}")


def read_list(text: str) -> dict[str, str]:
    """The tests that cannot pass and why: a line for each test, `package.Class.method  reason`; # starts a comment."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            test, _, reason = line.partition(" ")
            if not reason.strip():
                raise ValueError(f"{test} has no reason")
            if test in found:
                raise ValueError(f"{test} is there twice")
            found[test] = reason.strip()
    return found


def leave_out(cannot_pass: Mapping[str, str]) -> list[str]:
    """The listed tests that end the JVM, and with it the tests that would run after them."""
    return [test for test, reason in cannot_pass.items() if reason.startswith(ENDS_THE_JVM)]


def findings(results: Collection[Result], cannot_pass: Mapping[str, str], classes: Iterable[str]) -> list[str]:
    """What is to be looked at: failed tests that are not in the list, and entries of the list that are not true.

    `classes` are those that were run to their end; entries of other classes are left alone.
    """
    failed = {result.test for result in results if result.outcome == FAILED}
    existing = {result.test for result in results}
    found = [
        f"{result.test}{result.invocation} failed: {result.reason}"
        for result in results
        if result.outcome == FAILED and result.test not in cannot_pass
    ]
    run = set(classes)
    tried = [test for test in cannot_pass if test.rpartition(".")[0] in run and test not in leave_out(cannot_pass)]
    wrong = [test for test in tried if test not in failed]
    how = {True: "did not fail", False: "does not exist"}
    return found + [f"{test} is in the list, but {how[test in existing]}" for test in wrong]
