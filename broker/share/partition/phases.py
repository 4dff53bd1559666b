"""The phases of a record in flight, and the transition of each event: the table CELLS.

A record is in flight from its first delivery until it is acknowledged or archived. Acknowledgements take effect in two
steps: the record is *in transition* while the share coordinator writes its new state, and leaves the transition when
the write succeeded (COMMIT) or failed (ROLLBACK).

Rules
1. An event without an entry in CELLS leaves the phase as it is. A member's acknowledgement of such a record is refused.
2. A record whose lock ran out during its transition is not given back to its member by a ROLLBACK: it is released.
3. A record whose delivery count has reached the limit, or that lies before the start offset, is archived when it is
   released or its lock runs out.

Source: Kafka's RecordState, InFlightState, SharePartition (4.3), KIP-932, KIP-1222 (renew). Different: where Kafka has
a state and a flag for its transition, here each combination has a name.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.coordinators.share_state import values

# Phases. Plain integers: they are compared for each run of records.
AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVED: Final = 3
RELEASING: Final = 4  # in transition to AVAILABLE
ACKNOWLEDGING: Final = 5  # in transition to ACKNOWLEDGED
ARCHIVING: Final = 6  # in transition to ARCHIVED
DISCARDED: Final = 7  # archived while it was RELEASING: the end of the transition does not matter

NAMES: Final = (
    "available",
    "acquired",
    "acknowledged",
    "archived",
    "releasing",
    "acknowledging",
    "archiving",
    "discarded",
)
PHASES: Final = range(len(NAMES))

# Events.
ACQUIRE: Final = 0  # delivered to a member
ACCEPT: Final = 1
RELEASE: Final = 2  # by the member, or since it left
REJECT: Final = 3  # also for a gap, an offset without a record
RENEW: Final = 4
EXPIRE: Final = 5  # the acquisition lock ran out
REMOVE: Final = 6  # the log does not have the record any more
ABORT: Final = 7  # its transaction was aborted
COMMIT: Final = 8
ROLLBACK: Final = 9

EVENTS: Final = range(ROLLBACK + 1)

CELLS: Final[dict[tuple[int, int], int]] = {
    (AVAILABLE, ACQUIRE): ACQUIRED,
    (AVAILABLE, REMOVE): ARCHIVED,
    (ACQUIRED, ACCEPT): ACKNOWLEDGING,
    (ACQUIRED, RELEASE): RELEASING,
    (ACQUIRED, REJECT): ARCHIVING,
    (ACQUIRED, RENEW): ACQUIRED,
    (ACQUIRED, EXPIRE): AVAILABLE,
    (ACQUIRED, ABORT): ARCHIVED,
    (RELEASING, REMOVE): DISCARDED,
    (RELEASING, COMMIT): AVAILABLE,
    (RELEASING, ROLLBACK): ACQUIRED,
    (ACKNOWLEDGING, COMMIT): ACKNOWLEDGED,
    (ACKNOWLEDGING, ROLLBACK): ACQUIRED,
    (ARCHIVING, COMMIT): ARCHIVED,
    (ARCHIVING, ROLLBACK): ACQUIRED,
    (DISCARDED, COMMIT): ARCHIVED,
    (DISCARDED, ROLLBACK): ARCHIVED,
}

#: The phase after an event of an acquired record that may not be delivered again (rule 3).
SPENT: Final = {RELEASE: ARCHIVING, EXPIRE: ARCHIVED}

#: In transition.
PENDING: Final = frozenset({RELEASING, ACKNOWLEDGING, ARCHIVING, DISCARDED})
#: Never delivered again, unless a transition is rolled back.
COMPLETE: Final = frozenset({ACKNOWLEDGED, ARCHIVED, ACKNOWLEDGING, ARCHIVING, DISCARDED})
#: The start offset may move past these.
FINISHED: Final = frozenset({ACKNOWLEDGED, ARCHIVED})

#: The delivery state that is kept of a phase. An acquired record's state is not kept.
DELIVERY_STATES: Final = {
    AVAILABLE: values.AVAILABLE,
    RELEASING: values.AVAILABLE,
    ACKNOWLEDGED: values.ACKNOWLEDGED,
    ACKNOWLEDGING: values.ACKNOWLEDGED,
    ARCHIVED: values.ARCHIVED,
    ARCHIVING: values.ARCHIVED,
    DISCARDED: values.ARCHIVED,
}
#: The phase of a record whose state was kept.
LOADED: Final = {values.AVAILABLE: AVAILABLE, values.ACKNOWLEDGED: ACKNOWLEDGED, values.ARCHIVED: ARCHIVED}

#: Events by the acknowledge type of a request: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
EVENT_OF_TYPE: Final = {0: REJECT, 1: ACCEPT, 2: RELEASE, 3: REJECT, 4: RENEW}
