"""Requests and responses as JSON, with the field names of Kafka's request log.

Rules
1. Only fields that the version has are shown; tagged ones only if they differ from their default.
2. Names are Kafka's: `timeout_ms` is `timeoutMs`. Records are shown as `recordsSizeInBytes` only. Byte strings are in
   base 64, uuids as Kafka's tools print them.
3. Secrets are shown as `[hidden]`: `SECRET_FIELDS`, and values of configs that are sensitive or unknown.

Threads: any.
Source: RequestConvertToJson and the generated JsonConverter classes (Kafka 4.3).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from barnabas.common.ids import uuid_to_string
from barnabas.config.secrets.sensitive import HIDDEN, is_sensitive
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema import Field, Struct

if TYPE_CHECKING:
    from barnabas.broker.requests.request import Request
    from barnabas.metrics.request_metrics import Times

#: An Envelope holds a whole request, which may set a secret. An incarnation id lets its holder push (push_tags.py).
SECRET_FIELDS: Final = frozenset(
    {
        "auth_bytes",
        "hmac",
        "incarnation_id",
        "request_data",
        "response_data",
        "salt",
        "salted_password",
        "server_key",
        "stored_key",
    }
)
#: Structures that name a config and carry its value.
_CONFIG_STRUCTS: Final = frozenset({"AlterableConfig", "CreatableTopicConfig"})
_TOPIC: Final = 2  # the type of the resource that a CreatableTopicConfig belongs to


@cache
def camel(name: str) -> str:
    """Return Kafka's spelling of a field's name."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def message_json(struct: Struct, version: int, resource_type: int = _TOPIC) -> dict[str, Any]:
    """Return a message as JSON values (rules 1 to 3); `resource_type` is that of the configs in it."""
    node: dict[str, Any] = {}
    resource_type = getattr(struct, "resource_type", resource_type)
    for field in type(struct).FIELDS:
        if not field.is_present(version):
            continue
        value = getattr(struct, field.name)
        if field.is_tagged(version) and value == field.default_value():
            continue
        if field.kind == "records":
            node[camel(field.name) + "SizeInBytes"] = _size(value)
        elif field.name in SECRET_FIELDS:
            node[camel(field.name)] = HIDDEN
        else:
            node[camel(field.name)] = _value_json(field, value, version, resource_type)
    if type(struct).__name__ in _CONFIG_STRUCTS and is_sensitive(resource_type, str(node.get("name"))):
        node["value"] = HIDDEN
    return node


def _value_json(field: Field, value: Any, version: int, resource_type: int) -> Any:
    if value is None:
        return None
    if field.kind == "array":
        if isinstance(field.element, str):
            return [_plain_json(field.element, item) for item in value]
        return [message_json(item, version, resource_type) for item in value]
    if field.kind == "struct":
        return message_json(value, version, resource_type)
    return _plain_json(field.kind, value)


def _plain_json(kind: str, value: Any) -> Any:
    if kind == "uuid":
        return uuid_to_string(value)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    return value


def _size(records: Any) -> int:
    if records is None:
        return 0
    size = getattr(records, "size", None)  # of a region of a file
    return len(records) if size is None or isinstance(records, memoryview) else int(size)


def header_json(request: Request) -> dict[str, Any]:
    """Return the `requestHeader` of the log line."""
    header = request.header
    return {
        "requestApiKey": header.api_key,
        "requestApiVersion": header.api_version,
        "correlationId": header.correlation_id,
        "clientId": header.client_id,
        "requestApiKeyName": ApiKey(header.api_key).name,
    }


def completed_json(request: Request, times_ns: Times, bodies: Mapping[str, Any]) -> dict[str, Any]:
    """Return the log line of a finished request; `bodies` has "request" and "response" if they are known."""
    queue, local, remote, throttle, response_queue, send = [round(max(0, ns) / 1e6, 3) for ns in times_ns]
    context = request.context
    software = None if request.connection is None else request.connection.client_software
    name, version = software or ("unknown", "unknown")
    return {
        "isForwarded": False,
        "requestHeader": header_json(request),
        "request": bodies.get("request", ""),
        "response": bodies.get("response", ""),
        "connection": context.connection_id,
        "totalTimeMs": round(max(0, request.sent_ns - request.received_ns) / 1e6, 3),
        "requestQueueTimeMs": queue,
        "localTimeMs": local,
        "remoteTimeMs": remote,
        "throttleTimeMs": int(throttle),
        "responseQueueTimeMs": response_queue,
        "sendTimeMs": send,
        "securityProtocol": context.security_protocol,
        "principal": context.principal,
        "listener": context.listener_name,
        "clientInformation": {"softwareName": name, "softwareVersion": version},
    }
