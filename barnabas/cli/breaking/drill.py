"""`barnabas drill`: staged incidents for people who learn to operate Kafka (docs/drills/).

`barnabas drill NAME` starts a cluster and applications that use it, breaks something, and prints the symptoms and where
to look. Then it waits until the user has repaired it from another terminal, and exits with 0. The cluster is ephemeral,
but unlike other ephemeral clusters, commands find it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from barnabas.cli.errors import ArgumentError, UserError
from barnabas.cli.local.ephemeral import Ephemeral, new_directory
from barnabas.cli.local.running import announced, running_directories
from barnabas.cli.suggest import did_you_mean
from barnabas.cluster import ClusterError, LocalCluster
from barnabas.cluster.plan import FAULTS_KEY

if TYPE_CHECKING:
    from barnabas.drills.scene import Scene

CHECK_S = 0.5
CLEAN_CHECKS = 2  # in a row, so that a repair must last
EXIT_FAILED = 1
EXIT_UNREPAIRED = 1


class Drills(click.Group):
    """A group in which the name of each drill is a command, too."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, or the one that starts the drill of that name; None if there is neither."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        from barnabas.drills.catalogue import DRILLS

        return _start_command(cmd_name) if cmd_name in DRILLS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name. Raises UserError, with the closest name, if there is none."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from barnabas.drills.catalogue import DRILLS

            hint = did_you_mean(args[0], [*DRILLS, *self.commands])
            raise ArgumentError(f"there is no drill {args[0]}{hint or ': see barnabas drill list'}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The drills and commands that begin with `incomplete`."""
        from barnabas.drills.catalogue import DRILLS

        drills = [CompletionItem(name) for name in DRILLS if name.startswith(incomplete)]
        return drills + super().shell_complete(ctx, incomplete)


@click.group(cls=Drills, subcommand_metavar="NAME | COMMAND")
def drill() -> None:
    """Practise incidents: `barnabas drill list` lists them, `barnabas drill NAME` starts one."""


def _start_command(name: str) -> click.Command:
    @click.command(name)
    @click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of broker 0; 0: a free one.")
    def start(port: int) -> int:
        """Stage the drill and wait until it is repaired."""
        from barnabas.drills.catalogue import DRILLS

        chosen = DRILLS[name]
        directory = new_directory()
        config = {"offsets.topic.num.partitions": "3", **chosen.config, FAULTS_KEY: "true"}
        cluster = LocalCluster(directory, chosen.brokers, port, config, controller_count=chosen.controllers)
        try:
            cluster.plan()
            return Stage(cluster, name).run()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    return start


class Stage(Ephemeral):
    """The supervisor of a drill's cluster. The drill runs on a thread, which wakes the loop when it ends."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        super().__init__(cluster)
        self._name = name  # fixed before start
        self._over = threading.Event()  # set by stop: the thread must end
        self._code = EXIT_FAILED  # written by the thread before it wakes the loop
        self._end_reader, self._end_writer = os.pipe()
        self.watch(self._end_reader, lambda: self.end(self._code))
        self._thread_of_drill = threading.Thread(target=self._play, name="drill", daemon=True)

    def announced(self) -> contextlib.AbstractContextManager[None]:
        """Let the user's commands find the cluster."""
        return announced(self._cluster.directory)

    def on_ready(self) -> None:
        """Start the drill."""
        self._thread_of_drill.start()

    def stop(self) -> None:
        """End the thread, then the processes."""
        self._over.set()
        super().stop()

    def close(self) -> None:
        """Close the descriptors."""
        super().close()
        self._thread_of_drill.join(CHECK_S)
        os.close(self._end_reader)

    def _play(self) -> None:
        try:
            self._stage_and_wait()
        except Exception as error:
            if not self._over.is_set():
                # Why the name: a timeout has no text.
                click.echo(f"barnabas: {str(error) or type(error).__name__}", err=True)
        finally:
            os.close(self._end_writer)

    def _stage_and_wait(self) -> None:
        """Stage the drill and wait for its repair."""
        from barnabas.drills.catalogue import DRILLS
        from barnabas.drills.scene import Scene

        chosen = DRILLS[self._name]
        scene = Scene(self._cluster.directory)
        scene.note(drill=self._name)  # facts that the commands in other terminals read
        try:
            click.echo(f"Staging {self._name} ...")
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


def _problems(scene: Scene) -> list[str]:
    """The remaining problems of a drill; a process that does not answer is one, too."""
    from barnabas.drills.catalogue import DRILLS

    try:
        return list(DRILLS[scene.facts["drill"]].problems(scene))
    except (ClusterError, UserError, OSError) as error:
        return [f"The check failed: {error}."]


@drill.command("list")
def list_drills() -> None:
    """List the drills."""
    from barnabas.drills.catalogue import DRILLS

    width = max(map(len, DRILLS))
    for name, each in DRILLS.items():
        click.echo(f"{name:{width}}  {each.title}")


@drill.command()
def check() -> int:
    """Print the remaining problems of the running drill. Exits 1 while there are any."""
    with _running() as directory:
        from barnabas.drills.scene import Scene

        scene = Scene(directory)
        if not scene.facts.get("staged"):
            raise UserError("the drill is still being staged")
        found = _problems(scene)
    for line in found or ["All problems are solved."]:
        click.echo(line)
    return EXIT_UNREPAIRED if found else 0


@drill.command()
def solution() -> None:
    """Print one solution of the running drill."""
    with _running() as directory:
        from barnabas.drills.catalogue import DRILLS
        from barnabas.drills.scene import Scene

        facts = Scene(directory).facts
        for line in DRILLS[facts["drill"]].solution(facts):
            click.echo(line)


@drill.command()
@click.argument("application")
def stop(application: str) -> None:
    """Stop an APPLICATION of the running drill."""
    _switch(application, "stopped")


@drill.command()
@click.argument("application")
def resume(application: str) -> None:
    """Start a stopped APPLICATION again."""
    _switch(application, "running")


def _switch(name: str, state: str) -> None:
    with _running() as directory:
        from barnabas.drills.applications import switches
        from barnabas.drills.scene import APPLICATIONS

        known = {switch.name: switch for switch in switches(directory / APPLICATIONS)}
        if name not in known:
            raise UserError(f"there is no application {name}; the applications are {', '.join(known)}")
        known[name].want(state)
        if not known[name].await_state(state):
            raise UserError(f"{name} does not respond")
        click.echo(f"{name} is {state}")


@contextlib.contextmanager
def _running() -> Iterator[Path]:
    """The directory of the running drill. Raises UserError unless exactly one runs."""
    from barnabas.drills.scene import FACTS

    found = [directory for directory in running_directories() if (directory / FACTS).exists()]
    if len(found) != 1:
        raise UserError("several drills run: end all but one" if found else "no drill runs: see barnabas drill list")
    yield found[0]
