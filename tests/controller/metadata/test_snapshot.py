"""Snapshots: written, read, incomplete; covers `controller/metadata/record_batches.py`."""

from __future__ import annotations

import contextlib
import random

import pytest

from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.controller.image import Image
from barnabas.controller.image_editor import with_records
from barnabas.controller.metadata.snapshot import (
    SnapshotId,
    image_records,
    list_snapshots,
    newest_snapshot,
    write_snapshot,
)
from barnabas.protocol.errors import ApiError
from tests.controller.rig import Rig
from tests.controller.test_quorum_controller import allocate, contents

LOG = "/meta/__cluster_metadata-0"


def busy() -> Rig:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1], [1, 0]], retention_ms="7")
    allocate(rig, 0)
    return rig


def test_the_records_of_an_image_rebuild_it() -> None:
    image = busy().image
    assert contents(with_records(Image(), image_records(image))) == contents(image)


def test_a_snapshot_replaces_the_log() -> None:
    rig = busy()
    rig.controller._snapshot_bytes = 100
    rig.controller.loop.step()
    assert isinstance(rig.fs, MemoryFileSystem)
    (snapshot,) = list_snapshots(rig.fs, LOG)
    assert snapshot.end_offset == rig.image.offset + 1
    names = [entry.name for entry in rig.fs.listdir(LOG) if entry.name.endswith(".log")]
    assert names == [f"{snapshot.end_offset:020d}.log"]
    assert rig.log.size_in_bytes == 0
    rig.create("later", [[0]])
    again = rig.restart()
    assert contents(again.image) == contents(rig.image)
    assert again.controller.epoch == rig.controller.epoch + 1


def test_an_incomplete_snapshot_is_ignored() -> None:
    rig = busy()
    fs = rig.fs
    whole = SnapshotId(rig.image.offset + 1, 1)
    write_snapshot(fs, LOG, whole, image_records(rig.image), 0)
    data = fs.read_bytes(f"{LOG}/{whole.file_name}")
    later = whole._replace(end_offset=whole.end_offset + 1)
    for size in range(0, len(data), 11):
        fs.write_bytes(f"{LOG}/{later.file_name}", data[:size], sync=True)
        found = newest_snapshot(fs, LOG)
        assert found is not None
        assert found[0] == whole
    assert contents(found[1]) == contents(rig.image)


@pytest.mark.parametrize("power_cut", [False, True])
def test_any_failure_while_a_snapshot_is_written(power_cut: bool) -> None:
    nth = 0
    while True:
        nth += 1
        disk = MemoryFileSystem()
        faulty = FaultyFileSystem(disk)
        rig = Rig(faulty, FakeClock())
        rig.join(0)
        rig.create("t", [[0], [0]])
        rig.controller._snapshot_bytes = 100
        fail_at = faulty.fail_at = faulty.operations + nth
        with contextlib.suppress(OSError, ApiError):
            rig.controller.loop.step()
        after = disk.crash(random.Random(nth)) if power_cut else disk.kill()
        again = Rig(after)
        assert contents(again.image) == contents(rig.image)
        again.create("more", [[0]])
        assert set(again.restart().image.topic_ids) == {"t", "more"}
        if faulty.operations < fail_at:
            assert nth > 5
            return
