"""Names of files and directories: what thousands of paths have in common is one object."""

from __future__ import annotations

from barnabas.broker.storage.directories.names import shared_parts


def test_files_of_one_directory_or_one_name_share_them() -> None:
    one, other = (shared_parts(f"/data/{log}-0/00000000000000000000.index") for log in ("t", "u"))
    again = shared_parts("/data/t-0/00000000000000000007.log")
    assert one == ("/data/t-0", "00000000000000000000.index")
    assert one[1] is other[1]
    assert one[0] is again[0]
