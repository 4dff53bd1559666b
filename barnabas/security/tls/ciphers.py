"""ssl.cipher.suites: Java's names of cipher suites as OpenSSL's.

TLS 1.3's suites have one name in both. Those of TLS 1.2 are built from the same words in another notation:
TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256.

Python has SSLContext.set_ciphersuites for TLS 1.3 from 3.15 on. Older versions have no call for it, while OpenSSL has
had SSL_CTX_set_ciphersuites since 1.1.1. So OpenSSL is called here through ctypes, with the SSL_CTX of the context: the
first field of CPython's PySSLContext, in every release from 3.11 to 3.14.

Threads: any; a context is changed before it is shared.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ssl import SSLContext

#: The suites of TLS 1.3 that OpenSSL offers.
TLS_1_3: Final = frozenset(("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"))

#: The releases whose PySSLContext has the SSL_CTX as its first field, and no method for the suites.
_KNOWN: Final = ((3, 11), (3, 15))

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


def choose_tls_1_3(context: SSLContext, names: list[str]) -> bool:
    """Let a context offer only these suites of TLS 1.3; return whether it does."""
    native = getattr(context, "set_ciphersuites", None)
    if native is not None:
        native(":".join(names))
    elif not _choose_by_openssl(context, names):
        return False
    offered = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.3"}
    return offered == set(names)


def _choose_by_openssl(context: SSLContext, names: list[str]) -> bool:
    if sys.implementation.name != "cpython" or not _KNOWN[0] <= sys.version_info[:2] < _KNOWN[1]:
        return False
    import _ssl  # Why here: few listeners need these modules
    import ctypes
    import ssl

    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        set_ciphersuites, version = library.SSL_CTX_set_ciphersuites, library.OpenSSL_version
    except (OSError, AttributeError):
        return False
    version.restype = ctypes.c_char_p
    if version(0) != ssl.OPENSSL_VERSION.encode():  # another copy of OpenSSL could not read this one's SSL_CTX
        return False
    set_ciphersuites.argtypes, set_ciphersuites.restype = (ctypes.c_void_p, ctypes.c_char_p), ctypes.c_int
    ssl_ctx = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    return bool(set_ciphersuites(ssl_ctx, ":".join(names).encode()))
