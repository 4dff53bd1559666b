"""Once: a forwarded request that a broker sends again is carried out once, and gets the answer of the first time.

Rules
1. A broker has one request of a channel under way. It makes another attempt when it has given up the one before, and
   the next request has a higher number (push_tags.py, tag 10011).
2. A decision that changes something is appended in one batch with its answer (answers.py). The image that decisions
   build on has it at once, committed or not. So a second attempt is answered when the first one is, by this controller
   or by the next. If the batch is lost with the lead, both are lost.
3. A decision without records leaves nothing, and the next attempt is decided anew: nothing was done.
4. An attempt that comes after a later one of the same sender is refused: nobody waits for it. Otherwise, a request
   whose refusal was reported to the client could still be carried out.
5. An attempt that came in an earlier epoch of this controller is refused, also if this controller has the lead again.
   Rule 4 beyond what the log has is known to one process only, and another one may have refused a later attempt.

Threads: the event thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.controller.decision import Decision, View
from barnabas.controller.forwarded.answers import SENDERS_MAX, Answered
from barnabas.protocol.errors import ApiError, EncodeError, ErrorCode, MalformedMessageError
from barnabas.protocol.messages import response_class
from barnabas.protocol.push_tags import Attempt
from barnabas.protocol.schema import Message

R = TypeVar("R")

LATE: Final = "The broker that forwarded the request has sent it again meanwhile, or given it up."
EARLIER: Final = "The request came before this controller lost the lead and had it again."
NOT_KEPT: Final = "The request was carried out, but its answer is not known any more."
ANOTHER: Final = "Another request had this number."


class Asked(NamedTuple):
    """A forwarded request: which attempt it is, and what it asks for."""

    attempt: Attempt
    checksum: int  # of the request and its principal
    api_key: int
    version: int


class Attempts:
    """The last attempt of each sender that this process has seen (rule 4)."""

    def __init__(self) -> None:
        self._newest: dict[bytes, tuple[int, int]] = {}  # in the order in which they came

    def check(self, attempt: Attempt) -> None:
        """Note an attempt; raises REQUEST_TIMED_OUT if it comes too late, or twice."""
        newest, this = self._newest.pop(attempt.sender, None), (attempt.number, attempt.nth)
        is_late = newest is not None and this <= newest
        self._newest[attempt.sender] = newest if newest is not None and is_late else this
        if len(self._newest) > SENDERS_MAX:
            del self._newest[next(iter(self._newest))]
        if is_late:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, LATE)


def decide_once(
    view: View,
    asked: Asked,
    decide: Callable[[View], Decision[R]],
    answer: Callable[[R], Message],
    *,
    keeps_answer: bool = True,
) -> Decision[Message]:
    """Decide a request, or return its former answer.

    With `keeps_answer` false, the answer is a secret that the log must not have. Then `decide` must find by itself what
    it did before; if it would do it again, the request is refused.
    """
    former = view.image.answers.get(asked.attempt.sender)
    if former is not None and former.number > asked.attempt.number:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, LATE)
    is_again = former is not None and former.number == asked.attempt.number
    if former is not None and is_again:
        _check_same(former, asked)
        if keeps_answer:
            return Decision([], _former_response(former))
    decision = decide(view)
    if is_again and decision.records:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, NOT_KEPT)
    response = answer(decision.response)
    if not decision.records:
        return Decision([], response)
    body = _encoded(response, asked.version) if keeps_answer else None
    number = asked.attempt.number
    kept = Answered.of(asked.attempt.sender, number, asked.checksum, (asked.api_key, asked.version), body)
    # Why last: the offsets of the other records are those that the decision has seen.
    return Decision([*decision.records, kept.record()], response)


def _check_same(former: Answered, asked: Asked) -> None:
    """Refuse another request with the number of a former one: perhaps the memory of a broker was copied."""
    if (former.checksum, former.api_key, former.version) != (asked.checksum, asked.api_key, asked.version):
        raise ApiError(ErrorCode.INVALID_REQUEST, ANOTHER)


def _former_response(former: Answered) -> Message:
    body = former.body
    try:
        if body is not None:
            decoded: Any = response_class(former.api_key).decode(body, former.version)
            return decoded  # type: ignore[no-any-return]
    except MalformedMessageError:
        pass
    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, NOT_KEPT)


def _encoded(response: Message, version: int) -> bytes | None:
    """Return the body of a response; None if it cannot be encoded, which its sender finds out again."""
    try:
        return response.encode(version)
    except EncodeError:
        return None
