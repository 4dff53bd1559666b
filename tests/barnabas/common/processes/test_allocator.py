"""The settings of glibc's allocator in the environment of a server process."""

from __future__ import annotations

import pytest

from barnabas.common.processes.allocator import with_settings


def test_a_controller_gives_large_blocks_back() -> None:
    assert with_settings({"HOME": "/"}, "controller")["MALLOC_MMAP_THRESHOLD_"] == "131072"


def test_the_threads_of_a_process_share_an_arena() -> None:
    assert all(with_settings({}, name)["MALLOC_ARENA_MAX"] == "1" for name in ("broker", "controller", "server"))


@pytest.mark.parametrize("program", ["broker", "server"])
def test_a_broker_keeps_large_blocks_in_the_way_of_glibc(program: str) -> None:
    assert with_settings({"HOME": "/"}, program) == {"HOME": "/", "MALLOC_ARENA_MAX": "1"}


def test_the_environment_wins() -> None:
    given = {"MALLOC_MMAP_THRESHOLD_": "1", "MALLOC_ARENA_MAX": "2"}
    assert with_settings(given, "controller") == given
