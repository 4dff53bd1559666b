"""From the registry to the body of /metrics.

A collector over the registry (`collector.py`) is registered in a `CollectorRegistry` of prometheus-client, which writes
the page (`formats.py`). prometheus-client is imported at the first scrape: it takes 3 MB and some 50 ms, which a
process without scrapes saves, and no process pays before it is ready.

Threads: `page` by the HTTP server, one page at a time.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from barnabas.metrics.names import Dialect
from barnabas.metrics.table.rows_own import SCRAPE_SECONDS

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import CollectorRegistry

    from barnabas.metrics.page.formats import Formats
    from barnabas.metrics.registry import Registry


class Exposition:
    """Makes the pages of one registry."""

    def __init__(self, registry: Registry, dialect: Dialect = Dialect.BOTH) -> None:
        self._registry = registry  # fixed before start
        self._dialect = dialect  # fixed before start
        self._loaded: _Loaded | None = None  # owner: the scraper; set by the first scrape
        self._took_s = 0.0  # owner: the scraper; the duration of the last scrape
        registry.gauge(SCRAPE_SECONDS, lambda: self._took_s)

    def page(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and body: every instrument and every table, in the format of the Accept header."""
        if self._loaded is None:
            self._loaded = _load(self._registry, self._dialect)
        format_ = self._loaded.formats.accepted(accept)
        began_s = self._registry.now_s()
        families = cast("Generator[Family, None, None]", self._loaded.registry.collect())
        # Why closed: it holds a lock of the registry, and after an error it lives as long as the error's traceback.
        with _no_collections(), contextlib.closing(families):
            body = format_.page(families)
        self._took_s = self._registry.now_s() - began_s
        return format_.content_type, body

    def render(self) -> bytes:
        """Return the page in text format."""
        return self.page()[1]


class _Loaded(NamedTuple):
    """What needs prometheus-client."""

    registry: CollectorRegistry
    formats: Formats


def _load(registry: Registry, dialect: Dialect) -> _Loaded:
    # Why here: see the module's docstring.
    from prometheus_client.registry import CollectorRegistry

    from barnabas.metrics.page.collector import RegistryCollector
    from barnabas.metrics.page.formats import Formats

    collectors = CollectorRegistry()
    collectors.register(RegistryCollector(registry, dialect))
    return _Loaded(collectors, Formats())


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Hold cyclic garbage collection back.

    Why: a page takes tens of thousands of tuples, all of them short-lived and in no cycle. Counted as allocations, they
    would cause full collections, and each of these stops every thread for longer than the page takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def render(registry: Registry) -> bytes:
    """Return the page of a registry in text format, once."""
    return Exposition(registry).render()
