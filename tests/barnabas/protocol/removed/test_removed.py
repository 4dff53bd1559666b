"""The versions that Kafka 4.0 removed: protocol/removed/__init__.py, k02_list_offsets.py, k08_offset_commit.py and
k32_describe_configs.py.

The known bytes are written after the definitions of Apache Kafka 3.9.
"""

from __future__ import annotations

import pytest

from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.errors import UnsupportedVersionError
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.removed import REMOVED, highest_removed, removed_request, removed_response
from tests.support.messages import samples, versions

CLASSES = [cls for key in sorted(REMOVED) for cls in (removed_request(key), removed_response(key))]


def test_versions_end_below_those_of_today() -> None:
    for key in REMOVED:
        for cls in (removed_request(key), removed_response(key)):
            assert (0, highest_removed(key)) == (cls.MIN_VERSION, cls.MAX_VERSION)
            assert (key, ROWS[key].name) == (cls.API_KEY, cls.NAME)
        for current in (request_class(key), response_class(key)):
            assert highest_removed(key) + 1 == current.MIN_VERSION
            with pytest.raises(UnsupportedVersionError):
                current.decoder(highest_removed(key))
    assert {key: highest_removed(key) for key in (0, 1, 2, 3, 8)} == {0: 2, 1: 3, 2: 0, 3: -1, 8: 1}


def test_every_api_of_clients_that_lost_versions_is_here() -> None:
    raised = {key for key, row in ROWS.items() if row.min_version}
    of_nodes_or_unstable = {
        ApiKey.ALTER_PARTITION,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    }
    assert raised - of_nodes_or_unstable == REMOVED


def test_an_api_that_lost_none_has_no_class() -> None:
    with pytest.raises(KeyError):
        removed_request(ApiKey.METADATA)
    with pytest.raises(KeyError):
        removed_response(ApiKey.HEARTBEAT)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__name__}")
def test_messages_survive_the_wire(cls: type) -> None:
    for version in versions(cls):  # type: ignore[arg-type]
        for message in samples(cls, version, 5, tags=False):  # type: ignore[type-var]
            encoded = message.encode(version)
            decoded, end = cls.decode_prefix(encoded, version)  # type: ignore[attr-defined]
            assert (decoded, end) == (message, len(encoded))


#: A message of each class whose fields are gone from today's tables, in hex, by version.
GOLDEN = {
    ("request", 2, 0): "ffffffff 00000001 0001 74 00000001 00000003 fffffffffffffffe 00000005",
    ("response", 2, 0): "00000001 0001 74 00000001 00000003 0000 00000002 0000000000000007 0000000000000000",
    ("request", 8, 0): "0001 67 00000001 0001 74 00000001 00000003 0000000000000007 0000",
    ("request", 8, 1): (
        "0001 67 ffffffff 0000 00000001 0001 74 00000001 00000003 0000000000000007 ffffffffffffffff ffff"
    ),
    ("response", 32, 0): "00000000 00000001 0000 ffff 02 0001 74 00000001 0001 6b 0001 76 00 01 00",
    ("request", 0, 2): "0001 000003e8 00000001 0001 74 00000001 00000003 00000001 ff",
    ("response", 0, 2): "00000001 0001 74 00000001 00000003 0000 0000000000000007 ffffffffffffffff 00000000",
    ("request", 1, 2): "ffffffff 000001f4 00000001 00000001 0001 74 00000001 00000003 0000000000000007 00000400",
    ("response", 1, 0): "00000001 0001 74 00000001 00000003 0000 0000000000000008 00000001 ff",
}


@pytest.mark.parametrize(("which", "key", "version"), GOLDEN)
def test_known_bytes(which: str, key: int, version: int) -> None:
    cls = (removed_request if which == "request" else removed_response)(key)
    data = bytes.fromhex(GOLDEN[which, key, version])
    message, end = cls.decode_prefix(data, version)
    assert end == len(data)
    assert message.encode(version) == data
