"""Client ids as metrics and the live page keep them: of bounded length.

A client may choose an id of 32 KB. It would be in every series of the client, and in all that keeps the client.

Threads: none; a pure function.
"""

from __future__ import annotations

from typing import Final

from barnabas.common import digests

NAME_MAX: Final = 250  # characters of a cut client id; others are shorter
_DIGEST_CHARACTERS: Final = 32


def bounded(client_id: str) -> str:
    """Return a client id of at most `NAME_MAX` characters. A long one is cut, and a hash keeps it apart from others."""
    if len(client_id) < NAME_MAX:
        return client_id
    digest = digests.digest("sha256", client_id.encode("utf-8", "surrogatepass")).hex()
    return f"{client_id[: NAME_MAX - 1 - _DIGEST_CHARACTERS]}~{digest[:_DIGEST_CHARACTERS]}"
