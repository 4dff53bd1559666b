"""A flush that is interrupted by other work on the log, and then a power cut: nothing that was promised is lost.

`flusher.py`, `segment_keeper.py`, `log_state.py` and `recovery.py` together. A flush does not hold the log's lock, so
between two of its file operations other threads append, roll, truncate, restart, delete old segments, move the start,
swap segments in, or write the checkpoint. `tests/support/broker/flush_model.py` is the model.
"""

from __future__ import annotations

import pytest

from tests.support.broker.flush_model import FlushModel

SEEDS_PER_TEST = 10
STEPS = 40
STEPS_SHOWN = 40


@pytest.mark.parametrize("first_seed", range(100, 200, SEEDS_PER_TEST))
def test_an_interrupted_flush_loses_nothing_that_was_promised(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        model = FlushModel(seed)
        try:
            model.run(STEPS)
        except Exception as error:
            error.add_note(f"seed {seed}; the last steps: {'; '.join(model.steps[-STEPS_SHOWN:])}")
            raise


def test_a_seed_repeats_its_run() -> None:
    first, second = FlushModel(1), FlushModel(1)
    first.run(STEPS)
    second.run(STEPS)
    assert first.steps == second.steps
    assert any(step.startswith("interrupted") for step in first.steps)
