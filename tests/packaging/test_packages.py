"""The packages as users get them: sdist and wheel in new environments, beside users' packages of any name."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tarfile
import textwrap
import zipfile
from pathlib import Path

import pytest

import barnabas
from tools.packages import (
    FREE_THREADED_MYPYC,
    ROOT,
    PackageError,
    Packages,
    complaints,
    install,
    run,
    to_be_compiled,
)

EXAMPLE = ROOT / "examples" / "pytest"
QUIET = ("-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider")


def python(packages: Packages, name: str) -> Path:
    return packages.environments[name] / "bin" / "python"


@pytest.fixture(scope="session")
def with_pytest(packages: Packages) -> Packages:
    """The environments of sdist and wheel, with the example's requirements."""
    wanted = (EXAMPLE / "requirements.txt").read_text().split()
    wanted.remove("barnabas[test]")
    install(packages.environments["wheel"], f"{packages.wheel}[test]", *wanted)
    install(
        packages.environments["sdist"], "pytest>=8", "pyyaml>=6", *wanted
    )  # the extra [test], without a second compilation
    return packages


def test_a_bad_wheel_is_detected(packages: Packages, tmp_path: Path) -> None:
    """`make` checks every wheel; this one is not compiled and has a foreign package."""
    assert complaints(packages.wheel) == []
    bad = tmp_path / packages.wheel.name
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("broker/main.py", "")
    found = complaints(bad)
    assert "broker is at the top of site-packages" in found
    assert len(found) == 1 + len(to_be_compiled())
    untagged = bad.rename(tmp_path / "barnabas-1-py3-none-any.whl")
    assert complaints(untagged)[0].startswith("barnabas-1-py3-none-any.whl is not tagged cp3")


@pytest.mark.parametrize(("name", "how"), [("sdist", "compiled"), ("wheel", "compiled"), ("pure", "not compiled")])
def test_installed_into_an_empty_environment(packages: Packages, name: str, how: str) -> None:
    said = run(packages.environments[name] / "bin" / "barnabas", "--version")
    assert said == f"barnabas, version {barnabas.__version__}, {how}\n"


@pytest.mark.parametrize("name", ["sdist", "wheel", "pure"])
def test_only_barnabas_is_in_site_packages(packages: Packages, name: str) -> None:
    (site,) = (packages.environments[name] / "lib").glob("python3*/site-packages")
    assert {path.name for path in site.glob("*barnabas*")} == {"barnabas", f"barnabas-{barnabas.__version__}.dist-info"}
    assert [path for path in ("broker", "controller", "metrics", "tests") if (site / path).exists()] == []
    assert [path for path in (site / "barnabas").rglob("*") if path.is_symlink()] == []


def test_the_sdist_has_files_and_no_links(packages: Packages) -> None:
    with tarfile.open(packages.sdist) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if not (member.isfile() or member.isdir())] == []
    inside = {member.name.partition("/")[2] for member in members}
    assert {"setup.py", "LICENSE", "barnabas/broker/main.py", "barnabas/metrics/live/static/index.html"} <= inside
    assert [name for name in inside if name.startswith("tests")] == []


@pytest.mark.parametrize("name", ["sdist", "wheel"])
def test_the_example_passes(with_pytest: Packages, name: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    assert "11 passed" in run(python(with_pytest, name), *QUIET, cwd=tmp_path / "example")


def test_a_project_with_packages_of_our_names(with_pytest: Packages, tmp_path: Path) -> None:
    """With `PYTHONPATH=.`, as in many projects, pytest imports their packages and the servers import ours."""
    for package in ("broker", "controller", "metrics"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"NAME = 'the project\\'s own {package}'\n")
    (tmp_path / "queue.py").write_text(  # shadows the standard library's
        "import sys\n"
        "assert sys.argv[0].endswith('pytest/__main__.py'), 'a process of Barnabas met the queue of a project'\n"
    )
    (tmp_path / "test_orders.py").write_text(
        textwrap.dedent(
            """
            import broker, controller, metrics, queue

            def test_orders(barnabas_cluster, barnabas_topic):
                assert all(module.NAME.startswith("the project's own") for module in (broker, controller, metrics))
                assert not hasattr(queue, "SimpleQueue")
                barnabas_cluster.kill(0)
                barnabas_cluster.start(0)
                assert barnabas_cluster.records(barnabas_topic) == []
            """
        )
    )
    # Why without xdist: in such a project it cannot be loaded, it takes queue.Queue from the module in the way.
    without_xdist = ("-p", "no:xdist", "-p", "no:xdist.looponfail")
    assert "1 passed" in run(python(with_pytest, "wheel"), *QUIET, *without_xdist, cwd=tmp_path, PYTHONPATH=".")


def test_a_build_without_a_compiler_fails_and_says_what_to_do(packages: Packages, tmp_path: Path) -> None:
    with pytest.raises(PackageError) as failure:
        install(packages.environments["pure"], "--force-reinstall", "--no-deps", packages.sdist, CC="false")
    assert "barnabas could not be compiled: " in str(failure.value)
    assert "Set BARNABAS_PURE=1 to install it uncompiled" in str(failure.value)
    assert "not compiled" in run(packages.environments["pure"] / "bin" / "barnabas", "--version")


@pytest.mark.parametrize(
    ("free_threaded", "version", "is_compiled"),
    [(None, (3, 11), True), (0, (3, 14), True), (1, (3, 13), False), (1, (3, 14), True)],
)
def test_a_wheel_needs_the_modules_that_setup_py_compiles(
    free_threaded: int | None, version: tuple[int, int], *, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: free_threaded)
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    assert ("barnabas/broker/processors.py" in to_be_compiled()) == is_compiled
    assert "barnabas/protocol/_codec" in to_be_compiled()


def test_setup_py_has_the_rule_of_wheels() -> None:
    rule = f"HAS_MYPYC = not IS_FREE_THREADED or sys.version_info >= {FREE_THREADED_MYPYC}\n"
    assert rule in (ROOT / "setup.py").read_text()
