"""PushState: the obeyed epoch and offset, through crashes and in several directories."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.metadata.push_state import EPOCH_LEAP_MAX, PushState, read_push_state
from barnabas.broker.storage.directories.log_directory import LogDirectory
from barnabas.broker.storage.directories.names import PUSH_STATE_FILE
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.push_tags import Applied

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


@pytest.mark.parametrize(
    "position",
    [
        Applied(20, 3 + EPOCH_LEAP_MAX + 1),  # on the disk it would make every later push late
        Applied(9, 4),  # a controller whose log was cut back
        Applied(-1, 4),
    ],
)
def test_a_registration_with_an_impossible_position_is_not_known(fs, position):
    state = opened(fs)
    state.note(3, 10)
    with pytest.raises(MalformedMessageError, match="do not follow 3 and 10"):
        state.note_registration(position)
    state.checkpoint()
    assert state.highest == opened(fs).highest == Applied(10, 3)


def test_a_registration_counts_as_known_but_makes_no_push_late(fs):
    state = opened(fs)
    state.note(3, 10)
    state.note_registration(Applied(20, 4))
    assert (state.highest, state.controller_epoch, state.metadata_offset) == (Applied(20, 4), 3, 10)
    state.note(3, 15)  # it was sent before the response to the registration
    assert state.highest == Applied(20, 4)
    state.note_registration(Applied(90, -1))  # of a controller that does not say its epoch
    assert state.highest == Applied(20, 4)
    state.checkpoint()
    again = opened(fs)
    assert (again.highest, again.controller_epoch, again.metadata_offset) == (Applied(20, 4), 4, 20)
    state.note(4, 21)
    assert state.highest == opened(fs).highest == Applied(21, 4), "a new epoch is written at once"
