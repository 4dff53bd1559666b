"""The programs that some tests need beside Python, and the tests that need them.

A test names them with `@pytest.mark.needs("java", "mvn")`, or uses a fixture of NEEDED_BY_FIXTURES. If one is missing,
the test is skipped, and the reason says what to install. With REQUIRE_TOOLS=1 in the environment, as in `make test`, a
missing program fails the test instead. So do other things that the machine lacks (`skip_or_fail`).
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from typing import NoReturn

import pytest

#: Each program and the Debian package that has it; `make test-tools` installs all of them.
PACKAGES = {
    "java": "openjdk-17-jre-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "kcat": "kcat",
    "gcc": "gcc",
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "ip": "iproute2",
    "go": "golang",
    "node": "nodejs",
    "npm": "npm",
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "krb5kdc": "krb5-kdc",
    "kadmin.local": "krb5-admin-server",
    "kinit": "krb5-user",
    "krb5-config": "libkrb5-dev",
    "libgssapiv2.so": "libsasl2-modules-gssapi-mit",
}
#: Apache Kafka's jars come from Maven, and a class of ours beside them is compiled.
KAFKA = ("java", "javac", "mvn")
#: A KDC for tests, and what clients need to log in by its tickets.
KERBEROS = ("krb5kdc", "kadmin.local", "kinit", "libgssapiv2.so", "krb5-config")
NEEDED_BY_FIXTURES = {"apache_runtime": KAFKA, "tools": KAFKA}

#: Where a program may be that is not on the PATH.
_ELSEWHERE = "/usr/local/go/bin:/usr/sbin"
#: Where the plugins of libsasl2 are, which are no programs.
_PLUGINS = ("/usr/lib/sasl2", "/usr/lib64/sasl2", *glob.glob("/usr/lib/*/sasl2"))
_JAVA_MIN = 17


def needed_by(item: pytest.Item) -> list[str]:
    """Return the programs that a test needs, by its markers and fixtures, without repetition."""
    names = [name for marker in item.iter_markers("needs") for name in marker.args]
    for fixture, programs in NEEDED_BY_FIXTURES.items():
        if fixture in getattr(item, "fixturenames", ()):
            names += programs
    unknown = sorted(set(names) - PACKAGES.keys())
    assert not unknown, f"{item.nodeid} needs programs that tests/support/programs.py does not list: {unknown}"
    return list(dict.fromkeys(names))


def path_of(name: str) -> str | None:
    """Return the path of a program or plugin; None if it is not there."""
    if name.endswith(".so"):
        return next((path for path in (f"{folder}/{name}" for folder in _PLUGINS) if os.path.exists(path)), None)
    return shutil.which(name) or shutil.which(name, path=_ELSEWHERE)


@cache
def is_there(name: str) -> bool:
    """Return whether a program can be run; Java counts from version 17 on."""
    path = path_of(name)
    if path is None or name not in ("java", "javac"):
        return path is not None
    shown = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r"\d+", shown.stdout + shown.stderr)
    return version is not None and int(version[0]) >= _JAVA_MIN


def require(names: Iterable[str]) -> None:
    """Skip the running test if one of these programs is missing, or fail it with REQUIRE_TOOLS=1."""
    missing = [name for name in names if not is_there(name)]
    if not missing:
        return
    packages = sorted({PACKAGES[name] for name in missing})
    reason = f"needs {', '.join(missing)}: run `make test-tools` (Debian's packages: {' '.join(packages)})"
    skip_or_fail(reason)


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the running test, or fail it with REQUIRE_TOOLS=1."""
    if os.environ.get("REQUIRE_TOOLS", "") not in ("", "0"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
