"""The pytest plugin, used by a pytest in its own process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import await_ends
from tests.support.waiting import eventually

TIMEOUT_S = 120
INI = """
[pytest]
barnabas_brokers = 1
barnabas_config =
    num.io.threads=3
    log.retention.hours = 7
"""


class Project:
    """A directory with tests, and a pytest process to run them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "project"
        self.temporary = directory / "temporary"
        self.directory.mkdir()
        self.temporary.mkdir()

    def write(self, **files: str) -> None:
        """Write `test_x=` as test_x.py; `ini` as pytest.ini."""
        for name, text in files.items():
            path = self.directory / ("pytest.ini" if name == "ini" else f"{name}.py")
            path.write_text(textwrap.dedent(text))

    @contextlib.contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run pytest during the block, with no plugin but ours."""
        environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, "-P", "-m", "pytest", "-p", "barnabas.testing.plugin", "-p", "no:cacheprovider"]
        with subprocess.Popen(
            [*command, "-q", "--color=no", "--strict-markers", *arguments],
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Why: a shell's background jobs ignore SIGINT, and their children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run pytest; return its exit code and its output."""
        with self.start(*arguments) as process:
            out, _ = process.communicate(timeout=TIMEOUT_S)
            return process.returncode, out


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_fixtures_markers_and_ini_options(project: Project) -> None:
    project.write(
        ini=INI,
        test_it="""
            import pytest
            from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

            seen = {}

            def described(cluster, kind, name):
                resource = ConfigResource(kind, name)
                admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
                found = admin.describe_configs([resource])[resource].result(30)
                return {key: entry.value for key, entry in found.items()}

            def test_as_the_ini_says(barnabas_cluster):
                seen["usual"] = barnabas_cluster
                found = described(barnabas_cluster, ResourceType.BROKER, "0")
                assert (found["num.io.threads"], found["log.retention.hours"]) == ("3", "7")

            @pytest.mark.barnabas(brokers=2, config={"num.io.threads": 2})
            def test_of_its_own(barnabas_cluster, barnabas_topic):
                seen["own"] = barnabas_cluster
                assert barnabas_cluster is not seen["usual"]
                assert len(barnabas_cluster.bootstrap.split(",")) == 2
                found = described(barnabas_cluster, ResourceType.BROKER, "1")
                assert (found["num.io.threads"], found["log.retention.hours"]) == ("2", "7")

            @pytest.mark.barnabas_topic(partitions=3, config={"retention.ms": 1000})
            def test_topic(barnabas_topic, barnabas_cluster):
                assert barnabas_cluster is seen["usual"]
                topic = AdminClient({"bootstrap.servers": barnabas_cluster.bootstrap}).list_topics(timeout=30)
                assert len(topic.topics[barnabas_topic].partitions) == 3
                assert described(barnabas_cluster, ResourceType.TOPIC, barnabas_topic)["retention.ms"] == "1000"
                seen["topic"] = barnabas_topic

            def test_another_topic(barnabas_topic):
                assert barnabas_topic.startswith("test_another_topic-")
                assert barnabas_topic != seen["topic"]

            @pytest.mark.barnabas(brokers=2, config={"num.io.threads": 2})
            def test_alike(barnabas_cluster):
                assert barnabas_cluster is seen["own"]

            @pytest.mark.barnabas(fresh=True)
            @pytest.mark.parametrize("number", [1, 2])
            def test_fresh(barnabas_cluster, number):
                assert barnabas_cluster not in seen.values()
                seen[number] = barnabas_cluster
        """,
    )
    code, out = project.run()
    assert "7 passed" in out, out
    assert code == 0
    assert list(project.temporary.glob("barnabas-*")) == []


