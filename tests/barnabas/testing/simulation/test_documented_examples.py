"""The examples of docs/simulation.md: simulated tests find the fault of each application, and its mending."""

from __future__ import annotations

import re
from pathlib import Path

from tests.barnabas.testing.simulation.conftest import Project, outcomes

PAGE = Path(__file__).resolve().parents[4] / "docs" / "simulation.md"


def test_each_fault_is_found_and_each_mended_application_passes(project: Project) -> None:
    found = re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert [name for name, _ in found] == ["billing", "test_billing", "ledger", "test_ledger"]
    project.write(**dict(found))
    code, out = project.run("--simulation-seeds", "2")  # of three
    assert code == 1
    seen = outcomes(out)
    assert len(seen) == 8, out
    for faulty, mended in ((r"charged\[.*True", r"charged\[.*False"), (r"once\[.*False", r"once\[.*True")):
        assert {outcome for name, outcome in seen.items() if re.search(mended, name)} == {"PASSED"}, out
        assert "FAILED" in {outcome for name, outcome in seen.items() if re.search(faulty, name)}, out
