"""Login: how a client connects, whatever its library; and its settings as files for programs in other languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from tests.support.sasl_cluster import MODULES, login_module, quoted

OAUTHBEARER = "OAUTHBEARER"
_BEARER = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"


class Login(NamedTuple):
    """The address and the credentials. Only those of the protocol and the mechanism are used."""

    bootstrap: str
    protocol: str
    ca: Path
    mechanism: str = ""  # "" without SASL
    user: str = ""
    password: str = ""
    token: Path | None = None  # a file with the token; a test may replace its content
    unsigned_claim: str = ""  # the claim with the user's name, for libraries that write unsigned tokens themselves
    certificate: Path | None = None  # with its key
    patience_ms: int = 20_000  # how long a library tries that would never give up

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    def write_json(self, path: Path) -> Path:
        """Write what the programs in Go and Node read."""
        fields = {name.capitalize(): str(value or "") for name, value in self._asdict().items()}
        path.write_text(json.dumps(fields))
        return path

    def write_properties(self, path: Path) -> Path:
        """Write what a Java client reads."""
        path.write_text("".join(f"{key}={value}\n" for key, value in self._java().items()))
        return path

    def _java(self) -> dict[str, object]:
        settings: dict[str, object] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "reconnect.backoff.ms": 50,
            "max.block.ms": 20_000,
        }
        if self.has_tls:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if self.certificate is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        if self.unsigned_claim:
            options = (
                f"{self.unsigned_claim}={quoted(self.user)} unsecuredLoginPrincipalClaimName={self.unsigned_claim}"
            )
            settings["sasl.jaas.config"] = f"{_BEARER} unsecuredLoginStringClaim_{options};"
        elif self.mechanism == OAUTHBEARER:
            assert self.token is not None
            settings |= {
                "sasl.jaas.config": f"{_BEARER};",
                "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": self.token.as_uri(),
                "sasl.login.refresh.buffer.seconds": 0,
                "sasl.login.refresh.min.period.seconds": 0,
            }
        elif self.mechanism:
            jaas = login_module(self.mechanism, self.user, self.password).replace("\\", "\\\\")
            settings["sasl.jaas.config"] = f"{jaas};"
        if self.mechanism:
            settings["sasl.mechanism"] = self.mechanism
        return settings
