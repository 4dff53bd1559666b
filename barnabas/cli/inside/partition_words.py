"""A partition in words: who leads it, how far each replica is, what that means for producers and consumers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.common.live_shape import Partition, Replica, Transaction, Waiting
from barnabas.common.phrases import count, duration, listed
from barnabas.common.topic_partition import TopicPartition

SHOWN = 5
UNKNOWN = -1
INDENT = "  "


def partition_words(
    tp: TopicPartition, lives: Mapping[int, Mapping[str, Any]], silent: Mapping[int, str] | None = None
) -> list[str]:
    """The lines about a partition, by what the brokers tell of it; `silent` brokers do not answer, by reason.

    Raises KeyError if nobody has it.
    """
    silent = silent or {}
    views = {broker: view for broker, live in lives.items() if (view := view_of(tp, live)) is not None}
    if not views:
        raise KeyError(str(tp))
    leaders = [broker for broker, view in views.items() if view["role"] == "leader"]
    if not leaders:
        return _without_leader(tp, views, silent)
    # Why the highest epoch: one that was replaced a moment ago may not know it yet.
    leader = max(leaders, key=lambda broker: views[broker]["leader_epoch"])
    view, live = views[leader], lives[leader]
    return [
        f"{tp} is led by broker {leader} in leader epoch {view['leader_epoch']} (partition epoch "
        f"{view['partition_epoch']}). {_assignment(view)}",
        _log(view),
        *_watermark(view, silent),
        *_others(view, silent),
        _min_isr(view),
        *_readers(tp, view, live),
        *_waiting(tp, live),
    ]


def view_of(tp: TopicPartition, live: Mapping[str, Any]) -> Partition | None:
    """What a broker tells of a partition; None if it has none."""
    for view in live["partitions"]["items"]:
        if (view["topic"], view["partition"]) == tp:
            found: Partition = view
            return found
    return None


def _without_leader(tp: TopicPartition, views: Mapping[int, Partition], silent: Mapping[int, str]) -> list[str]:
    """What followers know while nobody says that it leads."""
    newest = max(views.values(), key=lambda view: (view["leader_epoch"], view["partition_epoch"]))
    leader = newest["leader"]
    if leader < 0:
        lines = [f"{tp} has no leader: it can be neither written nor read. {_assignment(newest)}"]
    elif leader in silent:
        lines = [f"{tp} is led by broker {leader}, which cannot be asked: {silent[leader]}. {_assignment(newest)}"]
    else:
        lines = [f"{tp} is about to be led by broker {leader}. {_assignment(newest)}"]
    lines += [
        f"{INDENT}broker {broker}, a follower in leader epoch {view['leader_epoch']}, has {_offsets(view)}; the high "
        f"watermark that it was told is {view['high_watermark']}"
        for broker, view in sorted(views.items())
    ]
    return lines


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


def _watermark(view: Partition, silent: Mapping[int, str]) -> list[str]:
    """Where the high watermark is, and which in-sync replicas hold it back."""
    end, watermark = view["log_end_offset"], view["high_watermark"]
    if watermark == end:
        return [f"The high watermark is {watermark}, the end of the log: every in-sync replica has everything."]
    lines = [
        f"The high watermark is {watermark}: {count(end - watermark, 'record')} above it "
        f"{'is' if end - watermark == 1 else 'are'} not on every in-sync replica yet. Consumers do not see "
        f"{'it' if end - watermark == 1 else 'them'}, and acks=all waits."
    ]
    holding = [
        replica
        for replica in view["replicas"]
        if _counts(replica, view) and not replica["is_leader"] and replica["log_end_offset"] < end
    ]
    lines += [f"{INDENT}{_behind(replica, view, silent)}" for replica in holding]
    if view["is_isr_change_in_flight"]:
        lines.append(f"{INDENT}a change of the ISR was proposed; the controller has not answered yet")
    elif not holding:
        lines.append(f"{INDENT}every in-sync replica has fetched it: the next fetch moves the watermark")
    return lines


def _counts(replica: Replica, view: Partition) -> bool:
    """Whether the watermark waits for a replica."""
    return replica["is_in_sync"] or replica["broker"] in view["joining"]


def _behind(replica: Replica, view: Partition, silent: Mapping[int, str]) -> str:
    broker = replica["broker"]
    text = f"replica {broker} {_position(replica, view, '; it')}"
    if replica["is_in_sync"] and replica["last_caught_up_ms"] != UNKNOWN:
        left_ms = view["lag_max_ms"] - replica["last_caught_up_ms"]
        if left_ms > 0:
            text += f"; it leaves the ISR in {duration(left_ms)} if it does not catch up"
        else:
            text += f"; it leaves the ISR at the next check ({duration(-left_ms)} over replica.lag.time.max.ms)"
    elif not replica["is_in_sync"]:
        text += "; it is about to join the ISR"
    return text + _why(replica, silent)


def _position(replica: Replica, view: Partition, joined: str) -> str:
    """How far a replica is, and `joined` to it when it last fetched."""
    if replica["log_end_offset"] == UNKNOWN:
        return f"has not fetched since broker {view['leader']} leads"
    text = f"is at {replica['log_end_offset']}, {count(replica['lag'], 'record')} behind"
    if replica["last_fetch_ms"] != UNKNOWN:
        text += f"{joined} last fetched {duration(replica['last_fetch_ms'])} ago"
    return text


def _why(replica: Replica, silent: Mapping[int, str]) -> str:
    broker = replica["broker"]
    if not replica["is_alive"]:
        return f" (broker {broker} is not alive)"
    return f" (broker {broker}: {silent[broker]})" if broker in silent else ""


def _others(view: Partition, silent: Mapping[int, str]) -> list[str]:
    """The replicas that nobody waits for."""
    lines = []
    for replica in view["replicas"]:
        if replica["is_leader"] or _counts(replica, view):
            continue
        how = _position(replica, view, ", and")
        lines.append(f"Replica {replica['broker']} is not in sync: it {how}{_why(replica, silent)}.")
    return lines


def _min_isr(view: Partition) -> str:
    least, has = view["min_isr"], len(view["isr"])
    needs = f"acks=all needs {count(least, 'in-sync replica')} (min.insync.replicas), there "
    needs += "is 1" if has == 1 else f"are {has}"
    if has < least:
        return f"{needs}: acks=all is refused (NOT_ENOUGH_REPLICAS) until the ISR has grown."
    if has == 1:  # a leader does not fall out of the ISR
        return f"{needs}, the leader: without it the partition is offline."
    if has == least:
        return f"{needs}: if one more falls out, acks=all is refused (NOT_ENOUGH_REPLICAS)."
    return f"{needs}: {has - least} more may fall out before acks=all is refused."


def _readers(tp: TopicPartition, view: Partition, live: Mapping[str, Any]) -> list[str]:
    """What readers of committed records see, if it is less than others do."""
    stable = view["last_stable_offset"]
    if stable >= view["high_watermark"]:
        return []
    lines = [f"Readers of read_committed see offsets below {stable}: a transaction is open there."]
    transactions: list[Transaction] = live["transactions"]["items"]
    lines += [
        f"{INDENT}transaction {transaction['transactional_id']} (producer id {transaction['producer_id']}) is "
        f"{transaction['state']} for {duration(transaction['age_ms'])}; its timeout is "
        f"{duration(transaction['timeout_ms'])}"
        for transaction in transactions
        if str(tp) in transaction["partitions"]
    ]
    return lines


def _waiting(tp: TopicPartition, live: Mapping[str, Any]) -> list[str]:
    items = [
        waiting
        for purgatory in live["purgatories"]
        for waiting in purgatory["items"]
        if str(tp) in waiting["keys"] or tp.topic in waiting["keys"]
    ]
    return waiting_lines(items) or ["Nothing waits for it."]


def waiting_lines(items: Iterable[Waiting]) -> list[str]:
    """What waits, oldest first; none if nothing does."""
    oldest_first: Sequence[Waiting] = sorted(items, key=lambda waiting: -waiting["age_ms"])
    if not oldest_first:
        return []
    lines = [f"What waits ({len(oldest_first)}):"]
    lines += [f"{INDENT}{waiting['sentence']} (for {duration(waiting['age_ms'])})" for waiting in oldest_first[:SHOWN]]
    if len(oldest_first) > SHOWN:
        lines.append(f"{INDENT}and {len(oldest_first) - SHOWN} more")
    return lines
