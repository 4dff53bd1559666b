"""The supervisor's own connections to a secured cluster, and the users that it creates there.

It connects to the listeners between nodes as a super user.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Final

from barnabas.client.client_properties import ClientProperties
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.node import Node
from barnabas.cluster.security.client_settings import Login, java
from barnabas.common.clock import Clock
from barnabas.protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.security.sasl.scram.formulas import salted_password
from barnabas.security.values import ScramMechanism

ITERATIONS: Final = 8192
SALT_BYTES: Final = 24
MECHANISMS: Final = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


def connect_as(login: Login, clock: Clock) -> Connect:
    """Return what makes connections with this login."""
    return partial(NodeConnection, security=ClientProperties(java(login), clock).security())


def add_users(connect: Connect, broker: Node, users: Mapping[str, str]) -> None:
    """Give the users their SCRAM credentials, as their passwords say; raises ClusterError."""
    try:
        with connect(broker.host, broker.internal_port or broker.port) as connection:
            for mechanism in MECHANISMS:  # one request each: a request may not name a user twice
                upsertions = [_upsertion(name, mechanism, password) for name, password in users.items()]
                request = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
                for result in connection.send(request, 0).results:
                    if result.error_code:
                        raise ClusterError(f"user {result.user}: {result.error_message}")
    except NodeConnectionError as error:
        raise ClusterError(f"the users could not be created: {error}") from error


def _upsertion(name: str, mechanism: ScramMechanism, password: str) -> ScramCredentialUpsertion:
    salt = os.urandom(SALT_BYTES)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=ITERATIONS,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, ITERATIONS),
    )
