"""Random requests: the event loop lives, each response can be encoded, and a replay of the log gives the same image.

The requests come from a seeded generator: known and unknown names, names of the maximum length, negative and excessive
counts, duplicates.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.channels.forwarding import encode_principal
from barnabas.broker.quotas.mutations import MutationQuotas
from barnabas.broker.requests.answers import Close, Reply
from barnabas.broker.requests.parking import Park
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.config.checks import STANDARD_AUTHORIZER
from barnabas.controller.apis.services import ControllerServices
from barnabas.controller.apis.table import TABLE
from barnabas.controller.image import Image
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.fields import Field
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request, response_parts
from barnabas.protocol.messages import k44_incremental_alter_configs as configs_wire
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.push_tags import Attempt, set_attempt, set_token_id
from tests.controller.rig import CLUSTER_ID, Rig
from tests.support.broker.parked import Waiting

SIZE_PREFIX = 4
LONGEST = "x" * 0x7FFF
TEXTS = [
    *("t", "u", "v.w", "v_w", "", ".", "x" * 249, LONGEST, "ü" * 0x3FFF, "\x00", "__cluster_metadata", CLUSTER_ID),
    *("0", "1", "100", "-1", "2147483648", "٣", "1_0", "true", "delete", "compact,delete", "a," * 9000),
    *("cleanup.policy", "retention.ms", "segment.bytes", "min.insync.replicas", "unclean.leader.election.enable"),
    *("log.cleaner.threads", "metadata.version", "transaction.version", "CONTROLLER", "interval.ms"),
    *("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"),
]
LIKELY = {
    "resource_name": ("t", "u", "0", "1"),
    "topic": ("t", "u"),
    "cluster_id": (CLUSTER_ID,),
    "feature": ("transaction.version", "group.version"),
    "entity_type": ("user", "client-id", "ip"),
    "key": ("producer_byte_rate", "request_percentage", "connection_creation_rate"),
    "principal_type": ("User",),
}
SMALL = (-1, 0, 1, 2, 3, 4, 8, 16, 32)
#: What all requests of security metadata need.
SECURITY = {
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "allow_everyone_if_no_acl_found": "true",
    "delegation_token_secret_key": "secret",
}
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


class Asker:
    """A rig, its APIs, and requests of every kind."""

    def __init__(self, seed: int, rig: Rig | None = None) -> None:
        self.random = random.Random(seed)
        self.rig = rig or Rig(seed=seed, **SECURITY)
        if self.rig.controller.is_active:
            self.mend()
        self.services = ControllerServices(
            config=self.rig.config,
            cluster_id=CLUSTER_ID,
            clock=self.rig.clock,
            registry=self.rig.registry,
            controller=self.rig.controller,
            endpoint=(100, "localhost", 9093),
            table=TABLE,
            mutations=MutationQuotas.of(self.rig.config, self.rig.clock),
        )
        self.context = RequestContext("CONTROLLER", "PLAINTEXT", "127.0.0.1", 1, "c", "User:ANONYMOUS")

    def mend(self) -> None:
        """Have brokers and topics again, so that requests find something."""
        for broker_id in range(3):
            if not self.rig.image.is_active(broker_id):
                self.rig.join(broker_id)
        for name in ("t", "u"):
            if self.rig.image.topic(name) is None:
                self.rig.create(name, [[0, 1], [1, 2]], cleanup_policy="compact")

    def value(self, field: Field, kind: Any, version: int) -> Any:
        rng = self.random
        if isinstance(kind, type):
            return self.struct(kind, version)
        if kind == "bool":
            return rng.random() < 0.3
        if kind in BITS:
            edge = 1 << BITS[kind]
            if "epoch" in field.name and rng.random() < 0.8 and self.rig.image.brokers:
                return rng.choice([b.epoch for b in self.rig.image.brokers.values()] + [0]) % edge
            return rng.choice(SMALL) if rng.random() < 0.85 else rng.choice((-edge, edge - 1, min(edge - 1, 10_000)))
        if kind == "uint16":
            return rng.choice((0, 9000, 65_535))
        if kind == "float64":
            return 1.5
        if kind == "uuid":
            return rng.choice([bytes(16), bytes(15) + b"\1", *self.rig.image.topics])
        if kind == "string":
            return rng.choice(LIKELY.get(field.name, TEXTS) if rng.random() < 0.6 else TEXTS)
        return rng.randbytes(rng.choice((0, 1, 40)))

    def field(self, field: Field, version: int) -> Any:
        if field.is_nullable(version) and self.random.random() < 0.2:
            return None
        if field.kind != "array":
            return self.value(field, field.element if field.kind == "struct" else field.kind, version)
        items = [self.value(field, field.element, version) for _ in range(self.random.choice((0, 1, 1, 1, 2, 3)))]
        return items + items[:1] if self.random.random() < 0.1 else items

    def struct(self, cls: Any, version: int) -> Any:
        return cls(**{f.name: self.field(f, version) for f in cls.FIELDS if f.is_present(version)})

    def request(self, key: int) -> tuple[RequestHeader, Any]:
        low, high = TABLE[key].versions
        version = self.random.randint(low, high)
        message = self.struct(request_class(key), version)
        decoded = type(message).decode(message.encode(version), version)  # as it comes from the wire
        return RequestHeader(key, version, self.random.randrange(1 << 31), "c"), decoded

    def ask(self, header: RequestHeader, message: Any) -> Any:
        """The answer, as its receiver reads it; a Close if there is none."""
        request = Request.for_message(header, message, self.context)
        request.api = TABLE[header.api_key]
        outcome = self.outcome(request)
        if isinstance(outcome, Close):
            return outcome
        answer = outcome.message if isinstance(outcome, Reply) else outcome
        frame = b"".join(bytes(part) for part in response_parts(header, answer))[SIZE_PREFIX:]
        _, offset = decode_response_header(frame, header.api_key, header.api_version)
        return response_class(header.api_key).decode(frame, header.api_version, offset)

    def outcome(self, request: Request) -> Any:
        try:
            given = TABLE[request.header.api_key].handle(self.services, request)
            if not isinstance(given, Park):
                return given
            waiting = Waiting(request)
            waiting.wait(given)
            assert self.rig.controller.loop.step()
            assert waiting.response is not None
            if isinstance(waiting.response, ApiError):
                raise waiting.response
            return waiting.response
        except ApiError as error:
            return error_response(request.message, request.header.api_version, error.code, error.message)

    def forward(
        self, header: RequestHeader, message: Any, attempt: Attempt | None = None, token_id: bytes | None = None
    ) -> Any:
        """The same by way of a broker; `attempt` says which request of the broker it is."""
        envelope = self.envelope(header, message, attempt)
        if token_id is not None:
            set_token_id(envelope.message, token_id)
        answer = self.ask(envelope.header, envelope.message)
        assert answer.error_code == ErrorCode.NONE
        _, offset = decode_response_header(answer.response_data, header.api_key, header.api_version)
        return response_class(header.api_key).decode(answer.response_data, header.api_version, offset)

    def envelope(self, header: RequestHeader, message: Any, attempt: Attempt | None = None) -> Request:
        """A request in an envelope."""
        frame = encode_request(header, message)[SIZE_PREFIX:]
        envelope = EnvelopeRequest(
            request_data=bytes(frame), request_principal=encode_principal("User:a"), client_host_address=bytes(4)
        )
        if attempt is not None:
            set_attempt(envelope, attempt)
        request = Request.for_message(RequestHeader(58, 0, 1, "0"), envelope, self.context)
        request.api = TABLE[58]
        return request


def contents(image: Image) -> tuple[object, ...]:
    return image.brokers, image.topics, image.configs, image.features, image.next_producer_id, image.security


@pytest.fixture
def no_mistakes(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.ERROR, "barnabas")
    yield
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.usefixtures("no_mistakes")
@pytest.mark.parametrize("seed", range(6))
def test_any_request_leaves_the_loop_alive_and_the_log_replayable(seed: int) -> None:
    asker = Asker(seed)
    keys = sorted(TABLE.keys() - {58})
    for round_number in range(300):
        asker.mend()
        header, message = asker.request(keys[round_number % len(keys)])
        if TABLE[header.api_key].is_forwarded and asker.random.random() < 0.5:
            asker.forward(header, message)
        else:
            asker.ask(header, message)
        asker.rig.image.invariants()
    assert contents(asker.rig.restart().image) == contents(asker.rig.image)


@pytest.mark.usefixtures("no_mistakes")
def test_a_value_that_grows_too_long_is_refused_without_effect() -> None:
    asker = Asker(0)
    header = RequestHeader(44, 1, 1, "c")

    def append(value: str) -> tuple[int, str]:
        change = configs_wire.AlterableConfig(
            name="leader.replication.throttled.replicas", config_operation=2, value=value
        )
        resource = configs_wire.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        request = configs_wire.IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = asker.ask(header, request).responses
        return answer.error_code, answer.error_message

    assert append(",".join(f"{n}:0" for n in range(4000)))[0] == ErrorCode.NONE
    before = contents(asker.rig.image)
    code, message = append(",".join(f"{n}:1" for n in range(4000)))
    assert code == ErrorCode.INVALID_CONFIG
    assert message.endswith("exceeds the maximum value size of 32767 bytes.")
    assert contents(asker.rig.image) == before


@pytest.mark.usefixtures("no_mistakes")
def test_a_message_that_quotes_a_long_name_is_cut() -> None:
    asker = Asker(0)
    header = RequestHeader(44, 1, 1, "c")
    resource = configs_wire.AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[configs_wire.AlterableConfig(name=LONGEST, config_operation=2, value="1")],
    )
    (answer,) = asker.forward(header, configs_wire.IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert answer.error_message.endswith("xxx…")
