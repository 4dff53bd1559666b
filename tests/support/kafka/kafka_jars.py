"""Apache Kafka from Maven Central: the reference for clients, tests and benchmarks.

`kafka_runtime()` downloads the jars of kafka_runtime/pom.xml once, with the machine's Maven settings. It keeps them in
the user's cache directory, with the compiled ToolRunner.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka.built_once import built_once, cache_directory

KAFKA_VERSION = "4.3.1"
_SOURCES = Path(__file__).parent / "kafka_runtime"
_STREAMS_POM = Path(__file__).parent / "streams_runtime" / "pom.xml"
_CONNECT_POM = Path(__file__).parent / "connect_runtime" / "pom.xml"


class KafkaRuntimeError(Exception):
    """Apache Kafka is not available on this machine; the message is one line that says what to install."""


@dataclass(frozen=True, slots=True)
class KafkaRuntime:
    """Apache Kafka's jars, and the JVM that runs them."""

    java: str
    directory: Path

    def command(self, main_class: str, *jvm_options: str, classes: Path | None = None) -> list[str]:
        """The command line of a JVM that runs a class; append the class's arguments.

        `classes` is the directory of our own class; by default the class is one of Kafka's.
        """
        classpath = f"{classes or self.directory / 'classes'}{os.pathsep}{self.directory / 'jars'}/*"
        logging = f"-Dlog4j2.configurationFile={_SOURCES / 'log4j2.properties'}"
        return [self.java, *jvm_options, logging, "-cp", classpath, main_class]

    def compiled(self, source: Path) -> Path:
        """The directory with the classes of our Java source, compiled if it has changed. Raises KafkaRuntimeError."""
        version = hashlib.sha256(source.read_bytes()).hexdigest()[:12]

        def build(directory: Path) -> None:
            _run([_require("javac"), "-cp", f"{self.directory / 'jars'}/*", "-d", str(directory), str(source)])

        return built_once(self.directory / f"{source.stem}-{version}", build)


def kafka_runtime() -> KafkaRuntime:
    """Return the runtime; download it first if it is missing. Raises KafkaRuntimeError."""
    java = _require("java")
    directory = cache_directory() / f"kafka-{KAFKA_VERSION}-{_fingerprint()}"
    return KafkaRuntime(java, built_once(directory, _build))


def streams_runtime() -> KafkaRuntime:
    """Return Kafka Streams' jars, without those of tools and server, for our own programs. Raises KafkaRuntimeError."""
    return jars_of("streams", _STREAMS_POM)


def connect_runtime() -> KafkaRuntime:
    """Return the jars of Kafka Connect, MirrorMaker and Trogdor. Raises KafkaRuntimeError."""
    return jars_of("connect", _CONNECT_POM)


def jars_of(name: str, pom: Path) -> KafkaRuntime:
    """Return the jars that a pom names; `name` is part of their directory's. Raises KafkaRuntimeError."""
    java = _require("java")
    version = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    directory = cache_directory() / f"kafka-{name}-{KAFKA_VERSION}-{version}"
    built_once(directory, lambda unfinished: _fetch_jars(_require("mvn"), unfinished / "jars", pom))
    return KafkaRuntime(java, directory)


def _require(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise KafkaRuntimeError(
            f"{program} is missing: install a JDK of version 17 or newer and Maven"
            " (Debian: apt-get install default-jdk-headless maven)"
        )
    return path


def _fingerprint() -> str:
    """A hash of everything that the build depends on."""
    content = b"".join((_SOURCES / name).read_bytes() for name in ("pom.xml", "ToolRunner.java"))
    return hashlib.sha256(content).hexdigest()[:12]


def _build(directory: Path) -> None:
    """Download the jars and compile ToolRunner."""
    maven, javac = _require("mvn"), _require("javac")
    _fetch_jars(maven, directory / "jars", _SOURCES / "pom.xml")
    _run([javac, "-cp", f"{directory / 'jars'}/*", "-d", str(directory / "classes"), _source("ToolRunner.java")])


def _fetch_jars(maven: str, target: Path, pom: Path) -> None:
    print(f"Apache Kafka {KAFKA_VERSION}: resolving its jars with Maven, once", file=sys.stderr, flush=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
    command = [maven, "-B", "-f", str(pom), *goal]
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            output.append(line)
            if line.startswith("Downloaded") and ".jar" in line:
                print(f"  {sum('.jar' in seen for seen in output) // 2} jars", end="\r", file=sys.stderr, flush=True)
    if child.returncode != 0:
        errors = [line.strip() for line in output if line.startswith("[ERROR]")]
        raise KafkaRuntimeError(f"Maven could not resolve Apache Kafka {KAFKA_VERSION}: {(errors or output)[0]}")
    print(f"Apache Kafka {KAFKA_VERSION}: {len(list(target.iterdir()))} jars", file=sys.stderr, flush=True)


def _source(name: str) -> str:
    return str(_SOURCES / name)


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise KafkaRuntimeError(f"{Path(command[0]).name} failed: {result.stderr.strip() or result.stdout.strip()}")


if __name__ == "__main__":
    try:
        print(kafka_runtime().directory)
    except KafkaRuntimeError as error:
        sys.exit(str(error))
