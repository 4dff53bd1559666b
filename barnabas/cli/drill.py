"""`barnabas drill`: incidents on purpose, for people who learn to operate Kafka (docs/drills/).

`barnabas drill NAME` starts a cluster of its own with applications on it, breaks something, says what is noticed and
where to look, and waits until it is repaired from another terminal: the exit code is then 0. It is an ephemeral
cluster, which other commands find all the same.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from barnabas.cli.ephemeral import Ephemeral, new_directory
from barnabas.cli.errors import UserError
from barnabas.cli.running import announced, running_directories
from barnabas.cli.suggest import did_you_mean
from barnabas.cluster import ClusterError, LocalCluster

CHECK_S = 0.5
CLEAN_CHECKS = 2  # in a row: a repair has to hold
EXIT_FAILED = 1
EXIT_UNREPAIRED = 1
FAULTS_ENABLE = "barnabas.faults.enable"


class Drills(click.Group):
    """The commands, and beside them the name of each drill."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        from barnabas.drills.catalogue import DRILLS

        return _start_command(cmd_name) if cmd_name in DRILLS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from barnabas.drills.catalogue import DRILLS

            hint = did_you_mean(args[0], [*DRILLS, *self.commands])
            raise UserError(f"there is no drill {args[0]}{hint or ': see barnabas drill list'}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from barnabas.drills.catalogue import DRILLS

        drills = [CompletionItem(name) for name in DRILLS if name.startswith(incomplete)]
        return drills + super().shell_complete(ctx, incomplete)


@click.group(cls=Drills, subcommand_metavar="NAME | COMMAND")
def drill() -> None:
    """Break a cluster on purpose, and have its repair checked: `barnabas drill list`, `barnabas drill NAME`."""


def _start_command(name: str) -> click.Command:
    @click.command(name)
    @click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of broker 0; else a free one.")
    def start(port: int) -> int:
        """Stage the drill, and wait until it is repaired."""
        from barnabas.drills.catalogue import DRILLS

        chosen = DRILLS[name]
        directory = new_directory()
        config = {"offsets.topic.num.partitions": "3", **chosen.config, FAULTS_ENABLE: "true"}
        cluster = LocalCluster(directory, chosen.brokers, port, config)
        try:
            cluster.plan()
            return Stage(cluster, name).run()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    return start


class Stage(Ephemeral):
    """The supervisor of a drill's cluster. The drill itself is a thread beside the loop, which it wakes at its end."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        super().__init__(cluster)
        self._name = name  # fixed before start
        self._over = threading.Event()  # set by stop: the thread is to end
        self._code = EXIT_FAILED  # written by the thread before it wakes the loop
        self._end_reader, self._end_writer = os.pipe()
        self.watch(self._end_reader, lambda: self.end(self._code))
        self._thread_of_drill = threading.Thread(target=self._play, name="drill", daemon=True)

    def announced(self) -> contextlib.AbstractContextManager[None]:
        """The learner's commands find it."""
        return announced(self._cluster.directory)

    def on_ready(self) -> None:
        """Begin."""
        self._thread_of_drill.start()

    def stop(self) -> None:
        """End the thread, then the processes."""
        self._over.set()
        super().stop()

    def close(self) -> None:
        """Give the descriptors back."""
        super().close()
        self._thread_of_drill.join(CHECK_S)
        os.close(self._end_reader)

    def _play(self) -> None:
        try:
            self._stage_and_wait()
        except Exception as error:
            if not self._over.is_set():
                click.echo(f"barnabas: {error}", err=True)
        finally:
            os.close(self._end_writer)

    def _stage_and_wait(self) -> None:
        """Stage the drill and wait for its repair."""
        from barnabas.drills.catalogue import DRILLS
        from barnabas.drills.scene import Scene

        chosen = DRILLS[self._name]
        scene = Scene(self._cluster.directory)
        scene.note(drill=self._name)
        try:
            click.echo(f"staging {self._name} ...")
            chosen.stage(scene)
            scene.note(staged=True, page=scene.page())
            click.echo("\n".join(chosen.briefing(scene.facts)))
            clean = 0
            while not self._over.wait(CHECK_S):
                clean = 0 if _problems(scene) else clean + 1
                if clean == CLEAN_CHECKS:
                    click.echo(f"Repaired: {self._name} is over.")
                    self._code = 0
                    return
        finally:
            scene.end()


def _problems(scene: object) -> list[str]:
    """What is still wrong with the drill of a scene; who does not answer while processes come and go is wrong too."""
    from barnabas.drills.catalogue import DRILLS
    from barnabas.drills.scene import Scene

    assert isinstance(scene, Scene)
    try:
        return list(DRILLS[scene.facts["drill"]].problems(scene))
    except (ClusterError, UserError, OSError) as error:
        return [f"It cannot be told: {error}."]


@drill.command("list")
def list_drills() -> None:
    """List the drills."""
    from barnabas.drills.catalogue import DRILLS

    width = max(map(len, DRILLS))
    for name, each in DRILLS.items():
        click.echo(f"{name:{width}}  {each.title}")


@drill.command()
def check() -> int:
    """Tell what is still wrong with the drill that runs; exit code 1 while something is."""
    with _running() as directory:
        from barnabas.drills.scene import Scene

        scene = Scene(directory)
        if not scene.facts.get("staged"):
            raise UserError("the drill is being staged: it is not broken yet")
        found = _problems(scene)
    for line in found or ["Nothing is wrong any more."]:
        click.echo(line)
    return EXIT_UNREPAIRED if found else 0


@drill.command()
def solution() -> None:
    """Tell one way out of the drill that runs."""
    with _running() as directory:
        from barnabas.drills.catalogue import DRILLS
        from barnabas.drills.scene import Scene

        facts = Scene(directory).facts
        for line in DRILLS[facts["drill"]].solution(facts):
            click.echo(line)


@drill.command()
@click.argument("application")
def stop(application: str) -> None:
    """Stop an APPLICATION of the drill that runs."""
    _switch(application, "stopped")


@drill.command()
@click.argument("application")
def resume(application: str) -> None:
    """Start an APPLICATION that was stopped."""
    _switch(application, "running")


def _switch(name: str, state: str) -> None:
    with _running() as directory:
        from barnabas.drills.applications import switches
        from barnabas.drills.scene import APPLICATIONS

        known = {switch.name: switch for switch in switches(directory / APPLICATIONS)}
        if name not in known:
            raise UserError(f"there is no application {name}: there are {', '.join(known)}")
        known[name].want(state)
        if not known[name].await_state(state):
            raise UserError(f"{name} does not react")
        click.echo(f"{name} is {state}")


@contextlib.contextmanager
def _running() -> Iterator[Path]:
    """The directory of the drill that runs."""
    from barnabas.drills.scene import FACTS

    found = [directory for directory in running_directories() if (directory / FACTS).exists()]
    if len(found) != 1:
        raise UserError("no drill runs: barnabas drill list" if not found else "several drills run: end all but one")
    yield found[0]
