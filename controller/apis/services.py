"""The components that the controller's APIs may use, and the way of a request to the event thread and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Outcome, Reply
from barnabas.broker.requests.parking import Answer, Park
from barnabas.controller.decision import Charge, no_charge
from barnabas.controller.event_loop import NotControllerError
from barnabas.controller.forwarded import once
from barnabas.controller.forwarded.once import Asked, Attempts
from barnabas.controller.raft.handlers.voter_changes import STATIC_VOTERS, another_cluster
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import response_class
from barnabas.protocol.push_tags import cluster_id_of

if TYPE_CHECKING:
    from barnabas.broker.quotas.mutations import MutationQuotas
    from barnabas.broker.requests.api import Table
    from barnabas.broker.requests.request import Request
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.controller.decision import Decision, View
    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.controller.raft.client.interface import RaftClient
    from barnabas.metrics.registry import Registry
    from barnabas.protocol.schema import Message

R = TypeVar("R")
M = TypeVar("M", bound="Message")


@dataclass(slots=True)
class ControllerServices:
    """The components that an API may use. Every field is fixed before start."""

    config: Config
    cluster_id: str
    clock: Clock
    registry: Registry
    controller: QuorumController
    endpoint: tuple[int, str, int]  # (node id, host, port) of this controller
    table: Table
    mutations: MutationQuotas
    raft: RaftClient | None = None  # this controller's replica; None without a quorum
    attempts: Attempts = field(default_factory=Attempts)  # owner: event thread; of forwarded requests

    def complete_all_delayed(self, keys: Any) -> None:
        """Do nothing: no request waits for a key here, since the event thread completes each one."""


class ControllerReply(Deferred):
    """The result of an event: a response, or an error that becomes the API's error response."""

    __slots__ = ("_error",)

    def __init__(self) -> None:
        super().__init__()
        # Set by the event thread before completion. Why not the error: its traceback would refer back to this object.
        self._error: tuple[ErrorCode, str] | None = None

    def fail(self, error: ApiError) -> None:
        """Complete with an error of the whole request."""
        self._error = error.code, error.message
        self.force_complete()

    def response(self) -> Outcome:
        """Return the response (see Deferred), or raise the error."""
        if self._error is not None:
            raise ApiError(*self._error)
        return super().response()


def check_cluster(
    services: ControllerServices, request: Request, refusal: ErrorCode = ErrorCode.NOT_CONTROLLER
) -> None:
    """Refuse a request of a node of another cluster (push_tags.py, tag 10010), by default so that it asks elsewhere."""
    sender = cluster_id_of(request.message)
    if sender is not None and sender != services.cluster_id:
        raise ApiError(refusal, f"This controller belongs to cluster {services.cluster_id}.")


def same(response: Message) -> Message:
    """Return the argument: for decisions whose result is the response."""
    return response


def decide_later(
    services: ControllerServices,
    name: str,
    decide: Callable[[View], Decision[R]],
    answer: Callable[[R], Outcome],
    timeout_ms: int | None = None,
) -> Park:
    """Submit a decision to the event thread; `answer(result)` builds the response from its result."""
    reply = ControllerReply()
    services.controller.submit(name, decide, lambda result: reply.complete(answer(result)), reply.fail, timeout_ms)
    return Park(reply)


def decide_once(
    services: ControllerServices,
    request: Request,
    name: str,
    decide: Callable[[View], Decision[R]],
    answer: Callable[[R], Message],
    timeout_ms: int | None = None,
    *,
    finish: Callable[[Message], Outcome] = same,
    keeps_answer: bool = True,
) -> Park:
    """Submit a client's change; one that a broker forwards again is not made again (controller/forwarded/once.py).

    `answer(result)` builds the response, before the commit. `finish(response)` says after it what is sent.
    """
    attempt = request.context.attempt
    if attempt is None:
        return decide_later(services, name, decide, lambda result: finish(answer(result)), timeout_ms)
    asked = Asked(attempt, request.context.checksum, request.header.api_key, request.version)

    def decide_attempt(view: View) -> Decision[Message]:
        if services.controller.epoch != request.context.epoch:  # once.py, rule 5
            raise NotControllerError(once.EARLIER)
        services.attempts.check(attempt)
        return once.decide_once(view, asked, decide, answer, keeps_answer=keeps_answer)

    return decide_later(services, name, decide_attempt, finish, timeout_ms)


def decide_within_quota(
    services: ControllerServices,
    request: Request,
    name: str,
    decide: Callable[[View, Charge], Decision[M]],
    *,
    strict_since: int,
) -> Park:
    """Submit a decision that creates or deletes partitions, which are charged to the client's quota (KIP-599).

    From API version `strict_since` on, the quota refuses topics; below, the client waits after its response.
    """
    services.mutations.update(services.controller.committed_image.security.quotas)
    quota = services.mutations.quota_for(request, strict_since)

    def throttled(response: Any) -> Outcome:
        if quota is None:
            return same(response)
        request.throttle = throttle = quota.throttle()
        response.throttle_time_ms = throttle.ms
        return Reply(response, throttle.ms)

    charge = no_charge if quota is None else quota.record
    timeout_ms = request.message.timeout_ms
    return decide_once(services, request, name, lambda view: decide(view, charge), same, timeout_ms, finish=throttled)


def ask_quorum(services: ControllerServices, request: Request) -> Park:
    """Hand a request to this controller's replica, which answers now or later. Raises UNSUPPORTED_VERSION if alone."""
    if services.raft is None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "This controller has no quorum.")
    reply = Deferred()
    version = request.version

    def complete(response: Message) -> None:
        reply.complete(_of_version(response, version))

    services.raft.handle_request(request.message, complete)
    return Park(reply)


def _of_version(response: Any, version: int) -> Message:
    """Return a response without the leader's address in versions that do not have it, and could not be encoded."""
    field = next((field for field in response.FIELDS if field.name == "node_endpoints"), None)
    if field is not None and not field.is_present(version):
        response.node_endpoints = []
    message: Message = response
    return message


def change_voters(services: ControllerServices, request: Request) -> Answer:
    """Hand a change of the voters to this controller's replica; refuse it if this controller is alone."""
    if services.raft is not None:
        return ask_quorum(services, request)
    response: Any = response_class(request.header.api_key)
    if request.message.cluster_id not in (None, services.cluster_id):
        message = another_cluster(services.cluster_id)
        return Reply(response(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=message))
    return Reply(response(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=STATIC_VOTERS))
