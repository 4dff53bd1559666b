"""prepare_quorum: one cluster id, and the log of a cluster that had one controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.directories.checkpoints import read_meta_properties
from barnabas.cluster import ClusterError, LocalCluster
from barnabas.cluster.quorum import DURABLE_END, LOG, PROPERTIES, QUORUM_STATE, prepare_quorum
from barnabas.common.disk.files import OsFileSystem


def directories(root: Path) -> list[Path]:
    return [root / f"controller-{number}" / "data" for number in (100, 101, 102)]


def properties(directory: Path) -> dict[str, str]:
    found = read_meta_properties(OsFileSystem(), str(directory / PROPERTIES))
    assert found is not None
    return found


def write_log(directory: Path, text: str, *more: str) -> None:
    (directory / LOG).mkdir(parents=True)
    for name in ("00000000000000000000.log", *more):
        (directory / LOG / name).write_text(text)
    (directory / DURABLE_END).write_text(f"end of {text}")


def test_new_controllers_have_one_cluster_id_and_their_own_directory_ids(tmp_path: Path) -> None:
    made = directories(tmp_path)
    prepare_quorum(made, 100)
    found = [properties(each) for each in made]
    assert len({each["cluster.id"] for each in found}) == 1
    assert [each["node.id"] for each in found] == ["100", "101", "102"]
    assert len({each["directory.id"] for each in found}) == 3
    prepare_quorum(made, 100)
    assert [properties(each) for each in made] == found
    assert not (made[0] / LOG).exists()


def test_the_log_of_the_only_controller_so_far_is_given_to_all(tmp_path: Path) -> None:
    made = directories(tmp_path)
    write_log(made[0], "metadata")
    (made[0] / PROPERTIES).write_text("version=1\ncluster.id=old\nnode.id=100\ndirectory.id=x\n")
    write_log(made[1], "half")  # an attempt that was interrupted
    prepare_quorum(made, 100)
    for each in made:
        assert (each / LOG / "00000000000000000000.log").read_text() == "metadata"
        assert (each / DURABLE_END).read_text() == "end of metadata"
        assert properties(each)["cluster.id"] == "old"


def test_the_checkpoint_of_a_broker_is_not_copied_with_the_log(tmp_path: Path) -> None:
    made = directories(tmp_path)
    write_log(made[0], "metadata", DURABLE_END)
    prepare_quorum(made, 0)
    assert [properties(each)["node.id"] for each in made] == ["0", "1", "2"]
    assert (made[1] / LOG / DURABLE_END).exists()
    assert not (made[1] / DURABLE_END).exists()


def test_copies_that_never_took_part_are_made_again(tmp_path: Path) -> None:
    """The start was interrupted after the copies, and the cluster has run with one controller since."""
    made = directories(tmp_path)
    write_log(made[0], "old")
    prepare_quorum(made, 100)
    (made[0] / LOG / "00000000000000000000.log").write_text("new")
    prepare_quorum(made, 100)
    assert [(each / LOG / "00000000000000000000.log").read_text() for each in made] == ["new"] * 3


@pytest.mark.parametrize("has_quorum", [True, False])
def test_a_lost_disk_gets_no_copy(tmp_path: Path, has_quorum: bool) -> None:
    made = directories(tmp_path)
    write_log(made[0], "metadata", *([QUORUM_STATE] if has_quorum else []))
    (made[0] / PROPERTIES).write_text("version=1\ncluster.id=old\nnode.id=100\n")
    if not has_quorum:
        write_log(made[1], "metadata", QUORUM_STATE)
        (made[1] / PROPERTIES).write_text("version=1\ncluster.id=old\nnode.id=101\n")
    prepare_quorum(made, 100)
    assert not (made[2] / LOG).exists()
    assert properties(made[2])["cluster.id"] == "old"


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "controller-101").write_text("a file")
    with pytest.raises(ClusterError, match="controller-101"):
        prepare_quorum(directories(tmp_path), 100)


def test_the_plan_names_all_voters_to_all(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 2, 0, controller_count=3)
    cluster.plan()
    cluster.stop()
    assert [node.node_id for node in cluster.controllers] == [100, 101, 102]
    voters = ",".join(f"{node.node_id}@127.0.0.1:{node.port}" for node in cluster.controllers)
    for node in cluster.nodes.values():
        properties = cluster.properties(node)
        assert properties["controller.quorum.voters"] == voters
        assert "controller.quorum.bootstrap.servers" not in properties
    assert len(cluster.metrics.split(",")) == 5
    assert len({node.metrics_port for node in cluster.nodes.values()}) == 5
    with pytest.raises(ClusterError, match="101 is a controller's id"):
        LocalCluster(tmp_path, 2, 0, first_id=101, controller_count=3).plan()
