"""The log directories of a broker (`log.dirs`): which are online, which one a path belongs to, which are cordoned.

Threads: any; the list is fixed before the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from barnabas.broker.storage.directories.log_directory import LogDirectory, LogDirectoryError
from barnabas.common.disk.files import FileSystem
from barnabas.config import Config
from barnabas.config.checks import ALL_DIRECTORIES


class LogDirectories:
    """All log directories of one broker; `fail` takes one offline after an OSError."""

    def __init__(
        self,
        config: Config,
        log_dirs: Sequence[str | os.PathLike[str]],
        fs: FileSystem,
        fail: Callable[[LogDirectory, OSError], None],
    ) -> None:
        self.fail = fail  # fixed before start
        self.all = [LogDirectory(fs, os.path.abspath(path)) for path in log_dirs]  # fixed before start
        self._config = config

    def open(self, node_id: int) -> str | None:
        """Lock every directory; returns the cluster id that they record, None if they are new.

        A directory whose disk fails goes offline. Raises LogDirectoryError if none is left, or for a directory of
        another node or cluster.
        """
        paths = [directory.path for directory in self.all]
        if len(set(paths)) < len(paths):
            raise LogDirectoryError(f"a log directory is named twice: {', '.join(sorted(paths))}")
        for directory in self.all:
            directory.open(node_id)
        self.check_some_online()
        known = {directory.cluster_id for directory in self.all if directory.cluster_id is not None}
        if len(known) > 1:
            raise LogDirectoryError(f"the log directories belong to different clusters: {', '.join(sorted(known))}")
        return next(iter(known), None)

    def online(self) -> list[LogDirectory]:
        """Return the directories that can be used."""
        return [directory for directory in self.all if not directory.is_offline]

    def offline(self) -> list[LogDirectory]:
        """Return the directories whose disk failed."""
        return [directory for directory in self.all if directory.is_offline]

    def check_some_online(self) -> None:
        """Raise LogDirectoryError if no directory can be used."""
        if not self.online():
            reasons = "; ".join(f"{directory.path}: {directory.failure}" for directory in self.all)
            raise LogDirectoryError(f"no log directory can be used: {reasons}")

    def attempt(self, directory: LogDirectory, job: Callable[[], object]) -> None:
        """Run a job in a log directory if that is online; takes it offline if the job raises OSError."""
        if not directory.is_offline:
            try:
                job()
            except OSError as error:
                self.fail(directory, error)

    def at(self, path: str) -> LogDirectory | None:
        """Return the log directory with this path; None if `log.dirs` does not have it."""
        wanted = os.path.abspath(path)
        return next((directory for directory in self.all if directory.path == wanted), None)

    def of(self, partition_directory: str) -> LogDirectory:
        """Return the log directory of a partition's directory."""
        found = self.at(os.path.dirname(partition_directory))
        assert found is not None, partition_directory
        return found

    def is_cordoned(self, directory: LogDirectory) -> bool:
        """Return whether a log directory gets no new replicas (cordoned.log.dirs, KIP-1066)."""
        named = self._config.cordoned_log_dirs
        return bool(named) and (ALL_DIRECTORIES in named or directory.path in map(os.path.abspath, named))
