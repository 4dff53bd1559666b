"""Our codec and our error responses against Apache Kafka's own code (WireCheck.java).

Kafka reads what we write and writes the same bytes again, for every message and version of 4.3.1, records of the logs
and unknown tagged fields included; and its `getErrorResponse` gives byte for byte our `error_response`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.k00_produce import ProduceRequest
from barnabas.protocol.messages.k27_write_txn_markers import WriteTxnMarkersRequest
from barnabas.protocol.messages.k29_describe_acls import DescribeAclsRequest
from barnabas.protocol.schema import Message, Request, Response
from tests.support import messages as facts
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import SMALL_JVM

SOURCE = Path(__file__).with_name("WireCheck.java")
SAMPLES = 4
TIMEOUT_S = 120
REMOVED_IN_4 = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
CODES = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR)

PACKAGES = {
    "data": "org.apache.kafka.common.message",
    "quorum_state": "org.apache.kafka.raft.generated",
    "metadata_records": "org.apache.kafka.common.metadata",
    "coordinator_records": "org.apache.kafka.coordinator.group.generated",
    "transactions": "org.apache.kafka.coordinator.transaction.generated",
    "share_state": "org.apache.kafka.coordinator.share.generated",
}


def java_name(message_class: type[Message]) -> str:
    """The class that Kafka generates for this message."""
    if issubclass(message_class, (Request, Response)):
        return f"org.apache.kafka.common.message.{message_class.__name__}Data"
    _, _, package, module = message_class.__module__.split(".")
    return f"{PACKAGES.get(module, PACKAGES[package])}.{message_class.__name__}"


def ask(runtime: KafkaRuntime, questions: list[str]) -> list[str]:
    """Kafka's answers."""
    command = [runtime.java, *SMALL_JVM, "-cp", f"{runtime.directory / 'jars'}/*", str(SOURCE)]
    done = subprocess.run(
        command, input="\n".join(questions), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions), done.stderr[-2000:]
    return answers


def test_kafka_reads_and_writes_our_bytes(apache_runtime: KafkaRuntime) -> None:
    asked: list[tuple[str, int, str]] = []
    for message_class in facts.all_classes():
        if message_class.API_KEY in REMOVED_IN_4:
            continue
        for version in facts.versions(message_class):
            asked += [
                (java_name(message_class), version, message.encode(version).hex())
                for message in facts.samples(message_class, version, SAMPLES)
            ]
    answers = ask(apache_runtime, [f"message {name} {version} ={wire}" for name, version, wire in asked])
    wrong = [
        (name, version, wire, answer)
        for (name, version, wire), answer in zip(asked, answers, strict=True)
        if answer != f"={wire}"
    ]
    assert wrong == []


def error_questions() -> list[tuple[Request, int, ErrorCode]]:
    """Requests of each API and version that failed."""
    asked: list[tuple[Any, int, ErrorCode]] = []
    for key in ROWS:
        if key in REMOVED_IN_4:
            continue
        for version in facts.versions(request_class(key)):
            for message in facts.samples(request_class(key), version, SAMPLES, tame=True, tags=False):
                make_acceptable(message)
                asked += [(message, version, code) for code in CODES]
    return asked


def make_acceptable(request: Any) -> None:
    """Replace the values for which Kafka's request classes refuse a request before they could answer it."""
    if isinstance(request, ProduceRequest):
        for partition in (partition for topic in request.topic_data for partition in topic.partition_data):
            partition.records = b""
    elif isinstance(request, DescribeAclsRequest):
        request.resource_type_filter = request.operation = request.permission_type = 2
        request.pattern_type_filter = 3
    elif isinstance(request, WriteTxnMarkersRequest):
        for producer_id, marker in enumerate(request.markers):
            marker.producer_id = producer_id  # Kafka answers a producer once


def without_words(value: Any) -> Any:
    """The message with its error texts reduced to whether there is one (the words are ours), its lists sorted."""
    for field in value.FIELDS:
        inner = getattr(value, field.name)
        if field.name == "error_message" and inner is not None:
            setattr(value, field.name, "some text")
        elif field.kind == "array" and isinstance(field.element, type) and inner:
            # Kafka collects some answers in hash maps, so that their order means nothing.
            setattr(value, field.name, sorted((without_words(item) for item in inner), key=repr))
    return value


def same_but_for_words(response: type[Message], version: int, theirs: bytes, ours: bytes) -> bool:
    return without_words(response.decode(theirs, version)) == without_words(response.decode(ours, version))


def test_kafka_gives_our_error_responses(apache_runtime: KafkaRuntime) -> None:
    asked = error_questions()
    questions = [
        f"error {request.API_KEY} {version} ={request.encode(version).hex()} {code.value}"
        for request, version, code in asked
    ]
    answers = ask(apache_runtime, questions)
    wrong = []
    for (request, version, code), answer in zip(asked, answers, strict=True):
        if answer == "-":
            assert request.API_KEY == ApiKey.PRODUCE
            continue
        ours = error_response(request, version, code)
        wire = ours.encode(version)
        theirs = bytes.fromhex(answer.removeprefix("=")) if answer.startswith("=") else answer
        if theirs == wire or (isinstance(theirs, bytes) and same_but_for_words(type(ours), version, theirs, wire)):
            continue
        wrong.append((request, version, code, theirs, wire))
    assert wrong == []
