"""The request that travels from a network processor through a request handler and back.

Threads: a `Request` belongs to one thread at a time: the one that took it from a queue. The live page reads its fields
meanwhile. `RequestContext` is immutable.
Source: Kafka's RequestChannel.Request, RequestContext (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.common import net

if TYPE_CHECKING:
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.quotas.throttle import Throttle
    from barnabas.common.pages.live_shape import Reason
    from barnabas.protocol.headers import RequestHeader
    from barnabas.protocol.push_tags import Attempt
    from barnabas.protocol.schema import Message, Part

ANONYMOUS: Final = "User:ANONYMOUS"


# What a request refers to. Protocols, since each of these modules imports this one.


class ApiRow(Protocol):
    """The row of the API table that serves a request (`Api` in broker/requests/api.py)."""

    @property
    def key(self) -> int:
        """The API key."""

    @property
    def name(self) -> str:
        """The API's name, as Kafka spells it."""

    @property
    def error_response(self) -> Callable[[Message, int, int, str | None], Message] | None:
        """Builds the response to an error of the whole request; None derives it from the schema."""

    @property
    def nodes_only(self) -> Callable[[Request], bool] | None:
        """Tells whether only brokers and controllers may send this request; None: clients may send every one."""


class ClientConnection(Protocol):
    """The connection that a request came from (`Connection` in broker/network/connection.py)."""

    access: Access | None  # of its last request, for the next one
    pooled_bytes: int  # what its requests hold of the memory pool; 0 without a pool
    client_software: tuple[str, str] | None  # name and version, from ApiVersions
    is_closed: bool  # set before `on_closed` is called
    on_closed: dict[str, Callable[[], None]]  # by component; its processor calls them when it closes, handlers set them

    def release_memory(self) -> None:
        """Give back the memory that its requests hold."""


class Responses(Protocol):
    """Where a response is queued (`ResponseQueue` in broker/request_channel.py)."""

    def put(self, item: Request) -> None:
        """Add an answered request, and wake the processor if it sleeps."""

    def add(self, item: Request) -> bool:
        """Add an answered request; true when the caller must call `wake`, since no other thread will."""

    def wake(self) -> None:
        """Wake the processor."""


class NetworkProcessor(Protocol):
    """The network thread that read a request and sends its response (`Processor` in broker/processors.py)."""

    @property
    def responses(self) -> Responses:
        """The processor's response queue."""


class Wait(Protocol):
    """What a parked request waits for (`DelayedOperation` in broker/purgatory.py)."""

    @property
    def is_watched(self) -> bool:
        """Whether a purgatory watches the operation under a key."""

    def waits_for(self) -> list[Reason]:
        """Return what is missing now, for the live page."""


@dataclass(slots=True, frozen=True)
class RequestContext:
    """Where a request came from and on whose behalf; shared by all requests of a connection."""

    listener_name: str
    security_protocol: str
    client_address: str
    client_port: int
    connection_id: str
    principal: str = ANONYMOUS
    is_for_clients: bool = False  # about the listener; brokers and controllers use another one
    is_token_authenticated: bool = False  # by a delegation token, which may not be used to get or change tokens
    token_id: bytes | None = None  # of the delegation token to create, if a broker that forwards it has drawn one
    attempt: Attempt | None = None  # which request of a broker it is, if one has forwarded it
    checksum: int = 0  # of a forwarded request and its principal
    epoch: int = -1  # of the controller when a forwarded request came

    @property
    def is_forwarded(self) -> bool:
        """Whether a broker has forwarded the request to this controller."""
        return self.epoch != -1

    def with_principal(self, principal: str) -> RequestContext:
        """Return the same of a client that has authenticated."""
        return RequestContext(
            self.listener_name,
            self.security_protocol,
            self.client_address,
            self.client_port,
            self.connection_id,
            principal,
            self.is_for_clients,
        )


class Action(IntEnum):
    """What the processor does with an answered request."""

    SEND = 0
    NO_OP = 1
    CLOSE = 2
    SEND_AND_CLOSE = 3


_NO_OP: Final = Action.NO_OP  # Why: looked up for every request
CLOSING: Final = (Action.CLOSE, Action.SEND_AND_CLOSE)  # the connection is closed after them


