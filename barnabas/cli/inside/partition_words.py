"""Describes a partition: its leader, its replicas' positions, and the effect on clients. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.common.pages.live_shape import Partition, Replica, Transaction, Waiting
from barnabas.common.pages.phrases import count, duration, listed
from barnabas.common.topic_partition import TopicPartition

SHOWN = 5
UNKNOWN = -1
INDENT = "  "


def partition_words(
    tp: TopicPartition, lives: Mapping[int, Mapping[str, Any]], unreachable: Mapping[int, str] | None = None
) -> list[str]:
    """The lines about a partition, from the brokers' pages; `unreachable` brokers do not answer, for these reasons.

    Raises KeyError if no broker has it.
    """
    unreachable = unreachable or {}
    views = {broker: view for broker, live in lives.items() if (view := view_of(tp, live)) is not None}
    if not views:
        raise KeyError(str(tp))
    # Why the highest epoch: a leader that was just replaced, or is cut off, does not know it yet.
    newest_epoch = max(view["leader_epoch"] for view in views.values())
    leader = next((b for b, v in views.items() if v["role"] == "leader" and v["leader_epoch"] == newest_epoch), None)
    if leader is None:
        return _without_leader(tp, views, lives, unreachable)
    view, live = views[leader], lives[leader]
    return [
        f"{tp} is led by broker {leader} in leader epoch {view['leader_epoch']} (partition epoch "
        f"{view['partition_epoch']}). {_assignment(view)}",
        _log(view),
        *_watermark(view, unreachable),
        *_others(view, unreachable),
        _min_isr(view),
        *_readers(tp, view, lives, unreachable),
        *_waiting(tp, live),
    ]


def view_of(tp: TopicPartition, live: Mapping[str, Any]) -> Partition | None:
    """A broker's view of a partition; None if it has no replica."""
    for view in live["partitions"]["items"]:
        if (view["topic"], view["partition"]) == tp:
            found: Partition = view
            return found
    return None


def _without_leader(
    tp: TopicPartition, views: Mapping[int, Partition], lives: Mapping[int, Any], unreachable: Mapping[int, str]
) -> list[str]:
    """The lines from the other brokers while no broker that answers is the newest leader."""
    newest = max(views.values(), key=lambda view: (view["leader_epoch"], view["partition_epoch"]))
    leader = newest["leader"]
    if leader < 0:
        first = f"{tp} has no leader: clients can neither write nor read it."
        waits = listed([str(broker) for broker in newest["isr"]], at_most=9)
        last = f"It gets one when a broker of the ISR returns ({waits})." if waits else "No replica is in sync."
        lines = [f"{first} {_assignment(newest)} {last}"]
    elif leader in unreachable:
        lines = [f"{tp} is led by broker {leader}, which does not answer: {unreachable[leader]}. {_assignment(newest)}"]
    elif leader in lives:
        lines = [f"{tp} is moving its leadership to broker {leader}. {_assignment(newest)}"]
    else:
        lines = [f"{tp} is led by broker {leader}, whose page is not known. {_assignment(newest)}"]
    lines += [_other_view(broker, view) for broker, view in sorted(views.items())]
    return lines


def _other_view(broker: int, view: Partition) -> str:
    role = "a follower" if view["role"] == "follower" else "a former leader that does not know it yet,"
    return (
        f"{INDENT}broker {broker}, {role} in leader epoch {view['leader_epoch']}, has {_offsets(view)}; its high "
        f"watermark is {view['high_watermark']}"
    )


def _offsets(view: Partition) -> str:
    start, end = view["log_start_offset"], view["log_end_offset"]
    return f"offsets {start} to {end - 1}" if start < end else f"an empty log at {end}"


def _assignment(view: Partition) -> str:
    replicas = listed([str(broker) for broker in view["replica_ids"]], at_most=9)
    in_sync = listed([str(broker) for broker in view["isr"]], at_most=9) or "none"
    one = len(view["replica_ids"]) == 1
    return f"Its replica{' is' if one else 's are'} on broker{'' if one else 's'} {replicas}; in sync (ISR): {in_sync}."


