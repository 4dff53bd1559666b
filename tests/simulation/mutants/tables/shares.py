"""Mistakes of share groups: deliveries, acknowledgements, share state."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

SHARES: Final = {
    "the-next-leader-forgets-acknowledgements": Mutant(
        "broker.share.partition.share_partition",
        "state.load(batches)",
        "state.load(())",
        "a record that was accepted is not delivered again after its leader moved",
    ),
    "the-next-leader-skips-what-was-in-flight": Mutant(
        "broker.share.partition.state",
        "if gap is None and kept.first_offset > expected:\n                gap = expected",
        "if gap is None and kept.first_offset > expected:\n                gap = None",
        "records that a member held are delivered again after their leader moved",
        life="haste=1",
    ),
    "released-records-are-archived": Mutant(
        "broker.share.partition.phases",
        "(RELEASING, COMMIT): AVAILABLE,",
        "(RELEASING, COMMIT): ARCHIVED,",
        "a record that a member released is delivered again",
    ),
    "share-state-before-it-is-committed": Mutant(
        "broker.coordinators.share_state.shard",
        "self._context.write_timeout_ms, committed, settled):",
        "self._context.write_timeout_ms, committed, lambda _error: None):\n            settled(ErrorCode.NONE)",
        "an acknowledgement is confirmed once it is committed",
    ),
    "a-new-leader-fences-nobody": Mutant(
        "broker.coordinators.share_state.state",
        "if leader_epoch in (ANY_EPOCH, state.leader_epoch):",
        "if leader_epoch >= ANY_EPOCH:",
        "a former leader's acknowledgements are refused once the next one has read the state",
        life="orphans=2",
    ),
}
