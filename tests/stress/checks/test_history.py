"""The checker finds the anomalies in histories of broken clusters, and none in a correct one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stress.checks.history import Anomaly, Content, History, Record, summary


def produced(history: History, count: int, producer: int = 0, base_offset: int = 0) -> dict[int, Record]:
    """Send, acknowledge and read this many records of a producer in partition 0; return the partition's content."""
    content = {}
    for offset in range(base_offset, base_offset + count):
        record = history.send(0, producer)
        history.acknowledge(0, record, offset)
        history.read("reader", 0, offset, record)
        content[offset] = record
    return content


def kinds(history: History, content: Content) -> set[str]:
    return {anomaly.kind for anomaly in history.check({0: content})}


def test_a_correct_history_has_no_anomaly() -> None:
    history = History()
    content = {**produced(history, 5), **produced(history, 5, producer=1, base_offset=5)}
    history.watermark("observer", 0, 4)
    history.watermark("observer", 0, 4)
    history.watermark("observer", 0, 10)
    history.watermark("another", 0, 3)  # each observer has its own history
    assert history.check({0: content}) == []
    assert (history.sent_count(), history.acknowledged_count(), history.watermark_count()) == (10, 10, 2)


def test_a_refused_record_may_be_there_or_not() -> None:
    history = History()
    kept, gone = history.send(0, 0), history.send(0, 0)
    history.refuse(0, kept)
    history.refuse(0, gone)
    assert history.check({0: {0: kept}}) == []


def test_a_record_whose_acknowledgement_was_inferred_may_be_there_or_not() -> None:
    history = History()
    kept, gone = history.send(0, 0), history.send(0, 0)
    history.infer(0, kept)
    history.infer(0, gone)
    assert history.check({0: {5: kept}}) == []
    assert (history.acknowledged_count(), history.inferred_count()) == (0, 2)


def test_an_unanswered_record_may_be_there_or_not() -> None:
    history = History()
    kept, _gone = history.send(0, 0), history.send(0, 0)
    assert history.check({0: {0: kept}}) == []


def test_offsets_without_records_are_no_gap() -> None:
    history = History()
    first, second = history.send(0, 0), history.send(0, 0)
    history.read("reader", 0, 0, first)
    history.read("reader", 0, 7, second)  # control records lie between
    assert history.check({0: {0: first, 7: second}}) == []


def lose_an_acknowledged_record(history: History, content: dict[int, Record]) -> None:
    history.acknowledge(0, history.send(0, 0), 5)


def lose_one_that_was_acknowledged_without_an_offset(history: History, content: dict[int, Record]) -> None:
    history.acknowledge(0, history.send(0, 0), None)


def acknowledge_at_a_wrong_offset(history: History, content: dict[int, Record]) -> None:
    content[6] = history.send(0, 0)
    history.acknowledge(0, content[6], 5)


def lose_the_partition(history: History, content: dict[int, Record]) -> None:
    content.clear()


def store_a_record_twice(history: History, content: dict[int, Record]) -> None:
    content[5] = content[4]


def acknowledge_a_record_twice(history: History, content: dict[int, Record]) -> None:
    history.acknowledge(0, content[4], 5)


def swap_two_records(history: History, content: dict[int, Record]) -> None:
    content[5], content[6] = Record(1, 1), Record(1, 0)
    history.sent[0, 1] = 2


def give_an_offset_new_content(history: History, content: dict[int, Record]) -> None:
    content[5] = content[4]
    content[4] = history.send(0, 0)


def show_two_readers_different_records(history: History, content: dict[int, Record]) -> None:
    content[5] = history.send(0, 0)
    history.read("one", 0, 5, history.send(0, 0))
    history.read("other", 0, 5, content[5])


def acknowledge_at_anothers_offset(history: History, content: dict[int, Record]) -> None:
    content[5] = history.send(0, 0)
    history.acknowledge(0, content[5], 4)


def roll_back_a_read_record(history: History, content: dict[int, Record]) -> None:
    history.read("reader", 0, 5, history.send(0, 0))


def skip_a_record(history: History, content: dict[int, Record]) -> None:
    content[5], content[6] = history.send(0, 0), history.send(0, 0)
    history.read("reader", 0, 6, content[6])


def give_a_reader_the_past_again(history: History, content: dict[int, Record]) -> None:
    history.read("reader", 0, 3, content[3])


def move_the_watermark_back(history: History, content: dict[int, Record]) -> None:
    history.watermark("observer", 0, 5)
    history.watermark("observer", 0, 4)


def invent_a_record(history: History, content: dict[int, Record]) -> None:
    content[5] = Record(7, 0)


@pytest.mark.parametrize(
    ("break_it", "kind"),
    [
        (lose_an_acknowledged_record, "lost"),
        (lose_one_that_was_acknowledged_without_an_offset, "lost"),
        (acknowledge_at_a_wrong_offset, "lost"),
        (lose_the_partition, "lost"),
        (store_a_record_twice, "duplicated"),
        (acknowledge_a_record_twice, "duplicated"),
        (swap_two_records, "reordered"),
        (give_an_offset_new_content, "offset reuse"),
        (show_two_readers_different_records, "offset reuse"),
        (acknowledge_at_anothers_offset, "offset reuse"),
        (roll_back_a_read_record, "unstable read"),
        (skip_a_record, "skipped"),
        (give_a_reader_the_past_again, "skipped"),
        (move_the_watermark_back, "watermark back"),
        (invent_a_record, "invented"),
    ],
)
def test_a_broken_history_is_detected(break_it: Callable[[History, dict[int, Record]], None], kind: str) -> None:
    history = History()
    content = produced(history, 5)
    assert history.check({0: content}) == []
    break_it(history, content)
    assert kind in kinds(history, content)


def test_the_summary_counts_and_shows_the_first_few() -> None:
    anomalies = [Anomaly("lost", 0, f"record {number}") for number in range(20)]
    assert summary(anomalies, shown=2) == "lost: 20\n  partition 0: record 0\n  partition 0: record 1"
