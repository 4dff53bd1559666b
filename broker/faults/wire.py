"""What each fault does to a request: one function each, in `ACTIONS`.

An action is asked for each request that its fault concerns, in the order in which the faults were added. It returns
None where it does not fire, and the next fault is asked; else it answers, and decides by `proceed()` whether, and
when, the faults after it and the API itself are reached.

Rules
1. Nothing here waits, but for `holds_handler`: what is to happen later is a parked request and a timer.
2. What a fault holds it lets go when it is removed.
3. What a response carries is changed on its way out only: no log, no session, no cache learns of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.answers import Answer, Close, NoReply, Park, Reply
from barnabas.broker.faults import fetching
from barnabas.broker.faults.partitions import fail_some
from barnabas.broker.purgatory import Deferred
from barnabas.faults.versions import highest_version, release_has_feature
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k18_api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from barnabas.broker.faults.answers import Given
    from barnabas.broker.faults.armed import Armed
    from barnabas.broker.faults.call import Call
    from barnabas.broker.faults.matching import Partition

Proceed = Callable[[], Answer]
Action = Callable[["Armed", "Call", Proceed], Answer | None]

REQUEST, RESPONSE = "request", "response"


def _fires(armed: Armed, call: Call) -> bool:
    """Whether the fault fires for a request as a whole: one that names a partition which the fault meets."""
    met: list[Partition] = []
    if armed.fault.names_topics:
        met = armed.matcher.chosen(call.partitions)
        if not met:
            return False
    return armed.fires_for(call.request, met)


def error(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Answer with an error: all of the request, or the topics and partitions that the fault names."""
    code = ErrorCode[str(armed.fault.error)]
    if call.key == ApiKey.FETCH and code not in fetching.OF_THE_SESSION:
        chosen = armed.matcher.chosen(call.partitions)
        if not chosen or not armed.fires_for(call.request, chosen):
            return None
        call.services = fetching.fail(call.services, call.request, chosen, code)
        return proceed()
    if armed.fault.names_topics:
        return fail_some(armed, call, proceed, code)
    return call.refuse(code) if _fires(armed, call) else None


def delay(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Hold the request, or its answer, back; its connection waits, no other does, unless a handler is to be held."""
    fault = armed.fault
    if not _fires(armed, call):
        return None
    delay_ms = fault.delay_ms or 0
    if fault.holds_handler:
        armed.removed.wait(delay_ms / 1000)
        return proceed()
    if fault.at == REQUEST:
        return call.later(armed, delay_ms, proceed)
    return call.after(proceed(), lambda given: call.later(armed, delay_ms, lambda: given))


def disconnect(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Close the connection: instead of answering, or before anything is done."""
    if not _fires(armed, call):
        return None
    closing = Close(f"fault {armed.id} disconnects")
    return closing if armed.fault.at == REQUEST else call.after(proceed(), lambda _given: closing)


def blackhole(armed: Armed, call: Call, _proceed: Proceed) -> Answer | None:
    """Neither do nor answer anything, until the fault is removed: then the connection is closed."""
    if not _fires(armed, call):
        return None
    deferred = Deferred()
    armed.hold(call.request, lambda: deferred.complete(Close(f"fault {armed.id}, which held it, is over")))
    return Park(deferred)


def corrupt(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Break the checksum of the first batch that each matching partition of a fetch is given."""
    if call.key != ApiKey.FETCH:
        return None

    def corrupted(given: Given) -> Answer:
        if isinstance(given, Reply):
            met = fetching.corruptible(given.message, armed.matcher.fits)
            if met and armed.fires_for(call.request, [partition for partition, _ in met]):
                for _, data in met:
                    fetching.corrupt(data)
        return given

    return call.after(proceed(), corrupted)


def throttle(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Tell the client to wait, and read nothing from its connection meanwhile (KIP-219)."""
    if not _fires(armed, call):
        return None
    throttle_ms = armed.fault.throttle_ms or 0

    def throttled(given: Given) -> Answer:
        if isinstance(given, Reply):
            if any(field.name == "throttle_time_ms" for field in given.message.FIELDS):
                message: Any = given.message
                message.throttle_time_ms = throttle_ms
            return Reply(given.message, throttle_ms, given.close_after)
        return NoReply(throttle_ms) if isinstance(given, NoReply) else given

    return call.after(proceed(), throttled)


def api_versions(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Be an older release: list its versions and features, and close connections that ask for later ones."""
    release = str(armed.fault.api_versions)
    highest = highest_version(call.key, release)
    if call.key == ApiKey.API_VERSIONS:
        if not armed.fires_for(call.request):
            return None
        is_known = highest is not None and call.version <= highest
        return call.after(proceed(), lambda given: _listed(given, call, release, is_known=is_known))
    if highest is not None and call.version <= highest:
        return None
    if not armed.fires_for(call.request):
        return None
    return Close(f"fault {armed.id}: Kafka {release} has no {call.api.name} v{call.version}")


def _listed(given: Given, call: Call, release: str, *, is_known: bool) -> Answer:
    if not isinstance(given, Reply) or not isinstance(given.message, ApiVersionsResponse):
        return given
    response = given.message
    listed = []
    for row in response.api_keys:
        highest = highest_version(row.api_key, release)
        if highest is not None and highest >= row.min_version:
            row.max_version = min(row.max_version, highest)
            listed.append(row)
    if not is_known:  # as every release answers an ApiVersions that is too new for it (KIP-511)
        header = call.request.header
        call.request.header = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id)
        return Reply(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=listed))
    response.api_keys = listed
    response.supported_features = [f for f in response.supported_features if release_has_feature(release, f.name)]
    response.finalized_features = [f for f in response.finalized_features if release_has_feature(release, f.name)]
    return given


ACTIONS: Final[dict[str, Action]] = {
    "error": error,
    "delay_ms": delay,
    "disconnect": disconnect,
    "blackhole": blackhole,
    "corrupt": corrupt,
    "throttle_ms": throttle,
    "api_versions": api_versions,
}
