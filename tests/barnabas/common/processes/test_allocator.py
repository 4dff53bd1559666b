"""The settings of glibc's allocator in the environment of a server process."""

from __future__ import annotations

from barnabas.common.processes.allocator import with_settings


def test_a_controller_gives_large_blocks_back() -> None:
    assert with_settings({"HOME": "/"}, "controller") == {"HOME": "/", "MALLOC_MMAP_THRESHOLD_": "131072"}


def test_a_broker_keeps_the_way_of_glibc() -> None:
    assert with_settings({"HOME": "/"}, "broker") == with_settings({"HOME": "/"}, "server") == {"HOME": "/"}


def test_the_environment_wins() -> None:
    given = {"MALLOC_MMAP_THRESHOLD_": "1"}
    assert with_settings(given, "controller") == given
