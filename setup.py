"""Compiles the modules that every request passes; all else about the package is in setup.cfg.

mypyc makes C of the very same Python source, typed as it is; a compiled broker needs about half the time for a small
request. Six small extensions are written in C. Python cannot do what two of them do (catch the signal of a page that
cannot be read, make system calls without giving the interpreter's lock away), is many times slower at three (decode and
encode messages, read every record, count every request's times by bucket), and would need ctypes for the last (two
calls of the kernel). Each has a fallback in Python.

Rules
1. What can be compiled is compiled, or the build fails with a plain message. Nobody gets the slow product unasked.
2. BARNABAS_PURE=1 asks for it: no compiler is needed then, and the wheel fits every interpreter.
3. A free-threaded interpreter gets mypyc's modules from CPython 3.14 on, the first that mypyc supports. On 3.13 it gets
   the C extensions only. docs/internals/threads.md (Without a global lock) says what an attribute may be.
4. Elsewhere than on Linux, where no server runs, nothing is compiled.
5. The outcome does not depend on what else is installed: mypyc sees no site-packages, and none of the settings that the
   project's own type check has.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILED = (
    "barnabas/client/connection.py",
    "barnabas/common/clocks/wall.py",
    "barnabas/common/disk/files.py",
    "barnabas/common/disk/open_files.py",
    "barnabas/common/topic_partition.py",
    "barnabas/protocol/headers.py",
    "barnabas/protocol/primitives.py",
    "barnabas/protocol/records/batch.py",
    "barnabas/protocol/records/plain.py",
    "barnabas/protocol/records/varint.py",
    "barnabas/protocol/records/walk.py",
    "barnabas/security/acls/index.py",
    "barnabas/security/acls/rules.py",
    "barnabas/security/tls/session.py",
    "barnabas/broker/authorization/access.py",
    "barnabas/broker/authorization/audit.py",
    "barnabas/broker/authorization/authorizer.py",
    "barnabas/broker/requests/answers.py",
    "barnabas/broker/requests/dispatcher.py",
    "barnabas/broker/requests/parking.py",
    "barnabas/broker/requests/request.py",
    "barnabas/broker/apis/k00_produce.py",
    "barnabas/broker/apis/k01_fetch.py",
    "barnabas/broker/apis/k78_share_fetch.py",
    "barnabas/broker/apis/k79_share_acknowledge.py",
    "barnabas/broker/apis/share_requests.py",
    "barnabas/broker/network/busy_poll.py",
    "barnabas/broker/network/connection.py",
    "barnabas/broker/network/connections.py",
    "barnabas/broker/requests/error_codes.py",
    "barnabas/broker/network/event_wait.py",
    "barnabas/broker/faults/actions/withheld.py",
    "barnabas/broker/fetch_sessions/session.py",
    "barnabas/broker/fetch_sessions/sessions.py",
    "barnabas/broker/handlers.py",
    "barnabas/broker/network/network_metrics.py",
    "barnabas/broker/network/secure/record_ends.py",
    "barnabas/broker/network/secure/ssl_transport.py",
    "barnabas/broker/processors.py",
    "barnabas/broker/purgatory.py",
    "barnabas/broker/replication/delayed/delayed_fetch.py",
    "barnabas/broker/replication/delayed/delayed_produce.py",
    "barnabas/broker/replication/fetching/fetch_state.py",
    "barnabas/broker/replication/fetching/turns.py",
    "barnabas/broker/replication/fetching/fetcher.py",
    "barnabas/broker/replication/hosted_partitions.py",
    "barnabas/broker/replication/in_sync/followers.py",
    "barnabas/broker/replication/in_sync/isr.py",
    "barnabas/broker/replication/in_sync/isr_updates.py",
    "barnabas/broker/replication/offset_queries.py",
    "barnabas/broker/replication/partition.py",
    "barnabas/broker/replication/idle_partitions.py",
    "barnabas/broker/replication/reading.py",
    "barnabas/broker/replication/replica_manager.py",
    "barnabas/broker/replication/replication_quota.py",
    "barnabas/broker/replication/role.py",
    "barnabas/broker/request_channel.py",
    "barnabas/broker/requests/request_log.py",
    "barnabas/broker/network/selector.py",
    "barnabas/broker/share/acknowledgements.py",
    "barnabas/broker/share/delayed_share_fetch.py",
    "barnabas/broker/share/partition/acknowledging.py",
    "barnabas/broker/share/partition/acquiring.py",
    "barnabas/broker/share/partition/in_flight.py",
    "barnabas/broker/share/partition/phases.py",
    "barnabas/broker/share/partition/share_partition.py",
    "barnabas/broker/share/partition/state.py",
    "barnabas/broker/share/record_batches.py",
    "barnabas/broker/storage/large_batches.py",
    "barnabas/broker/storage/segments/index.py",
    "barnabas/broker/storage/log/leader_epochs.py",
    "barnabas/broker/storage/log/appender.py",
    "barnabas/broker/storage/log/flusher.py",
    "barnabas/broker/storage/log/log.py",
    "barnabas/broker/storage/log/log_state.py",
    "barnabas/broker/storage/log/log_types.py",
    "barnabas/broker/storage/log/reader.py",
    "barnabas/broker/storage/log/segment_keeper.py",
    "barnabas/broker/storage/log/validator.py",
    "barnabas/broker/storage/cleaner/offset_map.py",
    "barnabas/broker/storage/cleaner/record_filter.py",
    "barnabas/broker/storage/producers/log_producers.py",
    "barnabas/broker/storage/producers/producer_append.py",
    "barnabas/broker/storage/producers/producer_entry.py",
    "barnabas/broker/storage/producers/producer_state.py",
    "barnabas/broker/storage/producers/snapshots.py",
    "barnabas/broker/storage/segments/offset_index.py",
    "barnabas/broker/storage/segments/segment.py",
    "barnabas/broker/storage/segments/segment_files.py",
    "barnabas/broker/storage/segments/segment_lookup.py",
    "barnabas/broker/storage/segments/segment_timestamps.py",
    "barnabas/broker/storage/segments/segments.py",
    "barnabas/broker/storage/segments/time_index.py",
    "barnabas/broker/network/throttled_connections.py",
    "barnabas/broker/timing_wheel.py",
    "barnabas/broker/monitoring/topic_stats.py",
    "barnabas/broker/network/transport.py",
    "barnabas/metrics/histograms.py",
    "barnabas/metrics/meters.py",
    "barnabas/metrics/request_metrics.py",
)

WRITTEN_IN_C = {
    "barnabas.broker.network.batches._sockets": "barnabas/broker/network/batches/_sockets.c",
    "barnabas.common.disk._file_map": "barnabas/common/disk/_file_map.c",
    "barnabas.common.processes._calls": "barnabas/common/processes/_calls.c",
    "barnabas.protocol._codec": "barnabas/protocol/_codec.c",
    "barnabas.protocol.records._walk": "barnabas/protocol/records/_walk.c",
    "barnabas.metrics._tally": "barnabas/metrics/_tally.c",
}


# mypyc's shared module is called `barnabas._compiled__mypyc`: inside the package, as everything else.
GROUP = "barnabas._compiled"
# Why level 1: higher ones take longer and gain nothing; the time is spent in CPython's own functions.
# Why multi_file: all modules in one file of C take a compiler four times as long, on one core.
OPTIONS = {"opt_level": "1", "debug_level": "0", "multi_file": True, "group_name": GROUP}
TYPE_CHECK = ("--config-file=", "--no-site-packages", "--ignore-missing-imports")

IS_PURE = os.environ.get("BARNABAS_PURE", "0") not in ("", "0") or sys.platform != "linux"
IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
HAS_MYPYC = not IS_FREE_THREADED or sys.version_info >= (3, 14)


class BuildOnAllCores(build_ext):
    """Compiles on all cores, the files of one extension too."""

    def build_extensions(self) -> None:
        """Build all extensions; raises what a compiler reports."""
        cores = len(os.sched_getaffinity(0))  # Linux has it, and nothing is compiled elsewhere
        self.parallel = cores  # extensions at a time
        compile_in_turn = self.compiler.compile

        def compile_at_once(sources: list[str], *args: Any, **settings: Any) -> list[str]:
            with ThreadPoolExecutor(cores) as threads:
                made = threads.map(lambda source: compile_in_turn([source], *args, **settings), sources)
                return [name for names in made for name in names]

        self.compiler.compile = compile_at_once
        super().build_extensions()


class BuildOrFail(BuildOnAllCores):
    """Builds the C extensions, then mypyc's, or ends the build."""

    def run(self) -> None:
        """Build all extensions; raises whatever a compiler reports."""
        self._build()  # without a compiler it ends here, before mypyc has worked for half a minute
        # Why here: setuptools asks for the extensions many times, to make metadata and an sdist too. An editable
        # install runs the edited source, not its former compiled version.
        if not self.editable_mode and HAS_MYPYC:
            self.distribution.ext_modules = [*written_in_c(), *compiled(*COMPILED)]
            self.reinitialize_command("build_ext")
            self.ensure_finalized()
            self._build()

    def _build(self) -> None:
        try:
            super().run()
        except Exception as error:
            fail(f"{error} (are a C compiler and Python's headers there? Debian: gcc libc6-dev python3-dev)")


