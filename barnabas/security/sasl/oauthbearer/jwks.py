"""The keys of an OAuth provider, from a file or an address.

Rules
1. Keys from an address are fetched again every `refresh_ms`, and earlier when a token names a key that is not known:
   at most every `SOON_MS`. A failure keeps the keys, and is retried after a pause that doubles.
2. A file is read again within `FILE_CHECK_MS` after it has changed; one that could not be used, after the same pauses.
3. The first `KEYS_MAX` keys of a set are used. web.py has the rules of addresses and answers.

Threads: network threads call `find`, which never waits. One thread, begun by `start`, reads and fetches. The keys are
immutable and replaced whole.
Source: RefreshingHttpsJwks, JwksFileVerificationKeyResolver (Kafka 4.3).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.common.clock import Clock
from barnabas.common.threads import ServiceThread
from barnabas.security.sasl.oauthbearer.validator import SigningKey, signing_key
from barnabas.security.sasl.oauthbearer.web import WebError, check_url, path_of

log = logging.getLogger("barnabas.sasl")

KEYS_MAX: Final = 256
SOON_MS: Final = 10_000
FILE_CHECK_MS: Final = 1_000


def parse_keys(body: bytes) -> tuple[SigningKey, ...]:
    """Return the keys of a JWKS that can be used; raises WebError if there is none."""
    try:
        listed = json.loads(body)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WebError("this is not a JSON web key set") from error
    if not isinstance(listed, list):
        raise WebError("this is not a JSON web key set")
    found = (signing_key(jwk) for jwk in listed[:KEYS_MAX] if isinstance(jwk, dict))
    keys = tuple(key for key in found if key is not None)
    if not keys:
        raise WebError("no key in it verifies signatures by a public key")
    return keys


class Jwks:
    """See the module; `find` is the `Keys` of the validator."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        read: Callable[[str], bytes],
        *,
        refresh_ms: int = 3_600_000,
        retry_ms: int = 100,
        retry_max_ms: int = 10_000,
    ) -> None:
        check_url(url)
        # Fixed before start.
        self._url = url
        self._path = path_of(url) if url.startswith("file:") else None
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._retry_ms = retry_ms
        self._retry_max_ms = retry_max_ms
        self._read = read
        self._over = threading.Event()  # set once, by stop
        self._wake = threading.Event()  # a key is missing, or the end; any thread sets it
        self._keys: tuple[SigningKey, ...] = ()  # replaced whole
        # owner: the thread, once started
        self._changed_ns: int | None = None  # the file's, as last read; None: it could not be used
        self._failures = 0
        self._fetched_ms = clock.monotonic_ms()
        self._thread: ServiceThread | None = None  # set by start

    def read_file(self) -> None:
        """Read the keys before the start, if they are in a file; raises WebError."""
        if self._path is not None:
            self._load()

    def take_over(self, before: object) -> None:
        """Use the keys that others have had from the same address, until it answers; before the start."""
        if isinstance(before, Jwks) and self._path is None and before._url == self._url:
            self._keys = before._keys

    def start(self) -> None:
        """Begin the thread that keeps the keys current."""
        self._thread = ServiceThread("jwks-refresh", "jwks-refresh", self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; do not wait for an address that does not answer."""
        self._over.set()
        self._wake.set()

    def find(self, key_id: str | None) -> Sequence[SigningKey]:
        """See Keys: an unknown id makes the thread look again soon, and is refused meanwhile."""
        keys = self._keys
        if key_id is None:
            return keys
        found = [key for key in keys if key.id == key_id]
        if not found and self._path is None:
            self._wake.set()
        return found

    def refresh(self) -> int:
        """Read or fetch the keys if they may have changed; return the milliseconds until the next time."""
        try:
            if self._path is None or self._path.stat().st_mtime_ns != self._changed_ns:
                self._load()
        except (WebError, OSError) as error:
            self._failures += 1
            if self._failures == 1:
                log.warning("the keys for OAUTHBEARER stay as they are: %s", error)
            return int(min(self._retry_max_ms, self._retry_ms << min(self._failures - 1, 20)))
        if self._failures:
            log.info("the keys for OAUTHBEARER are read again")
        self._failures = 0
        return FILE_CHECK_MS if self._path is not None else self._refresh_ms

    def _load(self) -> None:
        changed_ns, self._changed_ns = None, None
        if self._path is not None:
            try:
                changed_ns = self._path.stat().st_mtime_ns  # Why first: what changes meanwhile is read again
            except OSError as error:
                raise WebError(f"cannot read {self._url}: {error.strerror}") from error
        self._fetched_ms = self._clock.monotonic_ms()
        try:
            self._keys = parse_keys(self._read(self._url))
        except WebError as error:
            raise WebError(f"{self._url}: {error}") from error
        self._changed_ns = changed_ns

    def _run(self) -> None:
        wait_ms = 0 if self._path is None else FILE_CHECK_MS
        while not self._over.is_set():
            if self._wake.wait(wait_ms / 1000):
                since_ms = self._clock.monotonic_ms() - self._fetched_ms
                self._over.wait(min(wait_ms, max(0, SOON_MS - since_ms)) / 1000)
                self._wake.clear()
            if not self._over.is_set():
                wait_ms = self.refresh()
