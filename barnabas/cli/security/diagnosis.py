"""Why a secured connection fails, in words that say what to change: name, chain, expiry, clock, mechanism.

`explain` takes the error of a connection of our own. It may connect again, without checking the other end's
certificate, to find out what that end is: nothing is sent on such a connection.
"""

from __future__ import annotations

import datetime
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.connection import Connect, NodeConnection
from barnabas.client.errors import NodeConnectionError, NodeLoginError
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.processes.causes import cause_of
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from barnabas.security.sasl.mechanism import GSSAPI
from barnabas.security.tls.errors import TlsError

if TYPE_CHECKING:
    from cryptography import x509

    from barnabas.client.security import ClientSecurity

TIMEOUT_S = 3.0
CLIENT_ID = "barnabas-doctor"
HANDSHAKE_VERSION = 1
SOON_DAYS = 30
# X509_V_ERR_* of OpenSSL
NOT_YET_VALID, EXPIRED = 9, 10
NO_ISSUER = frozenset({2, 18, 19, 20, 21})
OTHER_NAME = frozenset({62, 64})

#: A part of the answer to a login whose reason is not shown.
REFUSED = "due to invalid credentials with SASL mechanism"

#: Alerts of the other end, and what they mean for this one.
ALERTS = (
    ("CERTIFICATE_REQUIRED", "the listener asks for a client's certificate: set ssl.keystore.location"),
    ("UNKNOWN_CA", "the listener does not trust this client's certificate: its issuer must be in ssl.truststore there"),
    ("CERTIFICATE_UNKNOWN", "the listener refuses this client's certificate"),
    ("CERTIFICATE_EXPIRED", "this client's certificate has expired, says the listener's clock"),
    ("BAD_CERTIFICATE", "the listener refuses this client's certificate"),
    ("HANDSHAKE_FAILURE", "the listener shares no cipher suite with this client, or wants a client's certificate"),
    ("PROTOCOL_VERSION", "the listener accepts no TLS version of this client: compare ssl.enabled.protocols"),
    ("UNSUPPORTED_PROTOCOL", "the listener offers no TLS version of this client: compare ssl.enabled.protocols"),
    ("WRONG_VERSION_NUMBER", "the listener does not speak TLS: security.protocol is PLAINTEXT or SASL_PLAINTEXT there"),
    ("RECORD_LAYER_FAILURE", "the listener does not speak TLS: security.protocol is PLAINTEXT or SASL_PLAINTEXT there"),
)


def explain(
    error: NodeConnectionError, host: str, port: int, connect: Connect = NodeConnection, clock: Clock | None = None
) -> str:
    """Return why a connection of `connect` failed, and what to change; the error's own text if nothing is known."""
    cause, security = cause_of(error), _security_of(connect)
    is_tls = security is not None and security.tls is not None
    if isinstance(error, NodeLoginError):
        return _login(error, security)
    if isinstance(cause, TlsError):
        cause = cause_of(cause) or cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _verification(cause, host, port, clock or SystemClock())
    if isinstance(cause, (ssl.SSLError, TlsError)):
        text = str(cause).upper().replace(" ", "_")
        return next((words for alert, words in ALERTS if alert in text), str(error))
    if isinstance(cause, (ConnectionRefusedError, socket.gaierror)):
        return str(error)
    has_certificate = certificate_of(host, port) is not None
    if not is_tls and has_certificate:
        return f"the listener at {host}:{port} speaks TLS: set security.protocol=SSL or SASL_SSL (--command-config)"
    if is_tls and not has_certificate and not isinstance(cause, TimeoutError):
        return f"the listener at {host}:{port} does not speak TLS: security.protocol is PLAINTEXT or SASL_PLAINTEXT"
    if security is None or security.login is None:
        mechanisms = mechanisms_of(host, port, connect)
        if mechanisms:
            protocol = "SASL_SSL" if is_tls else "SASL_PLAINTEXT"
            return (
                f"the listener at {host}:{port} asks for a login: set security.protocol={protocol} and sasl.mechanism "
                f"({', '.join(mechanisms)}) (--command-config)"
            )
    return str(error)


