"""The table of client libraries and ways to prove who a client is. Tests and docs/compatibility.md are made from it.

`python -m tests.clients.security.matrix` prints the documentation's table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.programs import KAFKA

UNSIGNED = "OAUTHBEARER, unsigned"
GSSAPI = "GSSAPI"  # tests/clients/test_gssapi.py, with a real KDC
#: Each way, and the listeners on which it is tried (matrix_cluster.py).
METHODS: Mapping[str, tuple[str, ...]] = {
    "SSL": ("CERTIFICATES",),
    "PLAIN": ("PASSWORDS", "SECURED"),
    "SCRAM-SHA-256": ("PASSWORDS", "SECURED"),
    "SCRAM-SHA-512": ("PASSWORDS", "SECURED"),
    "OAUTHBEARER": ("PASSWORDS", "SECURED"),
    UNSIGNED: ("UNSIGNED",),
    GSSAPI: (),
}
#: What is wrong with the credentials of each way.
WRONG: Mapping[str, tuple[str, ...]] = {
    "SSL": ("missing", "expired"),
    "PLAIN": ("password",),
    "SCRAM-SHA-256": ("password",),
    "SCRAM-SHA-512": ("password",),
    "OAUTHBEARER": ("expired", "forged"),
    UNSIGNED: ("expired",),
}
LOGS_IN_AGAIN = "logs in again"
IS_CLOSED = "is closed, and connects again"
ENDS = "is closed, and ends if it has no other connection"


@dataclass(frozen=True)
class Row:
    """One library: the texts of its own errors, as patterns, and what it cannot do."""

    title: str  # as the documentation names it
    sasl_error: str
    tls_error: str
    session_end: str = LOGS_IN_AGAIN
    needs: tuple[str, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)  # of single mechanisms, in place of sasl_error
    cannot: Mapping[str, str] = field(default_factory=dict)  # ways, and why


ROWS: Mapping[str, Row] = {
    "confluent-kafka": Row(
        "confluent-kafka, librdkafka 2.6.1 and newer",
        "_AUTHENTICATION: ",
        "alert certificate",
        cannot={GSSAPI: "its wheels are built without"},
    ),
    # It may take the end of the connection for the cause, since that comes directly after the answer.
    "kafka-python": Row(
        "kafka-python 3", "SaslAuthenticationFailedError|socket disconnected", "KafkaTimeoutError: Unable to bootstrap"
    ),
    "aiokafka": Row(
        "aiokafka",
        "SaslAuthenticationFailed",
        "KafkaConnectionError",
        IS_CLOSED,
        errors={"OAUTHBEARER": "Connection at .* closed"},
    ),
    "java": Row(
        "Java client, Spark, Kafka's tools", "SaslAuthenticationException", "SslAuthenticationException", needs=KAFKA
    ),
    "franz-go": Row(
        "franz-go",
        "SASL_AUTHENTICATION_FAILED",
        "tls: ",
        needs=("go",),
        errors={"OAUTHBEARER": "unexpected data in oauth response"},
        cannot={GSSAPI: "its Kerberos is a package of its own"},
    ),
    "kafkajs": Row(
        "kafkajs",
        "KafkaJSSASLAuthenticationError",
        "KafkaJSConnectionError",
        needs=("node", "npm"),
        errors={"OAUTHBEARER": "KafkaJSConnectionClosedError"},
        cannot={GSSAPI: "it has none"},
    ),
    "kcat": Row(
        "kcat 1.7 with librdkafka 2.0",
        "SASL authentication error",
        "alert certificate",
        ENDS,
        needs=("kcat",),
        # Its SCRAM repeats a part of the nonce, which Kafka 4 does not accept.
        cannot={
            "SCRAM-SHA-256": "needs librdkafka 2.6.1",
            "SCRAM-SHA-512": "needs librdkafka 2.6.1",
            "OAUTHBEARER": "it has no setting for a token",
        },
    ),
}


class Cell(NamedTuple):
    """A library on a listener."""

    library: str
    method: str
    listener: str

    @property
    def row(self) -> Row:
        """The library's row."""
        return ROWS[self.library]

    @property
    def error(self) -> str:
        """The pattern of the library's error for wrong credentials."""
        if self.method == "SSL":
            return self.row.tls_error
        return self.row.errors.get(self.method.partition(",")[0], self.row.sasl_error)

    def __str__(self) -> str:
        return f"{self.library}-{self.method.replace(', ', '-')}-{self.listener}"


CELLS = tuple(
    Cell(library, method, listener)
    for method, listeners in METHODS.items()
    for listener in listeners
    for library, row in ROWS.items()
    if method not in row.cannot
)


def rendered() -> str:
    """Return the table of the documentation."""
    lines = [f"| client | {' | '.join(METHODS)} | when its session ends, it |", "|---" * (len(METHODS) + 2) + "|"]
    for row in ROWS.values():
        cells = [f"no: {row.cannot[method]}" if method in row.cannot else "yes" for method in METHODS]
        lines.append(f"| {row.title} | {' | '.join(cells)} | {row.session_end} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(rendered(), end="")