class Request:
    """One request on its way. Every time is in nanoseconds of the monotonic clock, 0 while unknown."""

    __slots__ = (
        "access",
        "action",
        "api",
        "api_local_done_ns",
        "api_remote_done_ns",
        "api_throttle_ms",
        "bodies",
        "buffer",
        "client_software_name",
        "client_software_version",
        "connection",
        "context",
        "dequeued_ns",
        "error_codes",
        "following",
        "goes_on",
        "header",
        "header_bytes",
        "is_follower",
        "message",
        "moved",
        "ok_count",
        "operation",
        "parts",
        "processor",
        "received_ns",
        "response_dequeued_ns",
        "response_size_bytes",
        "sent_ns",
        "size_bytes",
        "throttle",
    )

    header: RequestHeader  # set by the handler before the API sees the request
    message: Any  # the decoded body, likewise

    def __init__(
        self,
        connection: ClientConnection | None,
        processor: NetworkProcessor | None,
        context: RequestContext,
        buffer: memoryview,
    ) -> None:
        # Set by the processor. None for a request without a frame of its own (`for_message`).
        self.connection: ClientConnection | None = connection
        self.processor: NetworkProcessor | None = processor
        self.context = context
        self.buffer: memoryview | None = buffer  # the frame without its size, writable; dropped when answered
        self.size_bytes = len(buffer)
        self.header_bytes = 0  # the header's share of size_bytes; set by the handler
        self.received_ns = 0  # the frame was complete
        self.following: Request | None = None  # the connection's next request, if both came in one read
        # Set by the handler and the API.
        self.api: ApiRow | None = None
        self.access: Access | None = None  # what the client may do; None without an authorizer
        self.message = None
        self.moved: list[Hashable] = []  # keys whose purgatories the handler checks once the API has returned
        self.is_follower: bool | None = None  # of a Fetch: whether a follower sent it (Kafka counts those apart)
        self.bodies: dict[str, Any] | None = None  # request and response as JSON values, if the request log wants them
        self.operation: Wait | None = None  # what the request waits for while it is parked
        self.ok_count = 0  # how many items of the answer carry no error
        self.error_codes: list[int] | None = None  # of the answer, if the API knows them; else they are looked up
        self.client_software_name = ""  # from ApiVersions
        self.client_software_version = ""
        self.dequeued_ns = 0  # a handler took the request
        self.api_local_done_ns = 0  # the API returned
        self.api_remote_done_ns = 0  # the answer was known
        # Set by the thread that answers; read by the processor.
        self.throttle: Throttle | None = None  # what quotas decided; None: they were not asked
        self.goes_on = False  # the answering handler carries out `following` too; else the processor queues that
        self.action = _NO_OP
        self.parts: list[Part] | None = None  # what to send, size included
        self.response_size_bytes = 0
        self.api_throttle_ms = 0  # how long the connection stays muted after the answer
        self.response_dequeued_ns = 0  # the processor took the answer
        self.sent_ns = 0  # its last byte was given to the kernel

    @classmethod
    def for_message(cls, header: RequestHeader, message: Message, context: RequestContext) -> Request:
        """Make a request that did not come in a frame of its own (the inner one of an Envelope, tests)."""
        request = cls(None, None, context, memoryview(b""))
        request.header = header
        request.message = message
        return request

    def run(self) -> list[Request]:
        """Return the request and all that follow it, in order."""
        requests = [self]
        while (following := requests[-1].following) is not None:
            requests.append(following)
        return requests

    @property
    def listener_name(self) -> str:
        """The name of the listener that the client connected to."""
        return self.context.listener_name

    @property
    def security_protocol(self) -> str:
        """The listener's security protocol."""
        return self.context.security_protocol

    @property
    def client_address(self) -> str:
        """The client's IP address."""
        return self.context.client_address

    @property
    def client_host(self) -> str:
        """The client's IP address as groups keep it and describe their members."""
        return net.java_address(self.context.client_address)

    @property
    def connection_id(self) -> str:
        """The connection's name in log lines."""
        return self.context.connection_id

    @property
    def principal(self) -> str:
        """The principal of the client, as type:name."""
        return self.context.principal

    @property
    def client_id(self) -> str | None:
        """The client id of the header."""
        return self.header.client_id

    @property
    def version(self) -> int:
        """The API version of the header."""
        return self.header.api_version
