"""Stray logs: kept over restarts, restored whole, deleted in time, with crashes in between."""

from __future__ import annotations

import contextlib

import pytest

from barnabas.broker.storage.directories.names import stray_dir_name
from barnabas.broker.storage.directories.strays import StrayError, delete, find, list_strays, restore
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import Entry
from barnabas.common.topic_partition import TopicPartition
from tests.broker.storage.test_log_manager import TOPIC_ID, TPS, Node, contents, directories_of, moving
from tests.support.broker.compaction import compact
from tests.support.broker.storage_bench import Settings

OTHER_ID = b"\x06" * 16
DAY_MS = 86_400_000


def filled(fs=None) -> Node:
    node = Node(fs).start()
    for number in range(5):
        node.append(node.log(TPS[0]), f"v{number}")
    return node


def stopped_with_stray() -> Node:
    node = filled()
    assert node.manager.set_aside({TPS[0]: None}, "unknown") == {}
    node.manager.shutdown()
    return node


def values_of(node: Node) -> list[str]:
    found = node.manager.get_log(TPS[0])
    return [] if found is None else [value for _, value in contents(found)]


def test_a_stray_is_not_a_log_and_is_listed_after_a_restart() -> None:
    node = stopped_with_stray()
    again = Node(node.fs).start()
    assert (again.manager.all_logs(), directories_of(again, "/a")) == ([], ["flights-0-stray"])
    (stray,) = again.manager.strays
    assert (stray.tp, stray.note.topic_id, stray.note.reason) == (TPS[0], TOPIC_ID, "unknown")
    assert stray.size_bytes > 0


def test_a_restored_log_has_its_records_and_its_start() -> None:
    node = filled()
    node.log(TPS[0]).maybe_increment_log_start_offset(2, "test")
    node.manager.set_aside({TPS[0]: None}, "unknown")
    node.manager.shutdown()
    assert restore(node.fs, *list_strays(node.fs, "/a")) == "/a/flights-0"
    again = Node(node.fs).start()
    assert (values_of(again), again.log(TPS[0]).log_start_offset) == (["v2", "v3", "v4"], 2)
    assert not node.fs.exists("/a/flights-0/stray.json")
    assert again.manager.strays == []


def test_gaps_of_the_cleaner_are_no_holes_in_a_log_that_is_restored_after_a_loss_of_power() -> None:
    node = Node().start()
    target = node.manager.get_or_create_log(TPS[0], TOPIC_ID, Settings(segment_bytes=100), True)
    for number in range(5):
        node.append(target, f"v{number}")
    compact(target, node)
    target.flush()
    node.manager.set_aside({TPS[0]: None}, "unknown")
    assert isinstance(node.fs, MemoryFileSystem)
    after = node.fs.crash()
    restore(after, *list_strays(after, "/a"))
    assert values_of(Node(after).start()) == ["v3", "v4"]


def test_a_restored_log_has_no_hole_after_a_later_loss_of_power() -> None:
    node = stopped_with_stray()
    restore(node.fs, *list_strays(node.fs, "/a"))
    node = Node(node.fs).start()
    target = node.log(TPS[0])
    target.flush()
    node.manager.checkpoint_recovery_points()
    node.append(target, "b")
    for value in "cd":
        target.roll()
        node.append(target, value)
    found = Node(node.fs.crash()).start().log(TPS[0])
    assert [offset for offset, _ in contents(found)] == list(range(found.log_end_offset))


def test_a_stray_is_restored_after_a_clean_stop_though_the_cleaners_file_is_damaged() -> None:
    node = stopped_with_stray()
    node.fs.atomic_write("/a/cleaner-offset-checkpoint", b"damaged")
    node.fs.unlink("/a/.kafka_cleanshutdown")
    (stray,) = list_strays(node.fs, "/a")
    with pytest.raises(StrayError, match="start and stop"):
        restore(node.fs, stray)
    Node(node.fs).start().manager.shutdown()
    restore(node.fs, stray)
    assert values_of(Node(node.fs).start()) == [f"v{number}" for number in range(5)]


def test_a_partition_may_have_two_strays() -> None:
    node = filled()
    node.manager.set_aside({TPS[0]: None}, "first")
    node.append(node.log(TPS[0], OTHER_ID), "new")
    node.manager.set_aside({TPS[0]: TOPIC_ID}, "second")
    assert sorted(stray.note.reason for stray in node.manager.strays) == ["first", "second"]
    node.log(TPS[0])
    node.manager.set_aside({TPS[0]: TOPIC_ID}, "it is the topic's own")
    assert len(node.manager.strays) == 2
    assert node.manager.get_log(TPS[0]) is not None


