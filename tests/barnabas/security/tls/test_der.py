"""DER: elements, and object identifiers."""

from __future__ import annotations

import pytest

from barnabas.security.tls import der


def test_elements_follow_each_other() -> None:
    long = b"\x04\x81\x80" + bytes(128)
    found = der.elements(b"\x04\x01a" + long)
    assert [(each.tag, len(each.contents), len(each.encoding)) for each in found] == [(4, 1, 3), (4, 128, 131)]


@pytest.mark.parametrize("data", [b"\x04", b"\x04\x02a", b"\x04\x80", b"\x04\x85\0\0\0\0\0", b"\x04\x82\x01"])
def test_what_is_cut_or_malformed_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="DER"):
        der.elements(data)


def test_another_tag_is_an_error() -> None:
    with pytest.raises(ValueError, match="tag 0x4 instead of 0x30"):
        der.elements(b"\x04\x00")[0].expect(der.SEQUENCE)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [("550403", "2.5.4.3"), ("2a864886f70d010901", "1.2.840.113549.1.9.1"), ("8837", "2.999"), ("2b", "1.3")],
)
def test_object_identifiers(contents: str, expected: str) -> None:
    assert der.object_identifier(bytes.fromhex(contents)) == expected
