"""An OAuth provider with an address of its own (https:): its keys, and tokens by client credentials."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from barnabas.common.clock import SystemClock
from tests.support.certificates import Authority

ISSUER = "https://provider.test"
AUDIENCE = "kafka"
CLIENT = ("node", "node's secret")
KEY_ID = "one"
LIFETIME_S = 3600


class OAuthProvider:
    """Runs in a thread; see the module."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self._stranger = rsa.generate_private_key(65537, 2048)
        self.jwks = directory / "jwks.json"
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        self.jwks.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig"}]}))
        self.requests: list[str] = []  # paths; appended by the server's threads
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue("provider").write_pem(directory / "provider.pem"))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"https://localhost:{self._server.server_port}"

    def __enter__(self) -> OAuthProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def token(self, user: str, lifetime_s: float = LIFETIME_S, *, is_forged: bool = False) -> str:
        """Return a token; a forged one has the signature of another key. One without a life left is expired."""
        now_s = SystemClock().wall_ms() / 1000
        issued_s = min(now_s, now_s + lifetime_s) - 1
        claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "scope": "kafka"}
        times = {"iat": issued_s, "exp": now_s + lifetime_s}
        key = self._stranger if is_forged else self._key
        return jwt.encode({**claims, **times}, key, "RS256", {"kid": KEY_ID})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self
        right = "Basic " + base64.b64encode(":".join(CLIENT).encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, json.loads(provider.jwks.read_text()))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Authorization"] != right:
                    self._answer(401, {"error": "invalid_client"})
                    return
                token = provider.token(CLIENT[0])
                self._answer(200, {"access_token": token, "expires_in": LIFETIME_S, "token_type": "Bearer"})

            def _answer(self, status: int, body: Any) -> None:
                provider.requests.append(self.path)
                encoded = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler
