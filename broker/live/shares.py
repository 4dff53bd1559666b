"""The share partitions that this broker delivers: who holds which records until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.common.pages.phrases import count, duration

if TYPE_CHECKING:
    from barnabas.broker.live.look import Look
    from barnabas.broker.share.led_partition import LedSharePartition
    from barnabas.broker.share.manager import SharePartitionManager
    from barnabas.common.pages.live_shape import Held, Listed, SharePartition


def shares(manager: SharePartitionManager, look: Look) -> Listed:
    """Return the share partitions in memory, by group and partition."""
    found = [
        led
        for led in manager.led()
        if look.group in (None, led.key.group_id)
        and look.topic in (None, led.tp.topic)
        and look.partition in (None, led.tp.partition)
    ]
    found.sort(key=lambda led: (led.key.group_id, led.tp))
    now_ms = manager.purgatory.now_ms()
    return look.some([_share(led, now_ms, look) for led in found[: look.limit]], len(found))


def _share(led: LedSharePartition, now_ms: int, look: Look) -> SharePartition:
    held: list[Held] = [
        {
            "member_id": holding.member_id,
            "first_offset": holding.first,
            "last_offset": holding.last,
            "delivery_count": holding.delivery_count,
            "left_ms": max(0, holding.deadline_ms - now_ms),
        }
        for holding in led.holdings()
    ]
    start, end = led.offsets
    return {
        "group_id": led.key.group_id,
        "topic": led.tp.topic,
        "partition": led.tp.partition,
        "is_loading": led.is_loading,
        "start_offset": start,
        "end_offset": end,
        "in_flight": led.in_flight_count,
        "held": look.some(held),
        "sentence": _sentence(led, held),
    }


def _sentence(led: LedSharePartition, held: list[Held]) -> str:
    if led.is_loading:
        return "its state is being read from the share coordinator"
    if not held:
        return "no member holds records"
    records = sum(each["last_offset"] - each["first_offset"] + 1 for each in held)
    members = len({each["member_id"] for each in held})
    holders = f"{count(members, 'member')} {'holds' if members == 1 else 'hold'} {count(records, 'record')}"
    return f"{holders}; the first lock runs out in {duration(min(each['left_ms'] for each in held))}"
