"""Waking share fetches: each key is checked, by one thread at a time, without recursion."""

from __future__ import annotations

from barnabas.broker.purgatory import DelayedOperation, Purgatory
from barnabas.broker.share.wakes import Wakes
from barnabas.common.clock import FakeClock


class Chained(DelayedOperation):
    """Completes when it is tried a second time, and wakes the next one."""

    def __init__(self, wakes: Wakes, number: int, depth: list[int]) -> None:
        super().__init__(None)
        self.wakes = wakes
        self.number = number
        self.depth = depth
        self.tries = 0

    def try_complete(self) -> bool:
        self.tries += 1
        return self.tries > 2 and self.force_complete()  # twice while it is watched

    def on_complete(self) -> None:
        self.depth[0] += 1
        self.depth[1] = max(self.depth)
        self.wakes.wake([self.number + 1])
        self.depth[0] -= 1


def test_a_thousand_operations_wake_each_other_without_recursion() -> None:
    purgatory = Purgatory("test", FakeClock())
    wakes = Wakes(purgatory)
    depth = [0, 0]
    chain = [Chained(wakes, number, depth) for number in range(1000)]
    for operation in chain:
        purgatory.try_complete_else_watch(operation, [operation.number])
    wakes.wake([0])
    assert all(operation.is_completed for operation in chain)
    assert depth == [0, 1]


def test_a_bug_of_one_operation_does_not_hinder_the_others() -> None:
    class Broken(DelayedOperation):
        tries = 0

        def try_complete(self) -> bool:
            self.tries += 1
            if self.tries > 2:
                raise ValueError("a bug")
            return False

    purgatory = Purgatory("test", FakeClock())
    wakes = Wakes(purgatory)
    purgatory.try_complete_else_watch(Broken(None), ["a"])
    other = Chained(wakes, 7, [0, 0])
    purgatory.try_complete_else_watch(other, ["b"])
    wakes.wake(["a", "b"])
    assert other.is_completed