def test_logs_are_in_the_report_of_a_failed_test(project: Project) -> None:
    project.write(
        test_it="""
            import pytest

            def test_passes(barnabas_cluster):
                pass

            def test_fails(barnabas_cluster):
                barnabas_cluster.kill(0)
                barnabas_cluster.start(0)
                assert False, "on purpose"

            def test_fails_quietly(barnabas_cluster):
                assert False, "on purpose too"

            @pytest.mark.barnabas(config={"num.io.threads": 0})
            def test_cannot_start(barnabas_cluster):
                pass
        """,
    )
    code, out = project.run()
    assert code == 1
    assert "2 failed, 1 passed, 1 error" in out, out
    assert out.count("log of broker-0") == 1, out
    assert "the cluster could not be started" in out
    assert "Invalid value 0 for configuration num.io.threads" in out
    assert list(project.temporary.glob("barnabas-*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_pytest_leaves_nothing_behind(project: Project, number: signal.Signals) -> None:
    project.write(
        test_it="""
            import threading

            def test_waits(barnabas_cluster, capsys):
                with capsys.disabled():
                    print("pids", *barnabas_cluster.pids.values(), flush=True)
                # Why short waits: a signal right before a wait would not end it.
                while True:
                    threading.Event().wait(0.1)
        """,
    )
    with project.start() as process:
        assert process.stdout is not None
        line = next((line for line in process.stdout if "pids" in line), "")
        assert line
        descriptors = [os.pidfd_open(int(pid)) for pid in line.partition("pids")[2].split()]
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_S)
    await_ends(descriptors)
    eventually("the directory is removed", lambda: not list(project.temporary.glob("barnabas-*")))


def test_a_marker_asks_for_a_secured_cluster(project: Project) -> None:
    project.write(
        test_it="""
            import pytest
            from confluent_kafka import Producer

            @pytest.mark.barnabas(security="sasl_ssl", users={"alice": "secret"}, acls=["alice write topic:*"])
            def test_as_alice(barnabas_cluster, barnabas_topic):
                producer = Producer(barnabas_cluster.client_settings("alice"))
                producer.produce(barnabas_topic, b"value")
                assert producer.flush(20) == 0
                barnabas_cluster.assert_produced(barnabas_topic, b"value")
        """,
    )
    code, out = project.run()
    assert code == 0, out


def test_two_runs_at_once_have_separate_clusters(project: Project) -> None:
    project.write(
        ini=INI,
        test_it="""
            def test_alone(barnabas_cluster):
                name = barnabas_cluster.create_topic("shared", fresh=False)
                assert [each for each in barnabas_cluster.records(name)] == []
        """,
    )
    with project.start() as first, project.start() as second:
        for process in (first, second):
            out, _ = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0, out


def test_a_run_without_our_fixtures_imports_only_the_plugin(project: Project) -> None:
    project.write(
        test_it="""
            import sys

            def test_nothing_of_it_is_imported():
                mine = {name for name in sys.modules if name.partition(".")[0] in ("barnabas", "confluent_kafka")}
                assert mine == {"barnabas", "barnabas.testing", "barnabas.testing.plugin"}
        """,
    )
    code, out = project.run()
    assert code == 0, out


@pytest.mark.parametrize(
    ("ini", "marker", "words"),
    [
        ("barnabas_brokers = x", "", "barnabas_brokers, barnabas_port: invalid literal"),
        ("barnabas_config = x", "", "barnabas_config: 'x' is not of the form key=value"),
        ("", "@pytest.mark.barnabas(borkers=3)", "unexpected keyword argument 'borkers'"),
        ("", "@pytest.mark.barnabas(users={'alice': 'secret'})", "users and acls need security: SSL, SASL_SSL or"),
    ],
)
def test_invalid_options_and_markers_are_refused(project: Project, ini: str, marker: str, words: str) -> None:
    project.write(
        ini=f"[pytest]\n{ini}\n",
        test_it=f"import pytest\n{marker}\ndef test_it(barnabas_cluster):\n    pass\n",
    )
    code, out = project.run()
    assert code != 0
    assert words in out
