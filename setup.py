"""Compiles the modules that every request passes, where that is possible; all else about the package is in setup.cfg.

mypyc makes C of the very same Python source, typed as it is; a compiled broker needs about half the time for a small
request. Nothing needs it: without mypyc or a C compiler, or with BARNABAS_PURE=1, the modules are installed as they
are, after a line that says so. All or nothing: the compiled modules refer to each other. Four small extensions are
written in C, since Python could not do it (catch the signal of a page that cannot be had) or not nearly as fast (decode
and encode messages, look at every record, count every request's times by bucket); each has a twin in Python.
"""

from __future__ import annotations

import os
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILED = (
    "barnabas/client/connection.py",
    "barnabas/common/files.py",
    "barnabas/common/open_files.py",
    "barnabas/common/topic_partition.py",
    "barnabas/protocol/headers.py",
    "barnabas/protocol/primitives.py",
    "barnabas/protocol/records/batch.py",
    "barnabas/protocol/records/varint.py",
    "barnabas/protocol/records/walk.py",
    "barnabas/broker/answers.py",
    "barnabas/broker/apis/k00_produce.py",
    "barnabas/broker/apis/k01_fetch.py",
    "barnabas/broker/busy_poll.py",
    "barnabas/broker/connection.py",
    "barnabas/broker/error_codes.py",
    "barnabas/broker/event_wait.py",
    "barnabas/broker/faults/withheld.py",
    "barnabas/broker/fetch_sessions.py",
    "barnabas/broker/handlers.py",
    "barnabas/broker/network_metrics.py",
    "barnabas/broker/processors.py",
    "barnabas/broker/purgatory.py",
    "barnabas/broker/replication/delayed_fetch.py",
    "barnabas/broker/replication/delayed_produce.py",
    "barnabas/broker/replication/fetch_state.py",
    "barnabas/broker/replication/fetcher.py",
    "barnabas/broker/replication/isr.py",
    "barnabas/broker/replication/partition.py",
    "barnabas/broker/replication/reading.py",
    "barnabas/broker/replication/replica_manager.py",
    "barnabas/broker/replication/replication_quota.py",
    "barnabas/broker/replication/role.py",
    "barnabas/broker/request_channel.py",
    "barnabas/broker/request_log.py",
    "barnabas/broker/selector.py",
    "barnabas/broker/storage/index.py",
    "barnabas/broker/storage/leader_epochs.py",
    "barnabas/broker/storage/log.py",
    "barnabas/broker/storage/log_base.py",
    "barnabas/broker/storage/log_producers.py",
    "barnabas/broker/storage/log_reader.py",
    "barnabas/broker/storage/log_segments.py",
    "barnabas/broker/storage/log_types.py",
    "barnabas/broker/storage/log_writer.py",
    "barnabas/broker/storage/offset_index.py",
    "barnabas/broker/storage/offset_map.py",
    "barnabas/broker/storage/producer_state.py",
    "barnabas/broker/storage/record_filter.py",
    "barnabas/broker/storage/segment.py",
    "barnabas/broker/storage/segment_base.py",
    "barnabas/broker/storage/segments.py",
    "barnabas/broker/storage/time_index.py",
    "barnabas/broker/storage/validator.py",
    "barnabas/broker/throttled_connections.py",
    "barnabas/broker/timing_wheel.py",
    "barnabas/broker/topic_stats.py",
    "barnabas/broker/transport.py",
    "barnabas/metrics/histograms.py",
    "barnabas/metrics/meters.py",
    "barnabas/metrics/request_metrics.py",
)

WRITTEN_IN_C = {
    "barnabas.common._file_map": "barnabas/common/_file_map.c",
    "barnabas.protocol._codec": "barnabas/protocol/_codec.c",
    "barnabas.protocol.records._walk": "barnabas/protocol/records/_walk.c",
    "barnabas.metrics._tally": "barnabas/metrics/_tally.c",
}


def extensions() -> list[Extension]:
    """The modules as C extensions; none where they are not to be, or cannot be, compiled."""
    if os.environ.get("BARNABAS_PURE"):
        return []
    by_hand = [Extension(name, [source], extra_compile_args=["-O2"]) for name, source in WRITTEN_IN_C.items()]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        # Why: what mypyc makes needs 3.14 there, for which it has not been tested.
        return by_hand + explain("on a free-threaded interpreter mypyc is not used")
    try:
        from mypyc.build import mypycify
    except ImportError:
        return by_hand + explain("mypy is not installed")
    try:
        # Why level 1: higher ones take minutes and make nothing quicker; the time is spent in CPython's own functions.
        options = {"opt_level": "1", "debug_level": "0", "group_name": "barnabas"}
        return by_hand + mypycify(["--ignore-missing-imports", *COMPILED], **options)
    except SystemExit:  # how mypyc tells of errors, after printing them
        return by_hand + explain("mypyc refused the source")


class BuildAllOrNothing(build_ext):
    """Leaves the modules uncompiled when one cannot be built."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.extensions = explain(str(error))

    def get_outputs(self) -> list[str]:
        return [path for path in super().get_outputs() if os.path.exists(path)]


def explain(reason: str) -> list[Extension]:
    """Say why nothing is compiled."""
    print(f"barnabas: installing without compiled modules: {reason}", file=sys.stderr)
    return []


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNothing})