def _log(view: Partition) -> str:
    start, end = view["log_start_offset"], view["log_end_offset"]
    size = f"{count(view['size_bytes'], 'byte')} in {count(view['segments'], 'segment')}"
    if start == end:
        return f"Its log is empty; the next record gets offset {end} ({size})."
    return f"Its log has the offsets {start} to {end - 1}; the next record gets {end} ({size})."


def _watermark(view: Partition, unreachable: Mapping[int, str]) -> list[str]:
    """The high watermark, and the replicas that hold it back."""
    end, watermark = view["log_end_offset"], view["high_watermark"]
    if watermark == end:
        return [f"The high watermark is {watermark}, the end of the log: every in-sync replica has all records."]
    above = end - watermark
    them = "it" if above == 1 else "them"
    if len(view["isr"]) < view["min_isr"]:  # KIP-966: the watermark does not advance then
        return [
            f"The high watermark is {watermark}: {count(above, 'record')} above it {'waits' if above == 1 else 'wait'} "
            f"for the ISR to grow. It has {count(len(view['isr']), 'member')}, min.insync.replicas requires "
            f"{view['min_isr']}: until then the watermark does not advance, and consumers do not see {them}."
        ]
    lines = [
        f"The high watermark is {watermark}: {count(above, 'record')} above it "
        f"{'is' if above == 1 else 'are'} not on every in-sync replica yet. Consumers do not see "
        f"{them}, and acks=all waits."
    ]
    holding = _holding(view)
    lines += [f"{INDENT}{_behind(replica, view, unreachable)}" for replica in holding]
    if view["is_isr_change_in_flight"]:
        lines.append(f"{INDENT}a change of the ISR was proposed; the controller has not confirmed it yet")
    elif not holding:
        lines.append(f"{INDENT}every replica that it waits for has caught up: the watermark is about to advance")
    return lines


def _holding(view: Partition) -> list[Replica]:
    """The followers that hold the watermark back: those that count for it and are behind the leader."""
    if len(view["isr"]) < view["min_isr"]:
        return []
    end = view["log_end_offset"]
    followers = [replica for replica in view["replicas"] if not replica["is_leader"]]
    return [replica for replica in followers if _counts(replica, view) and replica["log_end_offset"] < end]


def _counts(replica: Replica, view: Partition) -> bool:
    """Whether the watermark waits for a replica: it is in sync, proposed for the ISR, or caught up."""
    if replica["is_in_sync"] or replica["broker"] in view["joining"]:
        return True
    is_known = replica["is_alive"] and replica["log_end_offset"] != UNKNOWN
    return is_known and UNKNOWN < replica["last_caught_up_ms"] <= view["lag_max_ms"]


def _behind(replica: Replica, view: Partition, unreachable: Mapping[int, str]) -> str:
    broker = replica["broker"]
    text = f"replica {broker} {_position(replica, view, '; it')}"
    if replica["is_in_sync"] and replica["last_caught_up_ms"] != UNKNOWN:
        left_ms = view["lag_max_ms"] - replica["last_caught_up_ms"]
        if left_ms > 0:
            text += f"; it leaves the ISR in {duration(left_ms)} if it does not catch up"
        else:
            text += f"; it leaves the ISR at the next check ({duration(-left_ms)} over replica.lag.time.max.ms)"
    elif not replica["is_in_sync"]:
        text += (
            "; it is about to join the ISR"
            if replica["broker"] in view["joining"]
            else "; it is not in sync, but the watermark waits for it"
        )
    return text + _why(replica, unreachable)


