"""Results of JUnit's report, the list of tests that cannot pass, and what a run has found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_suites.results import (
    FAILED,
    INSIDE,
    NEEDS_JAVA,
    PASSED,
    SKIPPED,
    Result,
    findings,
    leave_out,
    read_list,
    read_report,
)
from tests.kafka_suites.suite import HERE

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="JUnit Jupiter" tests="5">
<testcase name="testReads(ClusterInstance)[2]" classname="org.Consumer"/>
<testcase name="testWrites()" classname="org.Consumer"><skipped/></testcase>
<testcase name="testFails()[1]" classname="org.Consumer">
<failure message="expected: 1 but was: 2" type="AssertionError">trace</failure></testcase>
<testcase name="testLogs()[1]" classname="org.Consumer">
<error message="oh" type="X"><![CDATA[X: oh
Caused by: barnabas.InsideTheJvm: KafkaBroker.logManager is an object
  at a line]]></error></testcase>
<testcase name="testBuilds()[1]" classname="org.Consumer">
<error message="broker-0 ended at start: principal.builder.class is not supported: no such classes can be loaded"
 type="X">trace</error></testcase>
</testsuite>
"""


def result(method: str, outcome: str, invocation: str = "") -> Result:
    return Result("org.Consumer", method, invocation, outcome)


@pytest.mark.parametrize(
    "message",
    [
        "principal.builder.class is not supported: no such classes can be loaded",
        "for configuration alter.config.policy.class.name: Java classes cannot be loaded here",
        "Class org.A$Own could not be found: authorizer.class.name can be org.apache.StandardAuthorizer",
    ],
)
def test_a_class_that_the_broker_should_load_is_recognized(tmp_path: Path, message: str) -> None:
    (tmp_path / "report.xml").write_text(
        f'<testsuite><testcase name="t()" classname="C"><error message="broker-0 ended at start: x {message}; y"/>'
        "</testcase></testsuite>"
    )
    assert [(found.outcome, found.reason) for found in read_report(tmp_path / "report.xml")] == [(NEEDS_JAVA, message)]


def test_reads_outcomes_of_a_report(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert read_report(tmp_path / "report.xml") == [
        result("testReads", PASSED, "[2]"),
        result("testWrites", SKIPPED),
        Result("org.Consumer", "testFails", "[1]", FAILED, "AssertionError: expected: 1 but was: 2"),
        Result("org.Consumer", "testLogs", "[1]", INSIDE, "KafkaBroker.logManager is an object"),
        Result(
            "org.Consumer",
            "testBuilds",
            "[1]",
            NEEDS_JAVA,
            "principal.builder.class is not supported: no such classes can be loaded",
        ),
    ]


def test_a_run_without_report_has_no_results(tmp_path: Path) -> None:
    assert read_report(tmp_path / "report.xml") == []


def test_reads_the_list() -> None:
    assert read_list("# comment\n\norg.Consumer.testA  a reason of words\n") == {
        "org.Consumer.testA": "a reason of words"
    }


@pytest.mark.parametrize("text", ["org.Consumer.testA\n", "org.Consumer.testA  x\norg.Consumer.testA  y\n"])
def test_refuses_a_list_with_gaps_or_doubles(text: str) -> None:
    with pytest.raises(ValueError, match=r"org\.Consumer\.testA"):
        read_list(text)


def test_our_list_can_be_read() -> None:
    read_list((HERE / "cannot_pass.txt").read_text())


def test_finds_failures_that_are_not_in_the_list() -> None:
    results = [
        result("testA", FAILED, "[1]"),
        result("testB", FAILED),
        result("testC", INSIDE),
        result("testD", PASSED),
    ]
    found = findings(results, {"org.Consumer.testB": "reason"}, ["org.Consumer"])
    assert found == ["org.Consumer.testA[1] failed: "]


def test_finds_entries_that_are_not_true() -> None:
    listed = {"org.Consumer.testA": "r", "org.Consumer.testGone": "r", "org.NotRun.testB": "r"}
    assert findings([result("testA", PASSED)], listed, ["org.Consumer"]) == [
        "org.Consumer.testA is in the list, but did not fail",
        "org.Consumer.testGone is in the list, but does not exist",
    ]


def test_a_test_that_ends_the_jvm_is_left_out_and_is_no_finding() -> None:
    listed = {"org.Consumer.testA": "ends the JVM: its command fails", "org.Consumer.testB": "other"}
    assert leave_out(listed) == ["org.Consumer.testA"]
    assert findings([result("testB", FAILED)], listed, ["org.Consumer"]) == []


def test_an_entry_is_true_if_one_invocation_fails() -> None:
    results = [result("testA", PASSED, "[1]"), result("testA", FAILED, "[2]")]
    assert findings(results, {"org.Consumer.testA": "reason"}, ["org.Consumer"]) == []