def written_in_c() -> list[Extension]:
    """The extensions that are C by hand."""
    return [Extension(name, [source], extra_compile_args=["-O2"]) for name, source in WRITTEN_IN_C.items()]


def compiled(*modules: str) -> list[Extension]:
    """What mypyc makes of these modules; options of mypy may stand among them."""
    try:
        from mypyc.build import mypycify
    except ImportError:
        fail("mypy is not there (pyproject.toml says which one)")
    try:
        extensions = list(mypycify([*TYPE_CHECK, *modules], **OPTIONS))
    except SystemExit:  # mypyc has printed its errors
        fail("mypyc refused the source; its errors are above")
    for extension in extensions:
        # Why: only these modules use these names. Bound by the linker, they need no table at run time: a start is 30 ms
        # shorter, and a process half a megabyte smaller. Why not `append`: all extensions share one list.
        extension.extra_compile_args = [*extension.extra_compile_args, "-fvisibility=hidden"]
        # Why: with multi_file, mypyc writes the headers of a group into a folder that the compiler does not search.
        extension.include_dirs.append(os.path.join("build", *GROUP.split(".")[:-1]))
    return extensions


def fail(reason: str) -> NoReturn:
    """End the build."""
    sys.exit(
        f"barnabas could not be compiled: {reason}\n"
        "Set BARNABAS_PURE=1 to install it uncompiled: that needs no compiler, and runs at half the speed."
    )


if __name__ == "__main__":
    setup(ext_modules=[] if IS_PURE else written_in_c(), cmdclass={"build_ext": BuildOrFail})
