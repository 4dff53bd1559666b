"""Tests protocol/records/crc.py."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
import pytest

from barnabas.protocol.records import crc

CHECK = b"123456789"


def test_it_is_the_packages_function() -> None:
    assert crc.crc32c(CHECK) == package.crc32c(CHECK) == 0xE3069283, "the check value of CRC-32C (RFC 3720)"
    assert crc.crc32c(memoryview(CHECK)[4:], crc.crc32c(CHECK[:4])) == 0xE3069283
    assert crc.crc32c(b"") == 0


def test_a_package_that_is_there_is_used() -> None:
    assert crc._load() is package


def test_a_package_without_that_extension_is_used_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crc, "_EXTENSION", "crc32c._another")
    monkeypatch.delitem(sys.modules, "crc32c")
    assert crc._load().__name__ == "crc32c"


@pytest.mark.parametrize("module", ["barnabas.broker.main", "barnabas.controller.main", "barnabas.cli.local.up"])
def test_servers_do_not_import_what_the_package_imports(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'crc32c', 'email', 'zipfile', 'hmac'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
