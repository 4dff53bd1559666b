"""A broker without sockets or threads whose requests go through the faults: frames in, frames out, manual time."""

from __future__ import annotations

from typing import Any

from barnabas.broker.apis.table import TABLE
from barnabas.broker.faults.armed import Armed
from barnabas.broker.faults.disk import FaultableFileSystem
from barnabas.broker.faults.engine import FaultEngine
from barnabas.broker.faults.links import Links
from barnabas.broker.faults.recorder import Recorder
from barnabas.broker.faults.skewed_clock import SkewedClock
from barnabas.broker.handlers import Dispatcher
from barnabas.broker.request_channel import ResponseQueue
from barnabas.broker.requests.request import Action, Request, RequestContext
from barnabas.broker.requests.request_log import RequestLog
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.faults.definition import Fault
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.schema import Message
from tests.support.broker.broker_rig import BROKER_ID, LISTENER, BrokerRig

CLOSED, SILENT, PENDING = "closed", "silent", "pending"


class FaultRig(BrokerRig):
    """A BrokerRig behind a fault engine, without faults at first."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self.timers = ManualScheduler(self.clock)
        self.links = Links()
        self.disk = FaultableFileSystem(MemoryFileSystem())
        self.wall = SkewedClock()
        self.recorder = Recorder(BROKER_ID, self.clock)
        self.engine = FaultEngine(
            BROKER_ID, self.clock, self.timers, self.recorder, disk=self.disk, links=self.links, wall=self.wall
        )
        self.engine.topic_name = lambda topic_id: self.cache.snapshot.topic_name(topic_id)
        log = RequestLog(RequestMetrics(self.registry))
        self.dispatcher = Dispatcher(self.engine.wrap(TABLE), self.services, log, self.clock)
        self.responses = ResponseQueue(lambda: None)
        self.answered: list[Request] = []

    def add(self, **fault: Any) -> Armed:
        """Add a fault."""
        return self.engine.add(Fault(**fault))

    def send(self, message: Message, version: int, *, client_id: str = "tester", connection: str = "c-1") -> Sent:
        """Send a request, as a frame."""
        frame = encode_request(RequestHeader(message.API_KEY, version, 7, client_id), message)
        return self.send_frame(bytearray(frame[4:]), connection)

    def send_frame(self, frame: bytearray, connection: str = "c-1") -> Sent:
        """Send a frame, without its size."""
        context = RequestContext(LISTENER, LISTENER, "127.0.0.1", 5, connection)
        request = Request(None, self, context, memoryview(frame))
        request.received_ns = request.dequeued_ns = self.clock.monotonic_ns()
        self.dispatcher.handle(request, [])
        return Sent(self, request)

    def ask(self, message: Message, version: int, **about: Any) -> Any:
        """Return the client's answer so far: a response, CLOSED, SILENT or PENDING."""
        return self.send(message, version, **about).answer()

    def pass_ms(self, ms: int) -> None:
        """Advance the time, and run due tasks."""
        self.advance_ms(ms)
        self.timers.run_due()


class Sent:
    """A request that was sent."""

    def __init__(self, rig: FaultRig, request: Request) -> None:
        self._rig = rig
        self.request = request

    def answer(self) -> Any:
        """Return the answer so far: a response, CLOSED, SILENT or PENDING."""
        self._rig.answered += self._rig.responses.take_all()
        if self.request not in self._rig.answered:
            return PENDING
        if self.request.parts is None:
            return CLOSED if self.request.action is Action.CLOSE else SILENT
        parts = [part if isinstance(part, (bytes, bytearray)) else part.read() for part in self.request.parts]
        frame, header = b"".join(parts), self.request.header
        version = header.api_version
        _, offset = decode_response_header(frame, header.api_key, version, 4)
        return response_class(header.api_key).decode(frame, version, offset)


def errors_of(response: Any, version: int) -> dict[tuple[str, int], int]:
    """Return the error codes of a Produce or Fetch response by topic and partition."""
    found = {}
    for topic in response.responses:
        name = getattr(topic, "name", None) or getattr(topic, "topic", "") or topic.topic_id.strip(b".\0").decode()
        for data in getattr(topic, "partition_responses", None) or topic.partitions:
            index = data.index if hasattr(data, "index") else data.partition_index
            found[name, index] = data.error_code
    return found