def _login(error: NodeLoginError, security: ClientSecurity | None) -> str:
    """Return why a login failed. A listener that refuses a Kerberos ticket keeps its reason to itself."""
    is_kerberos = security is not None and security.login is not None and security.login.mechanism == GSSAPI
    if is_kerberos and REFUSED in str(error):
        return (
            f"{error}; the log of that node has the reason: often an old key in its keytab, a clock that differs from "
            "the KDC's, or no rule for the principal in sasl.kerberos.principal.to.local.rules"
        )
    return str(error)


def mechanisms_of(host: str, port: int, connect: Connect) -> list[str]:
    """Return the mechanisms that a listener offers to a connection without a login; none if it asks for no login."""
    try:
        with connect(host, port, timeout_ms=int(TIMEOUT_S * 1000), client_id=CLIENT_ID) as connection:
            answer = connection.send(SaslHandshakeRequest(mechanism=""), HANDSHAKE_VERSION)
    except NodeConnectionError:
        return []
    return list(answer.mechanisms)


def _security_of(connect: Connect) -> ClientSecurity | None:
    """Return how a factory of connections secures them."""
    keywords = connect.keywords if isinstance(connect, partial) else {}
    found: ClientSecurity | None = keywords.get("security")
    return found


def is_certain(error: NodeConnectionError) -> bool:
    """Return whether trying again cannot help: the TLS of the two ends does not fit, or the login is refused."""
    return isinstance(cause_of(error), TlsError) or isinstance(error, NodeLoginError)


def certificate_of(host: str, port: int) -> x509.Certificate | None:
    """Return the certificate that a listener shows, unchecked; None if it does not speak TLS."""
    from cryptography import x509

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), TIMEOUT_S) as sock,
            context.wrap_socket(sock, server_hostname=host) as secured,
        ):
            found = secured.getpeercert(binary_form=True)
    except (OSError, ValueError):
        return None
    return x509.load_der_x509_certificate(found) if found else None


def certificate_words(certificate: x509.Certificate) -> str:
    """Return what a person wants to know of a certificate, in one line."""
    names = ", ".join(names_of(certificate)) or "no host"
    return (
        f"{certificate.subject.rfc4514_string()} for {names}, issued by {certificate.issuer.rfc4514_string()}, "
        f"until {certificate.not_valid_after_utc:%Y-%m-%d}"
    )


def expiry_problem(certificate: x509.Certificate, clock: Clock) -> str | None:
    """Return a warning about a certificate that expires soon."""
    now = _now(clock)
    left = certificate.not_valid_after_utc - now
    if datetime.timedelta() <= left < datetime.timedelta(days=SOON_DAYS):
        return f"the certificate expires in {left.days} days, on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    return None


def names_of(certificate: x509.Certificate) -> list[str]:
    """Return the host names and addresses that a certificate is for."""
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in found if isinstance(name, (x509.DNSName, x509.IPAddress))]


def _verification(error: ssl.SSLCertVerificationError, host: str, port: int, clock: Clock) -> str:
    """Return why the certificate of a listener is not accepted."""
    certificate = certificate_of(host, port)
    if certificate is None:
        return f"the listener's certificate is not accepted: {error.verify_message}"
    who = certificate.subject.rfc4514_string()
    now = f"this machine's clock says {_now(clock):%Y-%m-%d %H:%M} UTC"
    if error.verify_code == EXPIRED:
        since = f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        if certificate.not_valid_after_utc < _now(clock):
            return f"the listener's certificate ({who}) expired on {since}; {now}"
        return f"a certificate in the chain of {who} has expired; {now}"
    if error.verify_code == NOT_YET_VALID:
        since = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        return f"the listener's certificate ({who}) is not valid before {since}; {now}: is a clock wrong?"
    if error.verify_code in OTHER_NAME:
        names = ", ".join(names_of(certificate)) or "no name"
        return f"the listener's certificate ({who}) is for {names}, not for {host}: connect by a name that it has"
    if error.verify_code in NO_ISSUER:
        issuer = certificate.issuer.rfc4514_string()
        return f"nobody trusted here issued the listener's certificate ({who}): add {issuer} to ssl.truststore.location"
    return f"the listener's certificate ({who}) is not accepted: {error.verify_message}"


def _now(clock: Clock) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.wall_ms() / 1000, datetime.UTC)
