"""`python -m tools.docs [--into DIRECTORY]`: stage the pages, generate the reference, build the site."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tools.docs.reference import write_reference
from tools.docs.stage import ROOT, stage

CONFIGURATION = Path(__file__).parent


def build(into: Path) -> int:
    """Build the site in `into`/html from pages staged in `into`/source; return Sphinx's exit code."""
    source = into / "source"
    shutil.rmtree(into, ignore_errors=True)
    write_reference(source / "docs" / "reference")
    stage(source)
    options = ["--builder", "html", "--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--jobs", "auto"]
    command = [
        sys.executable,
        "-m",
        "sphinx",
        *options,
        "--conf-dir",
        str(CONFIGURATION),
        str(source),
        str(into / "html"),
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> None:
    """Build the site and print its path."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "docs", help="directory to build in (replaced)")
    into = parser.parse_args().into.absolute()
    code = build(into)
    if code == 0:
        print(f"the documentation is in {into / 'html' / 'index.html'}")
    sys.exit(code)


if __name__ == "__main__":
    main()
