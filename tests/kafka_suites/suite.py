"""The classes of Apache Kafka's integration tests, and one run of one of them in a JVM."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.kafka_suites.results import Result, read_report
from tests.support.kafka.built_once import built_once
from tests.support.kafka.kafka_jars import KAFKA_VERSION, KafkaRuntime, KafkaRuntimeError, jars_of
from tests.support.processes import tied_to_parent

HERE: Final = Path(__file__).parent
JARS: Final = (
    "kafka-clients-integration-tests",
    "kafka-tools",
    "kafka-server",
    "kafka_2.13",
    "kafka-streams-integration-tests",
    "connect-runtime",
    "connect-mirror",
    "connect-file",
)
ANNOTATION: Final = re.compile(rb"Lorg/apache/kafka/common/test/api/Cluster(Test|Tests|Template);")
#: The classes that start an EmbeddedKafkaCluster; no annotation tells.
EMBEDDED: Final = re.compile(
    r".*/(streams|connect)/([a-z]+/)?integration/\w+Test\.class|.*/ResetIntegration(WithSsl)?Test\.class"
    r"|.*/tools/streams/\w+Test\.class|.*/KRaftClusterTest\.class"
)
HARNESS: Final = "kafka/server/QuorumTestHarness"  # the class that tests extend which start single brokers
# The constants at the begin of a compiled class: the tag of each kind, and its size (of a text, without the text).
_UTF8: Final = 1
_CLASS: Final = 7
_DOUBLE_ENTRIES: Final = (5, 6)  # a long and a double count twice
_CONSTANT_SIZES: Final = {
    1: 3, 3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3, 17: 5, 18: 5, 19: 3, 20: 3,
}  # fmt: skip
LAUNCHER: Final = "org.junit.platform.console.ConsoleLauncher"
KERBEROS: Final = "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED"  # the tests' KDC sets the JVM's realm
JVM: Final = ("-Xmx1g", "-Duser.timezone=UTC", KERBEROS)
TIMEOUT_S: Final = 3600  # of a class


def runtime() -> KafkaRuntime:
    """The jars of the tests; they are fetched first if they are missing. Raises KafkaRuntimeError."""
    return jars_of("suites", HERE / "pom.xml")


def shim(runtime: KafkaRuntime) -> Path:
    """The directory of our classes, which come before Kafka's of the same name. Raises KafkaRuntimeError."""
    sources = sorted((HERE / "shim").rglob("*.java"))
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]

    def build(directory: Path) -> None:
        javac = shutil.which("javac") or "javac"
        command = [javac, "-nowarn", "-cp", f"{runtime.directory / 'jars'}/*", "-d", str(directory), *map(str, sources)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise KafkaRuntimeError(f"javac failed: {result.stderr.strip()}")

    return built_once(runtime.directory / f"shim-{version}", build)


def classes_with_tests(runtime: KafkaRuntime) -> Iterator[str]:
    """The names of all classes with tests that ask for a cluster, in the order of JARS."""
    for jar in JARS:
        with zipfile.ZipFile(runtime.directory / "jars" / f"{jar}-{KAFKA_VERSION}-test.jar") as content:
            for name in sorted(content.namelist()):
                if name.endswith("Test.class") and "$" not in name and _has_cluster(name, content):
                    yield name.removesuffix(".class").replace("/", ".")


def _has_cluster(name: str, content: zipfile.ZipFile) -> bool:
    if EMBEDDED.fullmatch(name) is not None or ANNOTATION.search(content.read(name)) is not None:
        return True
    while name in content.NameToInfo:
        parent = superclass(content.read(name))
        if parent == HARNESS:
            return True
        name = f"{parent}.class"
    return False


def superclass(code: bytes) -> str:
    """The name of the class that a compiled class extends, such as `java/lang/Object`."""
    names: dict[int, str] = {}
    classes: dict[int, int] = {}
    at, index, count = 10, 1, int.from_bytes(code[8:10], "big")
    while index < count:
        tag, number = code[at], int.from_bytes(code[at + 1 : at + 3], "big")
        if tag == _UTF8:
            names[index] = code[at + 3 : at + 3 + number].decode(errors="replace")
            at += number
        elif tag == _CLASS:
            classes[index] = number
        at += _CONSTANT_SIZES[tag]
        index += 2 if tag in _DOUBLE_ENTRIES else 1
    return names[classes[int.from_bytes(code[at + 4 : at + 6], "big")]]


def run(runtime: KafkaRuntime, selectors: Sequence[str], directory: Path, *, is_apache: bool) -> list[Result]:
    """Run the tests that these options of JUnit's launcher select; their output and report stay in the directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    nodes = f"-Dbarnabas.nodes={sys.executable}\n-P\n{HERE / 'nodes.py'}"
    classes = None if is_apache else shim(runtime)
    command = tied_to_parent(runtime.command(LAUNCHER, *JVM, nodes, classes=classes))
    command += ["execute", "--disable-banner", "--disable-ansi-colors", "--reports-dir", str(directory), *selectors]
    with (directory / "output").open("wb") as output:
        child = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            child.wait(TIMEOUT_S)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return read_report(directory / "TEST-junit-jupiter.xml")
