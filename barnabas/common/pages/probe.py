"""`python -I -m barnabas.common.pages.probe PORT`: exits 0 if the process with this page is ready.

The probe of the container image. It asks in plain text first, then over TLS (`barnabas.pages.ssl.…`), whose certificate
it does not check, since the page is its own container's.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Sequence
from typing import Final

HOST: Final = "127.0.0.1"
TIMEOUT_S: Final = 1.0
REQUEST: Final = b"GET /readyz HTTP/1.0\r\n\r\n"


def is_ready(port: int) -> bool:
    """Return whether the page at this port answers /readyz with status 200."""
    return any(_answers(port, has_tls=has_tls) for has_tls in (False, True))


def _answers(port: int, *, has_tls: bool) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), TIMEOUT_S) as connection:
        if not has_tls:
            return _is_200(connection)
        import ssl  # Why here: most pages are in plain text

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with context.wrap_socket(connection) as stream:
            return _is_200(stream)
    return False


def _is_200(stream: socket.socket) -> bool:
    stream.sendall(REQUEST)
    return b" 200 " in stream.recv(99)


def main(argv: Sequence[str]) -> int:
    """Return the exit code."""
    return 0 if is_ready(int(argv[0])) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
