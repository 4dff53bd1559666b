"""The last two messages of GSSAPI: which security layers the server offers, and which one the client takes (RFC 4752).

    message = 1 byte: layers (bits)  3 bytes: size of the largest wrapped message that the sender takes
              [authorization id, UTF-8; only the client's]

There is no layer after a login to Kafka, so both sides name none of them (bit 1), and the size 0. Apache Kafka's server
names the size 65536 with it, against the RFC; its clients accept both.
"""

from __future__ import annotations

from typing import Final

NO_LAYER: Final = 1
#: What both sides send.
NO_LAYERS: Final = bytes([NO_LAYER, 0, 0, 0])
_LENGTH: Final = 4


def has_no_layer(message: bytes) -> bool:
    """Return whether a message offers, or takes, no layer. As in Kafka, the size does not count."""
    return len(message) >= _LENGTH and bool(message[0] & NO_LAYER)