def _position(replica: Replica, view: Partition, joined: str) -> str:
    """A replica's position; then, after `joined`, when it last fetched."""
    if replica["log_end_offset"] == UNKNOWN:
        return f"has not fetched since broker {view['leader']} became leader"
    text = f"is at {replica['log_end_offset']}, {count(replica['lag'], 'record')} behind"
    if replica["last_fetch_ms"] != UNKNOWN:
        text += f"{joined} last fetched {duration(replica['last_fetch_ms'])} ago"
    return text


def _why(replica: Replica, unreachable: Mapping[int, str]) -> str:
    broker = replica["broker"]
    if not replica["is_alive"]:
        return f" (broker {broker} is not alive)"
    return f" (broker {broker}: {unreachable[broker]})" if broker in unreachable else ""


def _others(view: Partition, unreachable: Mapping[int, str]) -> list[str]:
    """The replicas that are not in sync and do not hold the watermark back."""
    lines = []
    holding = _holding(view) if view["high_watermark"] < view["log_end_offset"] else []
    for replica in view["replicas"]:
        if replica["is_leader"] or replica["is_in_sync"] or replica in holding:
            continue
        how = _position(replica, view, ", and")
        lines.append(f"Replica {replica['broker']} is not in sync: it {how}{_why(replica, unreachable)}.")
    return lines


def _min_isr(view: Partition) -> str:
    least, has = view["min_isr"], len(view["isr"])
    needs = f"acks=all needs {count(least, 'in-sync replica')} (min.insync.replicas); there "
    needs += "is 1" if has == 1 else f"are {has}"
    if has < least:
        return f"{needs}: acks=all is refused (NOT_ENOUGH_REPLICAS) until the ISR has grown."
    if has == 1:  # a leader never leaves the ISR
        return f"{needs}, the leader: without it the partition is offline."
    if has == least:
        return f"{needs}: if one more leaves, acks=all is refused (NOT_ENOUGH_REPLICAS)."
    return f"{needs}: {has - least} more may leave before acks=all is refused."


def _readers(
    tp: TopicPartition, view: Partition, lives: Mapping[int, Mapping[str, Any]], unreachable: Mapping[int, str]
) -> list[str]:
    """What read_committed consumers see, if an open transaction holds them back. Any broker may coordinate it."""
    stable = view["last_stable_offset"]
    if stable >= view["high_watermark"]:
        return []
    transactions: list[Transaction] = [each for live in lives.values() for each in live["transactions"]["items"]]
    known = [
        f"{INDENT}transaction {transaction['transactional_id']} (producer id {transaction['producer_id']}) is "
        f"{transaction['state']} for {duration(transaction['age_ms'])}; its timeout is "
        f"{duration(transaction['timeout_ms'])}"
        for transaction in transactions
        if str(tp) in transaction["partitions"]
    ]
    if not known and not unreachable:
        known = [
            f"{INDENT}no transaction coordinator knows the transaction: it has just ended, or it hangs "
            "(kafka-transactions.sh find-hanging)"
        ]
    return [f"read_committed consumers see offsets below {stable}: a transaction is open there.", *known]


def _waiting(tp: TopicPartition, live: Mapping[str, Any]) -> list[str]:
    items = [
        waiting
        for purgatory in live["purgatories"]
        for waiting in purgatory["items"]
        if str(tp) in waiting["keys"] or tp.topic in waiting["keys"]
    ]
    return waiting_lines(items) or ["Nothing waits for it."]


def waiting_lines(items: Iterable[Waiting]) -> list[str]:
    """The lines about waiting operations, oldest first; none if nothing waits."""
    oldest_first: Sequence[Waiting] = sorted(items, key=lambda waiting: -waiting["age_ms"])
    if not oldest_first:
        return []
    lines = [f"Waiting operations ({len(oldest_first)}):"]
    lines += [f"{INDENT}{waiting['sentence']} (for {duration(waiting['age_ms'])})" for waiting in oldest_first[:SHOWN]]
    if len(oldest_first) > SHOWN:
        lines.append(f"{INDENT}and {len(oldest_first) - SHOWN} more")
    return lines