def test_a_future_log_is_set_aside_with_its_log() -> None:
    node = Node(dirs=("/a", "/b")).start()
    moving(node)
    node.manager.set_aside({TPS[0]: None}, "unknown")
    assert [directories_of(node, path) for path in ("/a", "/b")] == [["flights-0-stray"]] * 2
    assert (node.manager.all_logs(), node.manager.future_logs()) == ([], [])


def test_a_log_of_another_topic_id_is_set_aside_not_deleted() -> None:
    node = filled()
    node.manager.delete_logs({TPS[0]: OTHER_ID})
    assert directories_of(node, "/a") == ["flights-0-stray"]


def test_a_restoration_that_would_hide_records_is_refused() -> None:
    node = stopped_with_stray()
    (stray,) = list_strays(node.fs, "/a")
    busy = Node(node.fs).start()
    with pytest.raises(StrayError, match="a broker uses /a: stop it first"):
        restore(node.fs, stray)
    busy.append(busy.log(TPS[0]), "other")
    busy.manager.shutdown()
    with pytest.raises(StrayError, match="/a/flights-0 has records of its own"):
        restore(node.fs, stray)
    assert values_of(Node(node.fs).start()) == ["other"]


def test_a_restored_stray_replaces_an_empty_log_unless_it_is_of_another_topic() -> None:
    for topic_id, gives_way in ((TOPIC_ID, True), (OTHER_ID, False)):
        node = stopped_with_stray()
        (stray,) = list_strays(node.fs, "/a")
        busy = Node(node.fs).start()
        busy.log(TPS[0], topic_id)
        busy.manager.shutdown()
        if gives_way:
            restore(node.fs, stray)
        else:
            with pytest.raises(StrayError, match="would set it aside again"):
                restore(node.fs, stray)
        assert (values_of(Node(node.fs).start()) == [f"v{n}" for n in range(5)]) is gives_way


def test_strays_are_deleted_after_their_retention_or_by_hand() -> None:
    node = filled()
    node.manager.set_aside({TPS[0]: None}, "unknown")
    node.clock.advance_ms(7 * DAY_MS - 400_000)
    node.scheduler.run_due()
    assert len(node.manager.strays) == 1
    node.clock.advance_ms(800_000)
    node.scheduler.run_due()
    assert (node.manager.strays, directories_of(node, "/a")) == ([], [])
    kept = Node(barnabas_stray_retention_ms=-1).start()
    kept.append(kept.log(TPS[0]), "v")
    kept.manager.set_aside({TPS[0]: None}, "unknown")
    kept.clock.advance_ms(1000 * DAY_MS)
    kept.scheduler.run_due()
    (stray,) = kept.manager.strays
    delete(kept.fs, find(kept.fs, stray.path))
    assert directories_of(kept, "/a") == []
    with pytest.raises(StrayError, match="is not a stray directory"):
        find(kept.fs, "/a/flights-0")


class DeletedMeanwhile(FaultyFileSystem):
    """A person deletes the stray while the broker reads it: after `calls` reads of names and notes."""

    calls = 100

    def step(self, operation: str, path: str) -> None:
        super().step(operation, path)
        self._look(path)

    def listdir(self, path: str) -> list[Entry]:
        found = super().listdir(path)
        self._look(path)
        return found

    def read_bytes(self, path: str) -> bytes:
        self._look(path)
        return super().read_bytes(path)

    def _look(self, path: str) -> None:
        if path == "/a" or "-stray" in path:
            self.calls -= 1
            if self.calls == 0:
                for stray in list_strays(self.inner, "/a"):
                    delete(self.inner, stray)


@pytest.mark.parametrize("note", ["kept", "lost"])
def test_a_stray_deleted_by_a_person_meanwhile_takes_no_directory_offline(note: str) -> None:
    for calls in range(1, 20):
        fs = DeletedMeanwhile(MemoryFileSystem())
        node = filled(fs)
        node.manager.set_aside({TPS[0]: None}, "unknown")
        (stray,) = node.manager.strays
        if note == "lost":
            fs.unlink(f"{stray.path}/stray.json")
        node.clock.advance_ms(8 * DAY_MS)
        fs.calls = calls
        node.manager.expire_strays()
        assert not node.manager.directories[0].is_offline, calls
        if fs.calls > 0:
            break
    assert calls > 4


