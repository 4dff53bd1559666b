"""Reading subscriptions; the rest of the members is tested through the group."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.classic.consumer_protocol import subscribed_topics


def test_subscription_of_any_version_begins_like_version_0() -> None:
    body = b"\x00\x00\x00\x02\x00\x01t\x00\x02uv\x00\x00\x00\x00rest"
    for version in range(4):
        assert subscribed_topics(version.to_bytes(2, "big") + body) == {"t", "uv"}


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\x00", b"\x00\x00\x00\x00\x00", b"\x00\x00\xff\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x05ab",
     b"\x00\x00\x00\x00\x00\x01\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x01\xff", b"\x00\x00\x7f\xff\xff\xff"],
)  # fmt: skip
def test_what_is_no_subscription(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
