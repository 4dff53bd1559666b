"""What goes into a share partition and comes out of it."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.share_state.values import ACKNOWLEDGED, StateBatch, StateWrite
from barnabas.broker.share.partition.values import AcquireMode, Update


def test_an_update_becomes_a_write_under_the_partitions_epochs() -> None:
    batches = (StateBatch(3, 4, ACKNOWLEDGED, 1),)
    update = Update(batches, 3, 2, pends=True)
    assert update.as_write(state_epoch=7, leader_epoch=5) == StateWrite(7, 5, 3, batches, 2)


def test_an_acquire_mode_is_the_number_in_the_request() -> None:
    assert [AcquireMode(0), AcquireMode(1)] == [AcquireMode.BATCH_OPTIMIZED, AcquireMode.RECORD_LIMIT]
    with pytest.raises(ValueError, match="2"):
        AcquireMode(2)
