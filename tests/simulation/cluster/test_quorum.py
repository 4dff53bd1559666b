"""What the looks at controllers find, on objects made for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.controller.metadata.record_batches import encode_batch
from barnabas.controller.raft.election_state import ElectionState, encode_quorum_state
from barnabas.controller.raft.leader_state import Leader
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.protocol.metadata_records import NoOpRecord
from barnabas.protocol.records.batch import set_offset_and_epoch
from tests.simulation.cluster.quorum import QuorumWatch

DIRECTORY = "/data/__cluster_metadata-0"
FOLLOWING = object()


class Disk:
    """A disk with a log and quorum-state; `flushed_log` is what a power failure leaves of the log."""

    def __init__(self, log: bytes, voted: int, flushed_log: bytes | None = None) -> None:
        state = ElectionState(3, None, ReplicaKey(voted, bytes(16)))
        self._state = encode_quorum_state(state, 0, (100, 101, 102))
        self._log = log
        self._flushed_log = log if flushed_log is None else flushed_log

    def files(self) -> list[str]:
        return [f"{DIRECTORY}/quorum-state", f"{DIRECTORY}/{0:020}.log", f"{DIRECTORY}/quorum-state.tmp"]

    def written(self, path: str) -> bytes:
        return self._log if path.endswith(".log") else self._state

    def flushed(self, path: str) -> bytes:
        return self._flushed_log if path.endswith(".log") else self._state


def log_of(*epochs: int) -> bytes:
    """A log with one record of each epoch."""
    log = b""
    for offset, epoch in enumerate(epochs):
        batch = encode_batch([NoOpRecord()], 0)
        set_offset_and_epoch(batch, offset, epoch)
        log += bytes(batch)
    return log


def controller(node_id: int, disk: Disk, high_watermark: int, leads: tuple[int, ...] = (), image: object = None) -> Any:
    """A controller that knows so much to be committed, and that has led these epochs."""
    entries = [SimpleNamespace(what=SimpleNamespace(role="leader", epoch=epoch)) for epoch in leads]
    quorum = SimpleNamespace(role=FOLLOWING, epoch=3, outline=SimpleNamespace(end_offset=high_watermark))
    raft = SimpleNamespace(
        history=SimpleNamespace(entries=lambda: entries), high_watermark=high_watermark,
        _replica=SimpleNamespace(quorum=quorum),
    )  # fmt: skip
    committed = SimpleNamespace(committed_image=image or SimpleNamespace(offset=-1))
    return SimpleNamespace(name=f"controller-{node_id}", disk=disk, disks=1, raft=raft, controller=committed)


def problems(*controllers: Any) -> list[str]:
    """What one look finds."""
    watch = QuorumWatch(SimpleNamespace(controllers=list(controllers)))  # type: ignore[arg-type]
    watch.look()
    watch.look()
    return watch.problems


def test_a_sound_quorum_has_no_problems() -> None:
    log = log_of(1, 3)
    assert problems(*(controller(100 + each, Disk(log, 100), each, (each,)) for each in range(3))) == []


def test_a_controller_that_is_alone_has_no_quorum() -> None:
    assert problems(SimpleNamespace()) == []


def test_two_leaders_and_two_histories_are_found() -> None:
    found = problems(
        controller(100, Disk(log_of(1, 3), 100), 2, (3,)),
        controller(101, Disk(log_of(1, 2), 100), 2, (3,)),
        controller(102, Disk(log_of(1, 3), 100), 2),
    )
    assert found[0] == "two leaders: controller-100 and controller-101 in epoch 3"
    assert found[1].startswith("two histories: ")


def test_a_commit_that_is_durable_on_one_disk_only_is_found() -> None:
    log, short = log_of(1, 3), log_of(1)
    nodes = [controller(100, Disk(log, 100), 2), *(controller(each, Disk(log, 100, short), 2) for each in (101, 102))]
    (problem,) = problems(*nodes)
    assert problem.startswith("not durable: everything below 2 ")
    nodes[2].disks = 2  # it has lost what it had, and fetches it again
    assert problems(*nodes) == []


def test_two_states_at_one_offset_are_found() -> None:
    images = [SimpleNamespace(offset=1, topics=topics) for topics in (1, 1, 2)]
    nodes = [controller(100 + each, Disk(log_of(1, 3), 100), 2, (), image) for each, image in enumerate(images)]
    (first, *_) = problems(*nodes)
    assert first == "two states: controller-100 and controller-102 differ at offset 1"


def test_a_torn_vote_is_found() -> None:
    log = log_of(1, 3)
    torn = Disk(log, 100)
    torn._state = torn._state[:10]
    (first, *_) = problems(controller(100, torn, 0), controller(101, Disk(log, 100), 0))
    assert first.startswith("not durable: quorum-state of controller-100: ")


def leading(*voted: int, high_watermark: int = -1) -> list[str]:
    """What a look at leaders finds: controller 100 leads epoch 3 from offset 1 on, and the disks have these votes."""
    log = log_of(1, 3)
    nodes = [controller(100 + each, Disk(log, candidate), 0) for each, candidate in enumerate(voted)]
    role = Leader(3, 100, 1, 0, high_watermark=high_watermark)
    nodes[0].raft._replica.quorum.role, nodes[0].node = role, SimpleNamespace(node_id=100)
    watch = QuorumWatch(SimpleNamespace(controllers=nodes))  # type: ignore[arg-type]
    watch.look_at_leaders()
    return watch.problems


def test_a_leader_without_stored_votes_is_found() -> None:
    assert leading(100, 100, 102) == []
    assert leading(100, 101, 102) == ["not elected: controller-100 leads epoch 3 with 1 votes"]


def test_a_leader_that_commits_too_early_is_found() -> None:
    assert leading(100, 100, 102, high_watermark=2) == []
    (problem,) = leading(100, 100, 102, high_watermark=1)
    assert problem.startswith("early commit: controller-100 takes 1 for committed")
