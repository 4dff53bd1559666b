"""The packages of this checkout, built once for the session (see tools/packages.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.packages import PackageError, Packages, make


@pytest.fixture(scope="session")
def packages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """An sdist and a wheel, and the environments in which they are installed."""
    into = request.config.getoption("--packages")
    try:
        return make(Path(into) if into else tmp_path_factory.mktemp("packages"))
    except PackageError as error:
        pytest.fail(str(error), pytrace=False)
