"""An error for some partitions of a request. The others are handled, and one response contains both.

The request is divided along the lists that `barnabas.faults.shapes` derives from the message tables. The tables for
whole failed requests answer the part that fails, and this answer is merged into the real one. A request for everything
(a null list) cannot be divided: it is handled, and the matching part of its response is replaced.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from barnabas.broker.requests.answers import Ending, Reply
from barnabas.broker.requests.parking import Answer
from barnabas.faults.shapes import MORE, Place, place_of, place_of_answer, shapes_of
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.error_responses import Items, answer_items, error_response, failed_like
from barnabas.protocol.headers import SIZE_BYTES, encode_request
from barnabas.protocol.messages import response_class

if TYPE_CHECKING:
    from barnabas.broker.faults.actions.call import Call
    from barnabas.broker.faults.armed import Armed
    from barnabas.broker.requests.api import ErrorResponse
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.schema import Message

Fits = Callable[[Place], bool]
Proceed = Callable[[], Answer]


def fail_some(armed: Armed, call: Call, proceed: Proceed, code: ErrorCode) -> Answer | None:
    """Answer the partitions that the fault matches with an error; None if it matches none or does not fire."""
    shapes, message = shapes_of(call.key, call.version), call.request.message
    if is_empty_for_all(call.key, call.version, message) or any(asks_for_all(items, message) for items in shapes):
        return call.after(proceed(), lambda given: _rewritten(armed, call, given, code))
    chosen = armed.matcher.chosen(call.partitions)
    if not chosen or not armed.fires_for(call.request, chosen):
        return None
    faulted, rest = divide(shapes, message, _fits(armed, call))
    refused = refuse(call.key, call.version, shapes, faulted, code, call.api.error_response or error_response)
    if rest is None:
        return call.refuse(code) if call.expects_nothing else Reply(refused)
    _replace_message(call.request, rest)

    def merged(given: Ending) -> Answer:
        if call.expects_nothing:
            return call.refuse(code)
        if isinstance(given, Reply):
            for items in shapes:
                merge(items, given.message, refused)
            call.request.error_codes = None  # the codes that the API noted are not complete any more
        return given

    return call.after(proceed(), merged)


def _fits(armed: Armed, call: Call) -> Fits:
    def fits(place: Place) -> bool:
        return armed.matcher.fits(*call.partition_at(place))

    return fits


def _replace_message(request: Request, rest: Message) -> None:
    """Replace a request by its remaining part. A forwarded request is sent as a frame, so that is encoded again."""
    request.message = rest
    if request.buffer is not None and request.header.api_key != ApiKey.PRODUCE:
        request.buffer = memoryview(bytearray(encode_request(request.header, rest)[SIZE_BYTES:]))


# Dividing, refusing, merging: pure


def asks_for_all(items: Items, parent: Any) -> bool:
    """Whether a list of topics or partitions is null, which means all."""
    elements = getattr(parent, items.source)
    if elements is None:
        return True
    return items.inner is not None and any(asks_for_all(items.inner, element) for element in elements)


def is_empty_for_all(key: int, version: int, message: Any) -> bool:
    """Whether an empty list of the request means all, as in some APIs without null lists."""
    if (key == ApiKey.METADATA and version == 0) or key == ApiKey.DESCRIBE_TOPIC_PARTITIONS:
        return not message.topics
    return False


def divide(shapes: Iterable[Items], message: Any, fits: Fits) -> tuple[Any, Any | None]:
    """Return a request of the matching elements, and one of the rest (None if it is empty)."""
    faulted, rest = copy.copy(message), copy.copy(message)
    is_left = False
    for items in shapes:
        taken, left = _divided(items, getattr(message, items.source), Place(), fits)
        setattr(faulted, items.source, taken)
        setattr(rest, items.source, left)
        is_left = is_left or bool(left)
    return faulted, rest if is_left else None


def _divided(items: Items, elements: Any, around: Place, fits: Fits) -> tuple[list[Any], list[Any]]:
    taken: list[Any] = []
    left: list[Any] = []
    for element in elements:
        place = place_of(items, element, around)
        if items.inner is None:
            (taken if fits(place) else left).append(element)
            continue
        inside = getattr(element, items.inner.source)
        inner_taken, inner_left = _divided(items.inner, inside, place, fits)
        if inner_taken:
            taken.append(_with(element, items.inner.source, inner_taken))
        if inner_left or not inside:
            left.append(_with(element, items.inner.source, inner_left))
    return taken, left


def _with(element: Any, name: str, value: object) -> Any:
    changed = copy.copy(element)
    setattr(changed, name, value)
    return changed


def refuse(
    key: int,
    version: int,
    shapes: Iterable[Items],
    faulted: Any,
    code: ErrorCode,
    make: ErrorResponse = error_response,
) -> Any:
    """Return a response with the error for each element of a request; `make` returns that to a whole request."""
    is_removed = version < response_class(key).MIN_VERSION  # such a version has a class of its own, which `make` knows
    if key not in MORE or is_removed:
        return make(faulted, version, code, None)
    response = response_class(key)()
    for items in shapes:
        answer_items(items, faulted, response, version, code)
    return response


def merge(items: Items, real: Any, refused: Any) -> None:
    """Add the elements of `refused` to the real response, under the same topic if it has that."""
    answers = getattr(real, items.target)
    if answers is None:
        answers = []
        setattr(real, items.target, answers)
    for extra in getattr(refused, items.target):
        same = next((answer for answer in answers if _is_same(items, answer, extra)), None)
        if same is not None and items.inner is not None:
            merge(items.inner, same, extra)
        else:
            answers.append(extra)


def _is_same(items: Items, answer: Any, extra: Any) -> bool:
    """Whether two answers concern the same topic, group or transaction.

    An API that was asked by id may add the name, or the reverse. So a value that one of them lacks makes no difference.
    """
    for target in items.copies.values():
        one, other = getattr(answer, target), getattr(extra, target)
        if one != other and not _is_unsaid(one) and not _is_unsaid(other):
            return False
    return any(not _is_unsaid(getattr(extra, target)) for target in items.copies.values())


def _is_unsaid(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, bytes) and not any(value))


# Requests for all topics


def _rewritten(armed: Armed, call: Call, given: Ending, code: ErrorCode) -> Answer:
    if not isinstance(given, Reply):
        return given
    fits, response = _fits(armed, call), given.message
    shapes = shapes_of(call.key, call.version)
    found = [place for items in shapes for place in _places_told(items, response, Place()) if fits(place)]
    if not found or not armed.fires_for(call.request, map(call.partition_at, found)):
        return given
    for items in shapes:
        _rewrite(items, response, Place(), fits, call.version, code)
    call.request.error_codes = None
    return given


def _places_told(items: Items, parent: Any, around: Place) -> Iterable[Place]:
    for answer in getattr(parent, items.target) or ():
        place = place_of_answer(items, answer, around)
        if items.inner is None:
            yield place
        else:
            yield from _places_told(items.inner, answer, place)


def _rewrite(items: Items, parent: Any, around: Place, fits: Fits, version: int, code: ErrorCode) -> None:
    answers = getattr(parent, items.target) or []
    for index, answer in enumerate(answers):
        place = place_of_answer(items, answer, around)
        if items.inner is not None:
            _rewrite(items.inner, answer, place, fits, version, code)
        elif fits(place):
            answers[index] = failed_like(items, answer, version, code)
