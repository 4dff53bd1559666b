"""The package of messages: classes by key."""

from __future__ import annotations

import pytest

from barnabas.protocol.messages import module_name, request_class, response_class


def test_classes_by_key() -> None:
    assert request_class(0).__name__ == "ProduceRequest"
    assert response_class(75).__name__ == "DescribeTopicPartitionsResponse"
    assert module_name(9) == "barnabas.protocol.messages.k09_offset_fetch"


@pytest.mark.parametrize("key", [-1, 93, 32767])
def test_unknown_keys(key: int) -> None:
    with pytest.raises(KeyError, match=f"no API has the key {key}"):
        request_class(key)
