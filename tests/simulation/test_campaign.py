"""Campaigns: the sum of what batches print."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import BatchError, Totals, added


def test_batches_are_summed_up() -> None:
    totals = added(Totals(), "seed 7 of Barnabas\n50 runs, 0 failed: [], 4000.5 virtual seconds\ndigest 1\n")
    assert str(totals) == "50 seeds, 1.11 virtual hours, none failed"
    totals = added(totals, "50 runs, 2 failed: [70, 71], 3999.5 virtual seconds\ndigest 2\n")
    assert str(totals) == "100 seeds, 2.22 virtual hours, 2 failed: [70, 71]"


def test_a_batch_without_a_summary_is_no_success() -> None:
    with pytest.raises(BatchError):
        added(Totals(), "Traceback")
