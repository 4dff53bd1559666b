"""Distinguished names as Java writes them: the text behind `User:` for a client with a certificate.

Rules (X500Principal.getName(), which is RFC 2253 with Java's choices)
1. The last relative name comes first; names are joined by commas, the values of one name by plus signs.
2. Nine attributes have keywords. The value of any other attribute is the hexadecimal form of its encoding.
3. Special characters, and blanks at either end, are escaped by a backslash.

Threads: any; pure. Source: OpenJDK's X500Name, AVA (17), compared with what it prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.security.tls import der

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# T61String, PrintableString, IA5String, GeneralString, BMPString, UTF8String.
_TEXT_TAGS: Final = frozenset((0x14, 0x13, 0x16, 0x1B, 0x1E, 0x0C))
_ESCAPED: Final = ',=+<>#;"\\'
_BLANKS: Final = " \r"


def distinguished_name(name: bytes) -> str:
    """Return the text of an encoded Name; raise ValueError if it is malformed."""
    (sequence,) = der.elements(name)
    relative_names = [
        "+".join(_attribute(attribute) for attribute in der.elements(relative.expect(der.SET)))
        for relative in der.elements(sequence.expect(der.SEQUENCE))
    ]
    return ",".join(reversed(relative_names))


def _attribute(attribute: der.Element) -> str:
    identifier, value = der.elements(attribute.expect(der.SEQUENCE))
    oid = der.object_identifier(identifier.expect(der.OBJECT_IDENTIFIER))
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or oid}=#{value.encoding.hex()}"
    return f"{keyword}={''.join(_escaped(value.contents.decode('utf-8', 'replace')))}"


def _escaped(text: str) -> Iterator[str]:
    first = len(text) - len(text.lstrip(_BLANKS))
    last = len(text.rstrip(_BLANKS))
    for index, character in enumerate(text):
        if character == "\0":
            yield "\\00"
        elif character in _ESCAPED or not first <= index < last:
            yield f"\\{character}"
        else:
            yield character
