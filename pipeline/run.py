"""The main job: starts a cluster, runs both streaming jobs on it in parallel, then the audit, and prints the results.

`make run` calls this. Each job is its own process, as on a real platform; this one draws the progress from the JSON
lines that they print. The exit code is 0 only if the audit found no difference.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

CHAOS_BROKER = 1
MARKER = ".made-by-barnabas-pipeline"  # in a work directory, which a later run may empty
COMMAND_CONFIG = "BARNABAS_COMMAND_CONFIG"  # the variable by which commands and jobs find their security settings
Reports = queue.Queue[tuple[str, dict[str, object] | None]]  # (job, its report or None at its end)
ENDING = (signal.SIGINT, signal.SIGTERM)
TOPICS = {"flights": 6, "delays": 6}
BARNABAS = (sys.executable, "-P", "-m", "barnabas.cli")
console = Console()


class RunError(Exception):
    """One line that names the part that failed and its log."""


@dataclass(slots=True)
class Job:
    """A Spark job as a child process; its JSON lines arrive in `reports`, None at its end."""

    name: str
    process: subprocess.Popen[str]
    log: Path
    reports: Reports = field(repr=False)

    def read(self) -> None:
        """Read the reports until the process closes its output; runs on its own thread."""
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with contextlib.suppress(json.JSONDecodeError):
                    self.reports.put((self.name, json.loads(line)))
        self.process.wait()
        self.reports.put((self.name, None))

    def check_end(self) -> None:
        """Raise RunError, with the last line of the log, if the ended job failed."""
        if self.process.returncode:
            last = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            raise RunError(f"{self.name} failed: {last[-1] if last else 'no output'} (its log is {self.log})")

    def stop(self) -> None:
        """End the job and the JVM that belongs to it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()


@dataclass(slots=True)
class Chaos:
    """Kills a broker after a third of the flights, and starts it again after two thirds, with the usual commands."""

    cluster_dir: Path
    steps: list[tuple[float, str]] = field(default_factory=lambda: [(1 / 3, "kill"), (2 / 3, "start")])

    def at(self, share: float) -> None:
        """Take the steps that are due when this share of the flights was produced."""
        while self.steps and share >= self.steps[0][0]:
            _, action = self.steps.pop(0)
            said = barnabas("node", action, str(CHAOS_BROKER), "--data-dir", str(self.cluster_dir))
            console.print(f"chaos: {said.strip()}")


