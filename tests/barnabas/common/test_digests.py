"""Digests equal hashlib's, and a process loads OpenSSL only with its first one."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys

import pytest

from barnabas.common import digests

#: What every process imports, and what none may load of OpenSSL unless the config asks for security.
PROCESSES = ("barnabas.broker.main", "barnabas.controller.main", "barnabas.cluster.local_cluster", "barnabas.cli.main")


def test_they_are_those_of_hashlib() -> None:
    assert digests.digest("sha256", b"data") == hashlib.sha256(b"data").digest()
    assert digests.stretched(b"data", 20) == hashlib.shake_256(b"data").digest(20)
    assert digests.mac("sha512", b"key", b"data") == hmac.digest(b"key", b"data", "sha512")
    assert digests.pbkdf2("sha256", b"word", b"salt", 10) == hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 10)
    assert digests.is_equal(b"same", b"same")
    assert not digests.is_equal(b"same", b"other")


@pytest.mark.parametrize("module", PROCESSES)
def test_openssl_is_not_loaded_without_need(module: str) -> None:
    program = f"import sys, {module}; from barnabas.common.digests import is_equal; assert not is_equal(b'1', b'2'); "
    program += "print(*{'_hashlib', '_ssl', 'cryptography'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.split() == []
