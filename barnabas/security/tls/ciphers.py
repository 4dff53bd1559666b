"""ssl.cipher.suites: Java's names of cipher suites as OpenSSL's.

TLS 1.3's suites have one name in both. Those of TLS 1.2 are built from the same words in another notation:
TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256.

Threads: any; pure.
"""

from __future__ import annotations

import re
from typing import Final

#: The suites of TLS 1.3 that OpenSSL offers; Python (up to 3.14) cannot choose among them.
TLS_1_3: Final = frozenset(("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"))

_TLS_1_2: Final = r"TLS_(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_(.+)"
_AES: Final = r"AES_(128|256)_(GCM|CBC)_(SHA|SHA256|SHA384)"
_CHACHA: Final = "CHACHA20_POLY1305_SHA256"


def openssl_name(name: str) -> str | None:
    """Return OpenSSL's name of a suite of TLS 1.2; None if there is no such suite."""
    match = re.fullmatch(_TLS_1_2, name)
    if match is None:
        return None
    exchange = "" if match[1] == "RSA" else f"{match[1].replace('_', '-')}-"
    if match[2] == _CHACHA:
        return f"{exchange}CHACHA20-POLY1305" if exchange else None
    aes = re.fullmatch(_AES, match[2])
    if aes is None:
        return None
    mode = "GCM-" if aes[2] == "GCM" else ""
    return f"{exchange}AES{aes[1]}-{mode}{aes[3]}"
