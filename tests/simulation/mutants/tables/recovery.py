"""Mistakes in the log and its recovery: flushes, torn tails, epochs and producers after a crash or a truncation."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

RECOVERY: Final = {
    "recovery-is-left-out": Mutant(
        "broker.storage.log.recovery",
        "if not self._clean_shutdown:\n            self._recover_from_recovery_point()",
        "if self._clean_shutdown:\n            self._recover_from_recovery_point()",
        "after a crash everything behind the recovery point is checked",
    ),
    "torn-tails-stay": Mutant(
        "broker.storage.segments.segment",
        "if cut:\n            files.truncate(valid)",
        "if cut > files.size:\n            files.truncate(valid)",
        "a torn batch at the end of a log is cut off",
    ),
    "flush-is-left-out": Mutant(
        "broker.storage.log.flusher",
        "segment.flush_data()",
        "if segment is not state.segments.active:\n                segment.flush_data()",
        "a flushed record survives a power cut",
    ),
    "recovery-point-at-the-end": Mutant(
        "broker.storage.log.flusher",
        "max(state.recovery_point, min(offset, state.end.offset))",
        "max(state.recovery_point, state.end.offset)",
        "nothing above the recovery point counts as flushed",
        life="outages=1",
    ),
    "truncation-keeps-the-recovery-point": Mutant(
        "broker.storage.log.segment_keeper",
        "state.recovery_point = min(state.recovery_point, offset)\n        state.log_start_offset = min(",
        "state.log_start_offset = min(",
        "what replaces truncated records is flushed, too",
        life="outages=1,haste=1",
    ),
    "epochs-are-not-flushed": Mutant(
        "broker.storage.log.flusher",
        "self._flush_segments(pending, recovery_point)\n            state.leader_epochs.flush()",
        "self._flush_segments(pending, recovery_point)",
        "leader epochs are durable before the recovery point passes them",
        life="outages=1,haste=1",
    ),
    "producers-are-not-rebuilt": Mutant(
        "broker.storage.producers.log_producers",
        "if after is not None and after.base_offset <= state.map_end_offset:",
        "if after is None or after.base_offset <= state.map_end_offset:",
        "a broker that restarts recognizes the repetitions of its producers",
        life="haste=1",
    ),
    "truncation-keeps-the-producers": Mutant(
        "broker.storage.log.segment_keeper",
        "rebuild_producer_state(\n            state.producer_state, state.segments.all, state.log_start_offset, "
        "offset, state.clock.wall_ms()\n        )\n        # Why: what was rebuilt",
        "# Why: what was rebuilt",
        "a batch that was truncated is no duplicate when it comes again",
        life="haste=1",
    ),
    "truncation-keeps-the-epochs": Mutant(
        "broker.storage.log.segment_keeper",
        "state.leader_epochs.truncate_from_end(offset)",
        "assert offset >= 0",
        "a truncated log forgets the epochs of what was truncated",
    ),
    "truncation-keeps-the-positions": Mutant(
        "broker.storage.log.segment_keeper",
        "state.recent = NOTHING_RECENT\n        state.truncation_count += 1\n        # Why the last",
        "state.truncation_count += 1\n        # Why the last",
        "a read begins at the batch that holds its offset",
        life="haste=1",
    ),
    "every-stop-is-clean": Mutant(
        "broker.storage.directories.log_directory",
        "return self.clean_shutdown_epoch is not None\n\n    def mark",
        "return True\n\n    def mark",
        "a start after a crash knows that it was one",
    ),
    "the-marker-of-a-clean-stop-stays": Mutant(
        "broker.storage.directories.log_directory",
        "self._fs.unlink(marker)",
        "assert marker",
        "a clean stop counts once",
        life="outages=2",
    ),
}
