"""Mistakes in what removes records: the log cleaner and retention."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

CLEANING: Final = {
    "undecided-records-are-cleaned": Mutant(
        "broker.storage.cleaner.cleaner_manager",
        "bound = min(target.last_stable_offset, target.active_segment.base_offset)",
        "bound = target.active_segment.base_offset",
        "what is not replicated and decided replaces no older record",
    ),
    "the-older-value-stays": Mutant(
        "broker.storage.cleaner.offset_map",
        "flags[known - 1] = DEAD",
        "flags[number] = DEAD\n                    number += 1\n                    continue",
        "the latest record of a key stays",
    ),
    "keys-of-the-map-stay": Mutant(
        "broker.storage.cleaner.offset_map",
        "if key_end >= 0 and not latest[self._slot_of(data[key_start:key_end], is_new=False)]:",
        "if key_end >= 0 and latest[self._slot_of(data[key_start:key_end], is_new=False)]:",
        "a key whose only record is old stays",
    ),
    "tombstones-go-at-once": Mutant(
        "broker.storage.cleaner.cleaner_batches",
        "return horizon_ms is not None and horizon_ms <= self.now_ms",
        "return horizon_ms is None or horizon_ms <= self.now_ms",
        "a tombstone stays for delete.retention.ms",
    ),
    "tombstones-go-before-all-have-them": Mutant(
        "broker.storage.cleaner.cleaner_batches",
        "horizon_ms <= self.now_ms and self.may_forget",
        "horizon_ms <= self.now_ms",
        "a tombstone stays until every replica has it",
    ),
    "aborted-records-are-kept": Mutant(
        "broker.storage.cleaner.cleaner_transactions",
        "if header.producer_id in self._aborted:\n            self._observed.add(header.producer_id)\n"
        "            return True",
        "if header.producer_id in self._aborted:\n            self._observed.add(header.producer_id)",
        "the record of an aborted transaction replaces no committed one",
    ),
    "cleaned-segments-are-not-flushed": Mutant(
        "broker.storage.cleaner.cleaner",
        "cleaned.become_inactive()\n        cleaned.flush()",
        "cleaned.become_inactive()",
        "a cleaned segment is durable before it takes the place of others",
        life="outages=1",
    ),
    "retention-of-the-unreplicated": Mutant(
        "broker.storage.log.segment_keeper",
        "if state.high_watermark.offset < upper_bound or is_last_and_empty or not predicate(",
        "if is_last_and_empty or not predicate(",
        "retention deletes nothing above the high watermark",
        life="relays=1",
    ),
    "retention-is-inverted": Mutant(
        "broker.storage.log.retention",
        "return now_ms - newest > retention_ms",
        "return now_ms - newest < retention_ms",
        "a record stays for retention.ms",
    ),
}
