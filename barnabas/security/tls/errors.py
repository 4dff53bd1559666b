"""TlsError: a handshake or an encrypted record failed. A module of its own, so that catching it does not load OpenSSL.

Threads: any.
"""

from __future__ import annotations


class TlsError(OSError):
    """The message says why, in words; its cause is the error of `ssl`, if that found it."""
