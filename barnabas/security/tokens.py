"""The password of a delegation token: an HMAC of its id under the cluster's secret.

Each node derives it from `delegation.token.secret.key`, so the metadata log holds no password. A client authenticates
with SCRAM: the token's id as the user, the HMAC in base64 as the password.

Source: DelegationTokenManager.createHmac, createBase64HMAC (Kafka 4.3).
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Final

from barnabas.common import digests

#: HMACs that are remembered. Why: a request to renew or expire a token is compared with those of all tokens.
_REMEMBERED_MAX: Final = 1 << 16


@lru_cache(_REMEMBERED_MAX)
def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the HMAC of a token: its password, which the client presents to renew or expire the token too."""
    return digests.mac("sha512", secret.encode(), token_id.encode())


def token_password(secret: str, token_id: str) -> str:
    """Return the HMAC as text, which is the token's SCRAM password."""
    return base64.b64encode(token_hmac(secret, token_id)).decode()
