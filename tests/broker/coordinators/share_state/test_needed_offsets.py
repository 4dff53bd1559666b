"""Which part of the log is needed: compared with a look at all share partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.coordinators.share_state import needed_offsets
from barnabas.broker.coordinators.share_state.needed_offsets import NeededOffsets
from barnabas.broker.coordinators.share_state.values import SharePartitionKey

KEYS = [SharePartitionKey("g", bytes(16), index) for index in range(4)]


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), max_size=40))
def test_the_log_is_needed_from_the_lowest_last_snapshot_on(events: list[tuple[SharePartitionKey, bool]]) -> None:
    needed = NeededOffsets()
    model: dict[SharePartitionKey, int] = {}
    assert needed.start() == 0
    for offset, (key, is_removal) in enumerate(events):
        if is_removal:
            needed.removed(key, offset)
            model.pop(key, None)
        else:
            needed.snapshot(key, offset)
            model[key] = offset
        assert needed.start() == min(model.values(), default=offset + 1)


def test_outdated_offsets_do_not_pile_up(monkeypatch) -> None:
    monkeypatch.setattr(needed_offsets, "HEAP_SLACK", 10)
    needed = NeededOffsets()
    needed.snapshot(KEYS[0], 0)
    for offset in range(1, 1000):
        needed.snapshot(KEYS[1], offset)
        assert len(needed._heap) <= 15
    assert needed.start() == 0
    needed.snapshot(KEYS[0], 1000)
    assert needed.start() == 999
