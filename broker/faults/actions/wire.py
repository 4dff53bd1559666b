"""The effect of each fault on a request: one function each, in `ACTIONS`.

Each matching request runs through the actions of its faults, in the order in which the faults were added. An action
that does not fire returns None, and the next one follows. An action that fires returns the answer. It calls `proceed()`
if, and when, the next faults and the API shall handle the request.

Rules
1. Nothing here waits, except for `holds_handler`: a later step is a parked request and a timer.
2. A fault releases everything that it holds when it is removed.
3. Only the response is changed. No log, session or cache contains an effect of a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.faults.actions import fetching
from barnabas.broker.faults.actions.partitions import fail_some
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Close, Ending, NoReply, Reply
from barnabas.broker.requests.parking import Answer, Park
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.data.releases import highest_level, highest_version
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k18_api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from barnabas.broker.faults.actions.call import Call
    from barnabas.broker.faults.armed import Armed
    from barnabas.broker.faults.matching import Partition

Proceed = Callable[[], Answer]
Action = Callable[["Armed", "Call", Proceed], Answer | None]

KIP_511 = 3
REQUEST, RESPONSE = "request", "response"


def _fires(armed: Armed, call: Call) -> bool:
    """Whether the fault fires for a whole request, which must name a matching partition if the fault does."""
    met: list[Partition] = []
    if armed.fault.names_topics:
        met = armed.matcher.chosen(call.partitions)
        if not met:
            return False
    return armed.fires_for(call.request, met)


def error(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Answer the whole request, or the topics and partitions of the fault, with an error."""
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
    """Delay the request or its response. Only its connection waits, unless the fault holds the handler."""
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
    """Close the connection: instead of answering, or before the request is handled."""
    if not _fires(armed, call):
        return None
    closing = Close(f"fault {armed.id} disconnects")
    return closing if armed.fault.at == REQUEST else call.after(proceed(), lambda _given: closing)


def blackhole(armed: Armed, call: Call, _proceed: Proceed) -> Answer | None:
    """Neither handle nor answer the request; close the connection when the fault is removed."""
    if not _fires(armed, call):
        return None
    deferred = Deferred()
    armed.hold(call.request, lambda: deferred.complete(Close(f"fault {armed.id}, which held its request, was removed")))
    return Park(deferred)


def corrupt(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Break the checksum of the first batch of each matching partition in a fetch response."""
    if call.key != ApiKey.FETCH:
        return None

    def corrupted(given: Ending) -> Answer:
        if isinstance(given, Reply):
            met = fetching.corruptible(given.message, armed.matcher.fits)
            if met and armed.fires_for(call.request, [partition for partition, _ in met]):
                for _, data in met:
                    fetching.corrupt(data)
        return given

    return call.after(proceed(), corrupted)


def throttle(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Send a throttle time to the client, and do not read from its connection for that time (KIP-219)."""
    if not _fires(armed, call):
        return None
    throttle_ms = armed.fault.throttle_ms or 0

    def throttled(given: Ending) -> Answer:
        if isinstance(given, Reply):
            if any(field.name == "throttle_time_ms" for field in given.message.FIELDS):
                message: Any = given.message
                message.throttle_time_ms = throttle_ms
            return Reply(given.message, throttle_ms, given.close_after)
        return NoReply(throttle_ms) if isinstance(given, NoReply) else given

    return call.after(proceed(), throttled)


def api_versions(armed: Armed, call: Call, proceed: Proceed) -> Answer | None:
    """Pretend to be an older release: list its versions and features, and close connections that use later ones."""
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


def _listed(given: Ending, call: Call, release: str, *, is_known: bool) -> Answer:
    if not isinstance(given, Reply) or not isinstance(given.message, ApiVersionsResponse):
        return given
    response = given.message
    listed = []
    for row in response.api_keys:
        highest = highest_version(row.api_key, release)
        if highest is not None and highest >= row.min_version:
            row.max_version = min(row.max_version, highest)
            listed.append(row)
    if not is_known:  # since v3, the error comes with the versions of ApiVersions (KIP-511)
        listed = [row for row in listed if row.api_key == ApiKey.API_VERSIONS and row.max_version >= KIP_511]
        header = call.request.header
        call.request.header = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id)
        return Reply(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=listed))
    response.api_keys = listed
    response.supported_features = [f for f in response.supported_features if highest_level(f.name, release) is not None]
    response.finalized_features = [f for f in response.finalized_features if highest_level(f.name, release) is not None]
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
