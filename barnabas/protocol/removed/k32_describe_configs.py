"""DescribeConfigs (key 32): v0, which only said whether a value is the default."""

from __future__ import annotations

from barnabas.protocol.schema import Response, Struct, array, bool_, int8, int16, int32, string


class DescribeConfigsResourceResult(Struct):
    name: str = string("0")
    value: str | None = string("0", nullable="0")
    read_only: bool = bool_("0")
    is_default: bool = bool_("0")
    is_sensitive: bool = bool_("0")


class DescribeConfigsResult(Struct):
    error_code: int = int16("0")
    error_message: str | None = string("0", nullable="0")
    resource_type: int = int8("0")
    resource_name: str = string("0")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0")


class DescribeConfigsResponse(Response, key=32, versions="0-0"):
    throttle_time_ms: int = int32("0")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0")
