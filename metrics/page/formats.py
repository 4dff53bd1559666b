"""The formats of the page, written by prometheus-client: text 0.0.4, and OpenMetrics 1.0 for scrapers that accept it.

prometheus-client takes 6 to 7 µs for each line, all of it with the interpreter's lock: 0.1 s and more for a broker with
a thousand partitions. Most numbers are those of the last page, so a `Format` keeps the lines of the last page and has
prometheus-client write only those that changed.

Only `exposition.py` imports this module, at the first scrape. Threads: the HTTP server's, one page at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from prometheus_client import exposition as text
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

#: Content types. Why not prometheus-client's: its names for them differ between versions.
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_HEAD_LINES: Final = 2  # HELP and TYPE
_END_OF_OPENMETRICS: Final = "# EOF\n"


class _One(Collector):
    """A collector of one family."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterable[Family]:
        """Return the family."""
        return (self._family,)


class _Written(NamedTuple):
    """A family as on the last page: a line for each sample."""

    head: list[str]
    samples: list[Sample]
    lines: list[str]


class Format:
    """Writes pages in one format, and keeps the lines of its last page."""

    def __init__(self, content_type: str, encode: Callable[[Collector], bytes], end: str = "") -> None:
        self.content_type = content_type  # fixed before start
        self._encode = encode  # fixed before start
        self._end = end  # fixed before start
        self._last: dict[tuple[str, str], _Written] = {}  # owner: the scraper; by name and type

    def page(self, families: Iterable[Family]) -> bytes:
        """Return the page of these families."""
        written = {(family.name, family.type): self._written(family) for family in families}
        self._last = written
        lines = [line for family in written.values() for line in (*family.head, *family.lines)]
        return "\n".join([*lines, self._end]).encode()

    def _written(self, family: Family) -> _Written:
        last = self._last.get((family.name, family.type))
        if last is not None and last.samples is family.samples:
            return last
        if last is None or len(last.samples) != len(family.samples):
            return self._encoded(family, family.samples)
        changed = [at for at, (old, new) in enumerate(zip(last.samples, family.samples, strict=True)) if old != new]
        lines = last.lines
        if changed:
            lines = lines[:]  # Why a copy: if this page fails, the last one is that before it
            written = self._encoded(family, [family.samples[at] for at in changed])
            for at, line in zip(changed, written.lines, strict=True):
                lines[at] = line
        return last._replace(samples=family.samples, lines=lines)

    def _encoded(self, family: Family, samples: Sequence[Sample]) -> _Written:
        """Have prometheus-client write some samples of a family."""
        part = Family(family.name, family.documentation, family.type)
        part.samples = list(samples)
        # Why not splitlines: label values may contain other characters that it takes for the end of a line.
        lines = self._encode(_One(part)).decode().removesuffix(self._end).split("\n")[:-1]
        return _Written(lines[:_HEAD_LINES], family.samples, lines[_HEAD_LINES:])


class _OpenMetrics(Format):
    """OpenMetrics, in which no family may have the name of another one.

    A counter's name is that without `_total` there. Where both dialects are on the page, `x_total` is a counter and `x`
    is another family. Such a counter is of unknown type then, so that its series keeps its name.
    """

    def page(self, families: Iterable[Family]) -> bytes:
        """Return the page of these families."""
        every = list(families)
        taken = {family.name for family in every if family.type != "counter"}
        return super().page([_as_unknown(one) if one.type == "counter" and one.name in taken else one for one in every])


def _as_unknown(counter: Family) -> Family:
    family = Family(f"{counter.name}_total", counter.documentation, "unknown")
    family.samples = counter.samples
    return family


class Formats:
    """The formats that a page can be asked for."""

    def __init__(self) -> None:
        self._text = Format(TEXT, text.generate_latest)
        self._open = _OpenMetrics(OPENMETRICS, openmetrics.generate_latest, _END_OF_OPENMETRICS)

    def accepted(self, accept: str) -> Format:
        """Return the format for an Accept header, as prometheus-client chooses it.

        Versions beyond 1.0 and escaping schemes make no difference: every name here is a plain one.
        """
        try:
            _, content_type = text.choose_encoder(accept)
        except (TypeError, ValueError):  # it cannot read the version, such as text/plain;version=1.x
            return self._text
        is_open = content_type.startswith("application/openmetrics-text")
        return self._open if is_open else self._text
