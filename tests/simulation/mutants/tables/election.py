"""Mistakes of the controller: elections, ISR changes, sessions, the metadata log, pushes."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

ELECTION: Final = {
    "leader-from-outside-the-isr": Mutant(
        "controller.decisions.elections",
        "return broker_id in eligible and is_acceptable(broker_id)",
        "return is_acceptable(broker_id)",
        "a clean election chooses a member of the ISR",
    ),
    "the-unclean-stay-eligible": Mutant(
        "controller.decisions.elections",
        "- set(plan.isr) - without_data))",
        "- set(plan.isr)))",
        "a broker that may have lost records leaves the eligible leader replicas",
        life="stranded=1",
    ),
    "a-large-isr-makes-eligible": Mutant(
        "controller.decisions.elections",
        "return len(plan.isr) >= min(min_isr, len(plan.replicas))",
        "return len(plan.isr) >= len(plan.replicas)",
        "a replica is eligible if it left an ISR smaller than min.insync.replicas",
        life="stranded=1",
    ),
    "leader-epoch-stays": Mutant(
        "controller.image",
        "leader_epoch=self.leader_epoch + (1 if names_leader else 0),",
        "leader_epoch=self.leader_epoch,",
        "a leader epoch has one leader",
    ),
    "the-fenced-stay-in-isrs": Mutant(
        "controller.broker_registry",
        "return [*leader_and_isr_updates(view, keys, broker_to_remove=broker.id), _change(broker, fenced=_SET)]",
        "return [_change(broker, fenced=_SET)]",
        "a broker that is fenced leaves every ISR and leadership",
    ),
    "the-leaving-keep-leading": Mutant(
        "controller.broker_registry",
        "return [change, *leader_and_isr_updates(view, keys, broker_to_remove=broker.id)]",
        "return [change]",
        "a broker that shuts down gives up its leaderships first",
    ),
    "sessions-never-end": Mutant(
        "controller.sessions",
        "session.last_contact_ms + self.session_timeout_ms >= now_ms",
        "session.last_contact_ms + self.session_timeout_ms >= 0",
        "a broker that is silent for its session timeout is fenced",
    ),
    "the-fenced-join-isrs": Mutant(
        "controller.decisions.alter_partition",
        "if broker is None or not broker.is_active:",
        "if broker is None:",
        "a broker that is fenced joins no ISR",
        life="laggards=1,haste=1",
    ),
    "the-deaf-are-not-fenced": Mutant(
        "controller.sessions",
        "if late_ms >= 0 and known >= session.target_offset:",
        "if late_ms >= 0 and known < 0:",
        "a broker that pushes do not reach is fenced (issue 15, A5)",
        life="deaf=1,deciders=1",
    ),
    "published-before-durable": Mutant(
        "controller.metadata.local_client",
        "self._log.flush()\n        committed,",
        "committed,",
        "metadata is durable before anybody hears of it",
    ),
    "snapshots-are-not-durable": Mutant(
        "controller.metadata.snapshot",
        "fs.atomic_write(path, content)",
        "fs.write_bytes(path, content, sync=False)",
        "a snapshot is durable before the log that it replaces is deleted",
        life="outages=2",
    ),
    "failed-pushes-are-forgotten": Mutant(
        "controller.push.broker_channel",
        "self._pending = pending\n            self._pending_since_ns = since_ns",
        "self._pending_since_ns = since_ns",
        "every broker gets every change at last",
    ),
    "push-after-the-first-error": Mutant(
        "controller.push.broker_channel",
        "while not self._pending and not self._is_stopped:",
        "while not (self._pending and not self._failures) and not self._is_stopped:",
        "a push that failed is tried again",
    ),
    "producer-ids-are-given-twice": Mutant(
        "controller.decisions.producer_ids",
        "next_producer_id=first_id + BLOCK_SIZE)",
        "next_producer_id=first_id)",
        "no two producers have one id",
    ),
}
