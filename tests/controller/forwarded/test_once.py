"""A forwarded request is decided once: `decide_once` with images, and the order of attempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.controller.decision import Decision, View
from barnabas.controller.forwarded.answers import SENDERS_MAX, Answered
from barnabas.controller.forwarded.once import Asked, Attempts, decide_once
from barnabas.controller.image import Image
from barnabas.controller.image_editor import with_records
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k19_create_topics import CreatableTopicResult, CreateTopicsResponse
from barnabas.protocol.metadata_records import FeatureLevelRecord, MetadataRecord, NoOpRecord
from barnabas.protocol.push_tags import Attempt
from tests.controller.rig import make_config

SENDER, OTHER = b"s" * 16, b"o" * 16
CHANGE = FeatureLevelRecord(name="f", feature_level=1)


def asked(number: int = 1, nth: int = 1, sender: bytes = SENDER, checksum: int = 7) -> Asked:
    return Asked(Attempt(sender, number, nth), checksum, 19, 7)


@dataclass
class Decider:
    """A cluster that a decision changes, and how often it was asked."""

    image: Image = field(default_factory=Image)
    records: list[MetadataRecord] = field(default_factory=lambda: [CHANGE])
    name: str = "t"
    count: int = 0

    def decide(self, _view: View) -> Decision[CreateTopicsResponse]:
        """Change something, and say how often that was done."""
        self.count += 1
        result = CreatableTopicResult(name=self.name, num_partitions=self.count)
        return Decision(self.records, CreateTopicsResponse(topics=[result]))

    def ask(self, request: Asked, **about: bool) -> Any:
        """Ask for the decision, and apply it; the number of partitions in the answer says which time it was made."""
        view = View(self.image, make_config())
        decision = decide_once(view, request, self.decide, lambda response: response, **about)
        self.image = with_records(self.image, decision.records)
        assert isinstance(decision.response, CreateTopicsResponse)
        return decision.response.topics[0].num_partitions


@pytest.fixture
def decider() -> Decider:
    return Decider()


def code(decider: Decider, request: Asked, **about: bool) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        decider.ask(request, **about)
    return caught.value.code


def test_a_second_attempt_gets_the_first_answer(decider: Decider) -> None:
    assert [decider.ask(asked(1, nth)) for nth in (1, 2, 3)] == [1, 1, 1]
    assert (decider.count, decider.image.offset) == (1, 1)
    assert decider.ask(asked(2)) == 2
    assert decider.ask(asked(2, 2)) == 2


def test_the_answer_is_in_the_batch_after_its_records(decider: Decider) -> None:
    decision = decide_once(View(Image(), make_config()), asked(), decider.decide, lambda response: response)
    first, last = decision.records
    assert first is CHANGE
    assert isinstance(last, NoOpRecord)
    kept = Answered.of_record(last)
    assert kept is not None
    assert kept.body == decision.response.encode(7)


def test_senders_do_not_meet(decider: Decider) -> None:
    assert [decider.ask(asked(sender=each)) for each in (SENDER, OTHER, SENDER, OTHER)] == [1, 2, 1, 2]


def test_a_decision_that_changes_nothing_is_made_again(decider: Decider) -> None:
    decider.records = []
    assert [decider.ask(asked(1, 1)), decider.ask(asked(1, 2))] == [1, 2]
    assert decider.image.offset == -1
    decider.records = [CHANGE]
    assert [decider.ask(asked(1, 3)), decider.ask(asked(1, 4))] == [3, 3]


def test_a_request_before_one_that_was_carried_out_is_refused(decider: Decider) -> None:
    decider.ask(asked(2))
    assert code(decider, asked(1)) is ErrorCode.REQUEST_TIMED_OUT
    assert decider.count == 1


@pytest.mark.parametrize("other", [asked(checksum=8), asked()._replace(api_key=20), asked()._replace(version=6)])
def test_another_request_with_the_same_number_gets_no_answer(decider: Decider, other: Asked) -> None:
    decider.ask(asked())
    assert code(decider, other) is ErrorCode.INVALID_REQUEST
    assert decider.count == 1


def test_an_answer_that_is_too_long_is_not_given_again_but_the_change_is_not_made_again(decider: Decider) -> None:
    decider.name = "".join(chr(0x4E00 + n * n % 20_000) for n in range(10_900))
    decide = decider.decide

    def many(view: View) -> Decision[CreateTopicsResponse]:
        decision = decide(view)
        decision.response.topics = [
            CreatableTopicResult(name=decider.name[n:], topic_id=n.to_bytes(16, "big")) for n in range(600)
        ]
        return decision

    decider.decide = many  # type: ignore[method-assign]
    decider.ask(asked())
    assert code(decider, asked(1, 2)) is ErrorCode.REQUEST_TIMED_OUT
    assert decider.count == 1


def test_a_response_that_cannot_be_encoded_does_not_hide_the_change(decider: Decider) -> None:
    decider.name = None  # type: ignore[assignment]
    decider.ask(asked())
    assert code(decider, asked(1, 2)) is ErrorCode.REQUEST_TIMED_OUT
    assert decider.count == 1


def test_a_damaged_answer_is_none(decider: Decider) -> None:
    decider.image = with_records(Image(), [Answered.of(SENDER, 1, 7, (19, 7), b"\xff").record()])
    assert code(decider, asked()) is ErrorCode.REQUEST_TIMED_OUT


def test_a_secret_answer_is_not_in_the_log_and_found_again_by_the_decision(decider: Decider) -> None:
    decider.ask(asked(), keeps_answer=False)
    (kept,) = decider.image.answers
    assert kept.body is None
    assert code(decider, asked(1, 2), keeps_answer=False) is ErrorCode.REQUEST_TIMED_OUT, "it would be done again"
    decider.records = []
    assert decider.ask(asked(1, 3), keeps_answer=False) == 3


def test_a_refusal_of_the_whole_request_leaves_nothing(decider: Decider) -> None:
    def refuse(_view: View) -> Decision[CreateTopicsResponse]:
        raise ApiError(ErrorCode.POLICY_VIOLATION)

    decider.decide = refuse  # type: ignore[method-assign]
    assert [code(decider, asked(1, nth)) for nth in (1, 2)] == [ErrorCode.POLICY_VIOLATION] * 2
    assert len(decider.image.answers) == 0


def test_attempts_come_in_order() -> None:
    attempts = Attempts()
    for number, nth in ((1, 1), (1, 2), (3, 1)):
        attempts.check(Attempt(SENDER, number, nth))
    for number, nth in ((3, 1), (2, 9), (1, 2)):
        with pytest.raises(ApiError, match="sent it again"):
            attempts.check(Attempt(SENDER, number, nth))
    attempts.check(Attempt(OTHER, 1, 1))
    attempts.check(Attempt(SENDER, 3, 2))


def test_the_memory_of_attempts_is_bounded() -> None:
    attempts = Attempts()
    for number in range(SENDERS_MAX + 1):
        attempts.check(Attempt(number.to_bytes(16, "big"), 1, 1))
    attempts.check(Attempt(bytes(16), 1, 1))
    assert len(attempts._newest) == SENDERS_MAX