def test_a_stray_without_a_note_is_apache_kafkas() -> None:
    node = stopped_with_stray()
    (stray,) = list_strays(node.fs, "/a")
    node.fs.write_bytes(f"{stray.path}/stray.json", b"{}", sync=True)
    again = Node(node.fs).start()
    again.clock.advance_ms(8 * DAY_MS)
    again.scheduler.run_due()
    (found,) = again.manager.strays
    assert (found.tp, found.note.set_aside_ms) == (TPS[0], again.clock.wall_ms()), "its retention begins now"
    again.manager.shutdown()
    assert node.fs.exists("/a/.kafka_cleanshutdown")
    restore(node.fs, found)
    assert not node.fs.exists("/a/.kafka_cleanshutdown"), "it may not have been closed, so it is checked"
    assert values_of(Node(node.fs).start()) == [f"v{n}" for n in range(5)]


def test_a_note_whose_topic_is_a_path_is_ignored() -> None:
    """A directory may be copied here from another source."""
    node = stopped_with_stray()
    (stray,) = list_strays(node.fs, "/a")
    hostile = stray.note._replace(tp=TopicPartition("../b/flights", 0))
    node.fs.write_bytes(f"{stray.path}/stray.json", hostile.to_bytes(), sync=True)
    (found,) = list_strays(node.fs, "/a")
    assert (found.tp, found.note) == (TPS[0], None)


def test_long_names_are_cut_and_stored_whole_in_the_note() -> None:
    tp = TopicPartition("x" * 249, 7)
    node = Node().start()
    node.append(node.log(tp), "v")
    node.manager.set_aside({tp: None}, "unknown")
    node.manager.shutdown()
    (stray,) = list_strays(node.fs, "/a")
    assert (stray.tp, len(stray_dir_name(tp))) == (tp, 255)
    assert restore(node.fs, stray) == f"/a/{tp}"


def test_records_survive_a_crash_at_each_step_of_setting_aside() -> None:
    """The N-th change of the disk and all later ones fail; then the power is cut."""
    outcomes = set()
    for number in range(1, 40):
        memory = MemoryFileSystem()
        faulty = FaultyFileSystem(memory)
        node = filled(faulty)
        node.log(TPS[0]).flush()
        faulty.fail_at = faulty.operations + number
        node.manager.set_aside({TPS[0]: None}, "unknown")
        is_over = faulty.operations < faulty.fail_at
        again = Node(memory.crash()).start()
        outcomes.add(directories_of(again, "/a")[0])
        again.manager.shutdown()
        for stray in list_strays(again.fs, "/a"):
            restore(again.fs, stray)
        assert values_of(Node(again.fs).start()) == [f"v{n}" for n in range(5)], number
        if is_over:
            break
    assert outcomes == {"flights-0", "flights-0-stray"}


def test_records_survive_a_crash_at_each_step_of_restoring() -> None:
    for number in range(1, 40):
        memory = stopped_with_stray().fs
        busy = Node(memory).start()
        busy.log(TPS[0])
        busy.manager.shutdown()
        faulty = FaultyFileSystem(memory, fail_at=number)
        with contextlib.suppress(OSError):
            restore(faulty, *list_strays(memory, "/a"))
        after = memory.crash()
        for stray in list_strays(after, "/a"):  # the command is given again
            restore(after, stray)
        assert values_of(Node(after).start()) == [f"v{n}" for n in range(5)], number
        if faulty.operations < number:
            break


def test_a_new_topic_does_not_inherit_the_start_of_a_half_deleted_log() -> None:
    for number in range(1, 40):
        memory = MemoryFileSystem()
        faulty = FaultyFileSystem(memory)
        node = filled(faulty)
        node.log(TPS[0]).flush()
        node.log(TPS[0]).maybe_increment_log_start_offset(4, "test")
        node.manager.checkpoint_log_start_offsets()
        faulty.fail_at = faulty.operations + number
        node.manager.delete_logs({TPS[0]: TOPIC_ID})
        again = Node(memory.crash()).start()
        if again.manager.get_log(TPS[0]) is None:
            again.append(again.log(TPS[0], OTHER_ID), "new")
            again.log(TPS[0], OTHER_ID).flush()
            assert values_of(Node(again.fs.kill()).start()) == ["new"], number
        if faulty.operations < faulty.fail_at:
            break
    assert number > 5
