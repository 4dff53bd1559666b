"""What is remembered of forwarded requests: the records, the bounds, and that everything follows from the records."""

from __future__ import annotations

import random

import pytest

from barnabas.controller.forwarded import answers
from barnabas.controller.forwarded.answers import ANSWER_BYTES_MAX, BYTES_MAX, SENDERS_MAX, Answered, Answers
from barnabas.controller.image import Image
from barnabas.controller.image_editor import ImageEditor, with_records
from barnabas.controller.metadata.snapshot import image_records
from barnabas.protocol.metadata_records import NoOpRecord, decode_record, encode_record
from barnabas.protocol.push_tags import set_tag


def sender(number: int) -> bytes:
    return number.to_bytes(16, "big")


def answered(who: int = 1, number: int = 1, body: bytes | None = b"answer") -> Answered:
    return Answered.of(sender(who), number, 0xFFFFFFFF, (19, 7), body)


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("body", [None, b"", b"x" * 128, b"x" * 129, b"word " * 100_000, noise(ANSWER_BYTES_MAX // 2)])
def test_an_answer_comes_back_from_its_record(body: bytes | None) -> None:
    record = decode_record(encode_record(answered(body=body).record()))
    assert isinstance(record, NoOpRecord)
    found = Answered.of_record(record)
    assert found == answered(body=body)
    assert found.body == body
    assert len(found.content) <= (0 if body is None else len(body) + 100)


@pytest.mark.parametrize("body", [noise(ANSWER_BYTES_MAX), bytes(answers.BODY_BYTES_MAX + 1)])
def test_an_answer_that_is_too_long_is_not_kept(body: bytes) -> None:
    assert (answered(body=body).content, answered(body=body).body) == (b"", None)


def test_other_records_and_damaged_ones_are_none() -> None:
    assert Answered.of_record(NoOpRecord()) is None
    for raw in (b"", b"x" * 40, answers._HEAD.pack(sender(1), 1, 0, 19, 7, 9)):
        record = NoOpRecord()
        set_tag(record, answers.TAG_ANSWER, raw)
        assert Answered.of_record(record) is None
        assert with_records(Image(), [record]).answers == Answers()


@pytest.mark.parametrize("content", [b"", b"no zlib", answered(body=bytes(1000)).content[:-1]])
def test_a_damaged_body_is_none(content: bytes) -> None:
    assert answered(body=bytes(1000))._replace(content=content).body is None


def test_the_last_answer_of_each_sender_is_remembered() -> None:
    image = with_records(Image(), [answered(1, 1).record(), answered(2, 5).record(), answered(1, 2, b"new").record()])
    assert [(each.sender, each.number) for each in image.answers] == [(sender(2), 5), (sender(1), 2)]
    found = image.answers.get(sender(1))
    assert found is not None
    assert (found.body, image.answers.size_in_bytes) == (b"new", 9)
    assert image.answers.get(sender(3)) is None


def test_a_lower_number_changes_nothing() -> None:
    image = with_records(Image(), [answered(1, 2).record()])
    assert with_records(image, [answered(1, 1).record()]).answers == image.answers


def test_an_image_never_changes() -> None:
    first = with_records(Image(), [answered(1, 1).record()])
    second = with_records(first, [answered(1, 2).record(), answered(2, 1).record()])
    assert [len(Image().answers), len(first.answers), len(second.answers)] == [0, 1, 2]
    assert with_records(second, [NoOpRecord()]).answers is second.answers, "nothing is copied in vain"


def test_nothing_is_pushed_because_of_an_answer() -> None:
    editor = ImageEditor(Image())
    editor.apply_all([answered().record()], 0)
    assert not editor.delta


def test_the_sender_that_was_silent_for_longest_is_forgotten() -> None:
    records = [answered(who, 1).record() for who in range(SENDERS_MAX)]
    image = with_records(Image(), [*records, answered(0, 2).record(), answered(SENDERS_MAX, 1).record()])
    assert len(image.answers) == SENDERS_MAX
    assert image.answers.get(sender(1)) is None
    assert image.answers.get(sender(0)) is not None


def test_the_oldest_answers_are_dropped_but_not_their_numbers() -> None:
    size = ANSWER_BYTES_MAX * 3 // 4
    count = BYTES_MAX // size + 2
    image = with_records(Image(), [answered(who, 1, noise(size, who)).record() for who in range(count)])
    kept = [each.body is not None for each in image.answers]
    assert (len(kept), kept[0], kept[-1]) == (count, False, True)
    assert kept == sorted(kept)
    assert image.answers.size_in_bytes == sum(len(each.content) for each in image.answers) <= BYTES_MAX
    fewer = with_records(image, [answered(who, 2, None).record() for who in range(count)])
    assert fewer.answers.size_in_bytes == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_has_the_same_and_goes_on_in_the_same_way(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SENDERS_MAX", 5)
    monkeypatch.setattr(answers, "BYTES_MAX", 1_000)
    rng = random.Random(seed)
    image = replayed = Image()
    for number in range(200):
        size = rng.choice((0, 20, 200, 900))
        record = answered(rng.randrange(8), number, rng.choice((None, rng.randbytes(size)))).record()
        image, replayed = (with_records(each, [record]) for each in (image, replayed))
        assert (len(image.answers) <= 5, image.answers.size_in_bytes <= 1_000) == (True, True)
        if rng.random() < 0.2:
            replayed = with_records(Image(), image_records(replayed))
        assert replayed.answers == image.answers
