"""PushState: the obeyed epoch and offset, through crashes and in several directories."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.metadata.push_state import PushState, read_push_state
from barnabas.broker.storage.directories.log_directory import LogDirectory
from barnabas.broker.storage.directories.names import PUSH_STATE_FILE
from barnabas.common.disk.faulty_files import MemoryFileSystem

A, B = "h3zYrOmsQJqmHD2y0yjFEg", "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def fs():
    made = MemoryFileSystem()
    for path in ("/one", "/two"):
        made.mkdir(path)
    return made


def opened(fs, cluster_id=A, paths=("/one", "/two")):
    return PushState(fs, [LogDirectory(fs, path) for path in paths], cluster_id)


def test_a_higher_epoch_is_written_at_once_and_an_offset_by_the_checkpoint(fs):
    state = opened(fs)
    assert (state.controller_epoch, state.metadata_offset) == (-1, -1)
    state.note(3, 10)
    state.note(3, 12)
    after_a_crash = opened(fs)
    assert (after_a_crash.controller_epoch, after_a_crash.metadata_offset) == (3, 10)
    state.checkpoint()
    state.checkpoint()
    again = opened(fs)
    assert (again.controller_epoch, again.metadata_offset) == (3, 12)


def test_the_states_of_clusters_are_kept_apart(fs):
    opened(fs).note(7, 70)
    other = opened(fs, B)
    assert other.controller_epoch == -1
    other.note(1, 1)
    back = opened(fs)
    assert (back.controller_epoch, back.metadata_offset) == (7, 70)


def test_the_highest_copy_counts_and_a_damaged_one_is_skipped_with_a_warning(fs, caplog):
    opened(fs).note(7, 70)
    opened(fs, paths=("/two",)).note(8, 80)
    state = opened(fs)
    assert (state.controller_epoch, state.metadata_offset) == (8, 80)
    path = f"/two/{PUSH_STATE_FILE}"
    fs.write_bytes(path, fs.read_bytes(path).replace(b" 8 ", b" 9 "), sync=True)
    with caplog.at_level(logging.WARNING):
        assert opened(fs).controller_epoch == 7
    assert f"{path} is damaged" in caplog.text
    with pytest.raises(OSError, match="damaged"):
        read_push_state(fs, path)


def test_an_epoch_that_cannot_be_written_is_not_noted(fs):
    state = opened(fs)
    for directory in state._directories:
        directory.failure = OSError("gone")
    with pytest.raises(OSError, match="no log directory"):
        state.note(1, 1)
    assert state.controller_epoch == -1
