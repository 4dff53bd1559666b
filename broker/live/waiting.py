"""Waiting operations and their reasons: in purgatories, and parked requests elsewhere.

An operation of a purgatory returns its own reasons (`DelayedOperation.waits_for`). Most other parked requests wait for
an answer of their owner. `Explain` returns the reasons for them by API; a broker's is in `elsewhere.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.live.requests import subject, words_of
from barnabas.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker import purgatory as parking
    from barnabas.broker.live.look import Look
    from barnabas.broker.live.requests import RequestViews
    from barnabas.broker.requests.request import Request, Wait
    from barnabas.common.pages.live_shape import Listed, Purgatory, Reason, RequestShape, Waiting

KEYS_MAX: Final = 10
REASONS_MAX: Final = 10
REASONS_IN_SENTENCE: Final = 3

#: Returns the reasons why a request waits, by the name of its API and its message.
Explain = Callable[[str, Any], "list[Reason]"]


# --- purgatories


def purgatories(all_: Iterable[parking.Purgatory], views: RequestViews, look: Look) -> list[Purgatory]:
    """Return every purgatory with its oldest operations."""
    return [
        {
            "name": purgatory.name,
            "watched": purgatory.watched(),
            "delayed": purgatory.delayed(),
            "items": [
                in_purgatory(operation, keys, views, look, purgatory.now_ms())
                for operation, keys in purgatory.waiting(look.limit, _about_topic(look.topic))
            ],
        }
        for purgatory in all_
    ]


def _about_topic(topic: str | None) -> Callable[[Hashable], bool]:
    if topic is None:
        return lambda _key: True
    return lambda key: key == topic or (isinstance(key, TopicPartition) and key.topic == topic)


def in_purgatory(
    operation: parking.DelayedOperation, keys: Sequence[Hashable], views: RequestViews, look: Look, now_ms: int
) -> Waiting:
    """Return one operation of a purgatory; `now_ms` is the time of the purgatory's clock, which may be moved."""
    request = operation.request
    shape = None if request is None else views.in_progress(request, look)
    reasons = operation.waits_for()
    age_ms = max(0, now_ms - operation.started_ms) if operation.started_ms >= 0 else 0
    names = [str(key) for key in keys if isinstance(key, (str, TopicPartition))]
    return {
        "operation": "append" if shape is None else words_of(shape["api"] or "request"),
        "keys": names[:KEYS_MAX],
        "key_count": len(names),
        "request": shape,
        "client_id": None if shape is None else shape["client_id"],
        "age_ms": age_ms,
        "deadline_ms": None if operation.delay_ms < 0 else max(0, operation.delay_ms - age_ms),
        "reasons": reasons[:REASONS_MAX],
        "sentence": sentence(shape, reasons, names),
    }


def sentence(request: RequestShape | None, reasons: Sequence[Reason], keys: Sequence[str] = ()) -> str:
    """Return a sentence: the request or append, and its reasons."""
    who = f"append of a coordinator to {', '.join(keys[:1])}" if request is None else subject(request)
    if not reasons:
        return f"{who} is about to be answered"
    texts = [reason["text"] for reason in reasons[:REASONS_IN_SENTENCE]]
    if len(reasons) > REASONS_IN_SENTENCE:
        texts.append(f"for {len(reasons) - REASONS_IN_SENTENCE} more")
    return f"{who} waits {'; and '.join(texts)}"


# --- elsewhere


def parked(requests: Iterable[Request], explain: Explain, views: RequestViews, look: Look) -> Listed:
    """Return those of these requests that no purgatory watches, oldest first; it may time them."""
    found = [(request, request.operation) for request in requests]
    waiting = [(request, operation) for request, operation in found if operation and not operation.is_watched]
    waiting.sort(key=lambda item: item[0].received_ns)
    return look.some([_parked(*item, explain, views, look) for item in waiting[: look.limit]], len(waiting))


def _parked(request: Request, operation: Wait, explain: Explain, views: RequestViews, look: Look) -> Waiting:
    shape, message = views.in_progress(request, look), request.message
    reasons = operation.waits_for()
    if not reasons and message is not None:  # None: it has just been answered
        reasons = explain(shape["api"] or "", message)
    return {
        "operation": words_of(shape["api"] or "request"),
        "keys": [],
        "key_count": 0,
        "request": shape,
        "client_id": shape["client_id"],
        "age_ms": shape["times_ms"].get("remote", 0.0),
        "deadline_ms": None,
        "reasons": reasons,
        "sentence": sentence(shape, reasons),
    }