@dataclass(slots=True)
class Run:
    """One run of the pipeline in `work_dir`."""

    work_dir: Path
    bootstrap: str
    months: int
    chaos: Chaos | None = None
    reports: Reports = field(default_factory=queue.Queue)
    jobs: dict[str, Job] = field(default_factory=dict)

    def start(self, name: str, *extra: str, reports: Reports | None = None) -> Job:
        """Start `python -m pipeline.NAME`. Its stderr goes to its log, its reports to `reports` or the run's queue."""
        log = self.work_dir / f"{name}.log"
        command = [sys.executable, "-m", f"pipeline.{name}", "--bootstrap", self.bootstrap]
        command += ["--work-dir", str(self.work_dir), "--months", str(self.months), *extra]
        with log.open("ab") as errors, signals_held():
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True, cwd=checkout()
            )
            job = self.jobs[name] = Job(name, process, log, reports or self.reports)
        threading.Thread(target=job.read, name=f"{name}-output", daemon=True).start()
        return job

    def stream(self) -> None:
        """Run ingest and delays in parallel until both have processed every flight."""
        until = self.work_dir / "ingest.done"
        until.unlink(missing_ok=True)
        with progress_bars() as bars:
            tasks = {name: bars.add_task(f"{name}: starting Spark", total=None) for name in ("ingest", "delays")}
            self.start("ingest")
            self.start("delays", "--until", str(until))
            running = set(tasks)
            for name, report in iter(self.reports.get, None):
                if report is None:
                    self.jobs[name].check_end()
                    bars.update(tasks[name], description=f"{name}: done", total=1, completed=1)
                    running.remove(name)
                    if name == "ingest":
                        until.touch()
                    if not running:
                        return
                    continue
                show_progress(bars, tasks[name], name, report)
                if name == "ingest" and self.chaos is not None:
                    self.chaos.at(int(str(report["done"])) / int(str(report["total"])))

    def audit(self) -> list[dict[str, object]]:
        """Run the audit; return the tables and the picture that it reports. Raises RunError if it found differences."""
        tables = []
        with progress_bars() as bars:
            task = bars.add_task("audit: starting Spark", total=None)
            self.start("audit")
            for name, report in iter(self.reports.get, None):
                if report is None:
                    self.jobs[name].check_end()
                    bars.update(task, description="audit: done", total=1, completed=1)
                    return tables
                if "routes" in report or "picture" in report:
                    tables.append(report)
                else:
                    bars.update(task, description=f"audit: {report['step']}, {report['records']} records")
        return tables

    def stop(self) -> None:
        """End all jobs that still run."""
        for job in self.jobs.values():
            job.stop()


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block has ended: a child that is started in it is known then, and ended."""
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in received[:1]:
            signal.raise_signal(number)


def barnabas(*arguments: str) -> str:
    """Run a `barnabas` command and return its output; raises RunError with the last line of its stderr."""
    done = subprocess.run([*BARNABAS, *arguments], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise RunError(f"barnabas {' '.join(arguments[:2])} failed: {lines[-1]}")
    return done.stdout


def prepare(work_dir: Path) -> None:
    """Make `work_dir` an empty directory; raises RunError if it holds what no run of the pipeline wrote."""
    marker = work_dir / MARKER
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
        entries = [entry for entry in work_dir.iterdir() if entry != marker]
        if entries and not (marker.exists() or work_dir == DEFAULT_WORK_DIR):
            raise RunError(f"{work_dir} is not empty, and no run of the pipeline made it: choose another WORK_DIR")
        marker.touch()  # Why first: a run that ends here must not lock the next one out
        for entry in entries:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    except OSError as error:
        raise RunError(f"the work directory cannot be used: {error}") from None


def checkout() -> Path:
    """The directory that holds the `pipeline` package."""
    return Path(__file__).resolve().parent.parent


DEFAULT_WORK_DIR = checkout() / "data" / "run"


@contextlib.contextmanager
def progress_bars() -> Iterator[Progress]:
    """Bars on a terminal; on a pipe rich prints them once, at the end."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield bars


def show_progress(bars: Progress, task: TaskID, name: str, report: dict[str, object]) -> None:
    """Update a job's bar from its last report."""
    if name == "ingest":
        done, total = int(str(report["done"])), int(str(report["total"]))
        bars.update(task, description=f"ingest: week {done}", completed=done, total=total)
    else:
        bars.update(task, description=f"delays: batch {report['batch']}, {report['groups']} groups changed")


@contextlib.contextmanager
def existing_cluster(bootstrap: str) -> Iterator[dict[str, str]]:
    """Use a running cluster and leave it up. Deletes the topics of earlier runs, since the audit counts all records."""
    listed = json.loads(barnabas("topic", "list", "--bootstrap", bootstrap, "--json"))
    if old := [row["topic"] for row in listed if row["topic"] in TOPICS]:
        barnabas("topic", "delete", *old, "--bootstrap", bootstrap)
    yield {"bootstrap": bootstrap}


@contextlib.contextmanager
def cluster(arguments: argparse.Namespace, work_dir: Path) -> Iterator[dict[str, str]]:
    """Run `barnabas up`, yield the fields of its ready line, and stop it at the end (not with --keep)."""
    command = [*BARNABAS, "up", "--brokers", str(arguments.brokers)]
    command += ["--port", str(arguments.port), "--data-dir", str(work_dir / "cluster")]
    command += ["--security", arguments.security]
    log = work_dir / "cluster.log"
    process: subprocess.Popen[str] | None = None
    try:
        with log.open("ab") as errors, signals_held():
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if words[:1] != ["ready"]:
            process.wait()
            raise RunError(f"the cluster did not start: {(log.read_text().splitlines() or ['no output'])[-1]}")
        fields = dict(word.split("=", 1) for word in words[1:])
        if "security" in fields:  # the commands and the jobs connect as admin
            os.environ[COMMAND_CONFIG] = f"{unquote(fields['security'])}/users/admin/client.properties"
        scheme = "https" if arguments.security.lower() in ("ssl", "sasl_ssl") else "http"
        yield {**fields, "pid": str(process.pid), "scheme": scheme}
    except BaseException:
        arguments.keep = False
        raise
    finally:
        if not arguments.keep and process is not None and process.poll() is None:
            process.terminate()
            process.wait()


