"""What logins need of the rest of the process, which is built after the sockets are bound.

Threads: main sets the attributes before the sockets are opened; network threads read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.network.sasl.server_authenticator import ListenerSasl
from barnabas.security.sasl.server_settings import Credentials, ServerSettings, server_settings

if TYPE_CHECKING:
    from barnabas.broker.requests.answers import Reply
    from barnabas.broker.requests.request import Request
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.security.sasl.scram.formulas import Looks
    from barnabas.security.sasl.scram.server import ScramLookup, TokenLogin
    from barnabas.security.values import ScramCredential, ScramMechanism


class SaslSources:
    """See the module. `scram` are its credentials, `false_salts` returns the key of false salts."""

    def __init__(self) -> None:
        # Fixed before the sockets are opened.
        self.scram: ScramLookup | None = None
        self.false_salts: Callable[[], bytes] = bytes
        self.answer_api_versions: Callable[[Request], Reply] | None = None

    def listener(self, config: Config, name: str, clock: Clock) -> ListenerSasl:
        """Return the SASL of a listener; raises ConfigError."""
        return ListenerSasl(self.settings(config, name, clock), clock, self._api_versions)

    def settings(self, config: Config, name: str, clock: Clock) -> ServerSettings:
        """Return the settings of a listener; raises ConfigError."""
        return server_settings(config, name, Credentials(self, lambda: self.false_salts()), clock)

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """See ScramLookup."""
        return None if self.scram is None else self.scram.credential(mechanism, user)

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """See ScramLookup."""
        return None if self.scram is None else self.scram.token(mechanism, token_id)

    def looks(self, mechanism: ScramMechanism) -> Mapping[Looks, int]:
        """See ScramLookup."""
        return {} if self.scram is None else self.scram.looks(mechanism)

    def _api_versions(self, request: Request) -> Reply:
        assert self.answer_api_versions is not None, "set before the sockets are opened"
        return self.answer_api_versions(request)
