"""Shrinking, on lives that a function judges."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing.simulation.fault_decisions import Decision
from tests.simulation.shrinking.life import Life, LifeError
from tests.simulation.shrinking.shrink import Problems, Shrinker, kinds_of


def life(count: int = 12) -> Life:
    decisions = [Decision(1000 * number, "kill", number % 3, 500, number) for number in range(count)]
    return Life(7, 0, {"brokers": 3, "seconds": 60, "producers": 2, "readers": 1, "pause_ms": 200}, decisions)


def shrunk(run: object, *, orders: int = 1, trials_max: int = 1000) -> tuple[Life, int]:
    shrinker = Shrinker(run, orders=orders, trials_max=trials_max)  # type: ignore[arg-type]
    return shrinker.shrink(life()), shrinker.trials


def test_what_the_failure_needs_is_left() -> None:
    def run(tried: Life) -> Problems:
        choices = {each.choice for each in tried.decisions or ()}
        fails = {3, 8} <= choices and tried.story["producers"] and tried.story["seconds"] >= 9
        return [f"lost: {len(choices)}"] if fails else []

    found, _ = shrunk(run)
    assert [each.choice for each in found.decisions or ()] == [3, 8]
    assert [each.at_ms for each in found.decisions or ()] == [0, 0]
    assert found.story == {"brokers": 1, "seconds": 9, "producers": 1, "readers": 0, "pause_ms": 200}


def test_another_problem_does_not_count() -> None:
    def run(tried: Life) -> Problems:
        return ["lost: 2"] if len(tried.decisions or ()) == 12 else ["invented: 2"]

    assert len(shrunk(run)[0].decisions or ()) == 12


def test_another_order_may_be_needed() -> None:
    def run(tried: Life) -> Problems:
        return ["lost: 2"] if len(tried.decisions or ()) == 12 or tried.order == 2 else []

    assert len(shrunk(run)[0].decisions or ()) == 12
    found, _ = shrunk(run, orders=3)
    assert (found.order, found.decisions) == (2, [])


def test_the_trials_are_bounded() -> None:
    assert shrunk(lambda _life: ["lost: 1"], trials_max=5)[1] == 5


def test_kinds_of_problems() -> None:
    first = "main ended with an exception:\nTraceback (most recent call last):\n  x\nOSError: [Errno 5] no"
    assert kinds_of(["lost: 17\n  partition 1: x", first]) == {"lost: #", "OSError: [Errno #] no"}


def test_a_life_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "lives" / "a"
    life().write(path)
    assert Life.read(path) == life()
    life()._replace(decisions=None).write(path)
    assert Life.read(path).decisions is None


HEAD = '{"seed": 1, "order": 0, "story": '


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", HEAD + '{}, "faults": [{"kind": "kill"}]}', HEAD + '1, "faults": []}']
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "life"
    path.write_text(text)
    with pytest.raises(LifeError, match="holds no life"):
        Life.read(path)