def _the_cluster(arguments: argparse.Namespace, work_dir: Path) -> contextlib.AbstractContextManager[dict[str, str]]:
    return existing_cluster(arguments.bootstrap) if arguments.bootstrap else cluster(arguments, work_dir)


def create_topics(bootstrap: str, replicas: int) -> None:
    """Create the pipeline's topics with `barnabas topic create`."""
    for topic, partitions in TOPICS.items():
        settings = ["--config", "min.insync.replicas=2"] if replicas >= 3 else []
        size = ["--partitions", str(partitions), "--replication-factor", str(replicas)]
        barnabas("topic", "create", topic, "--bootstrap", bootstrap, *size, *settings)


def show_routes(report: dict[str, object]) -> None:
    """Print one of the two route tables."""
    table = Table(title=f"The {report['title']} routes out of New York, 2013", title_justify="left")
    for column in ("from", "to", "airport"):
        table.add_column(column)
    for column in ("flights", "mean delay (min)"):
        table.add_column(column, justify="right")
    routes = report["routes"]
    assert isinstance(routes, list)
    for route in routes:
        delay = f"{route['mean_delay']:.1f}"
        table.add_row(route["origin"], route["dest"], route["name"], f"{route['flights']:,}", delay)
    console.print(table)


def show_places(fields: dict[str, str], work_dir: Path, kept: bool) -> None:
    """Print where the results are."""
    table = Table(show_header=False, box=None)
    table.add_row("picture", f"{work_dir / 'delays.html'} (or delays.png beside it)")
    table.add_row("Parquet", str(work_dir / "parquet" / "delays"))
    if "pid" not in fields:
        table.add_row("topics", f"{', '.join(TOPICS)} on {fields['bootstrap']}")
        console.print(table)
        return
    table.add_row("topics", f"{', '.join(TOPICS)} in {work_dir / 'cluster'}")
    state = "" if kept else " (stopped now; make run KEEP=1 leaves it up)"
    table.add_row("brokers", fields["bootstrap"] + state)
    pages = [f"{fields['scheme']}://{address}/metrics" for address in fields["metrics"].split(",") if address]
    table.add_row("metrics", " ".join(pages))
    if "security" in fields:
        table.add_row("", f"user token, password in {unquote(fields['security'])}/pages_token")
    if kept:
        table.add_row("stop it", f"kill {fields['pid']}")
    console.print(table)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options; `make run` sets them from its variables."""
    parser = argparse.ArgumentParser(
        prog="pipeline.run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bootstrap", help="use the running cluster here; deletes its topics flights and delays")
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers, also of a running cluster")
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--work-dir", type=Path, default=DEFAULT_WORK_DIR, help="is emptied first")
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument(
        "--security", default="plaintext", help="ssl, sasl_ssl or sasl_plaintext: the cluster's, as of `barnabas up`"
    )
    parser.add_argument("--chaos", action="store_true", help="kill a broker during the run, and start it again")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Entry point of `python -m pipeline.run`; returns the exit code."""
    arguments = parse(argv)
    if arguments.chaos and arguments.brokers < 3:
        print("make run: CHAOS=1 needs three brokers", file=sys.stderr)
        return 1
    work_dir: Path = arguments.work_dir.absolute()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Why: the children, with sessions of their own, end, too
    try:
        prepare(work_dir)
        with _the_cluster(arguments, work_dir) as fields:
            console.print(f"cluster ready: {fields['bootstrap']}")
            create_topics(fields["bootstrap"], min(3, arguments.brokers))
            chaos = Chaos(work_dir / "cluster") if arguments.chaos else None
            run = Run(work_dir, fields["bootstrap"], arguments.months, chaos)
            try:
                run.stream()
                tables = run.audit()
            finally:
                run.stop()
            for table in tables:
                if "routes" in table:
                    show_routes(table)
            console.print("audit passed: each flight exactly once, every figure equal to the source's")
            show_places(fields, work_dir, arguments.keep)
    except RunError as error:
        print(f"make run: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
