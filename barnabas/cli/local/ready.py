"""The output of `barnabas up` when clients can use the cluster: one line for programs, or a summary for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from barnabas.cli.local.client_settings import login_link, page_lines, settings_lines
from barnabas.common.pages.page_access import of_directory

if TYPE_CHECKING:
    from barnabas.cluster import LocalCluster

WORD = "ready"


class Ready(NamedTuple):
    """A cluster that clients can use. `metrics` and `control` are "" if there are no such pages."""

    bootstrap: str  # HOST:PORT,... of the brokers
    metrics: str  # HOST:PORT,... of the pages, the controller's last
    control: str = ""  # URL
    security: str = ""  # directory of the authority, the keys and the users' settings; "": PLAINTEXT
    is_combined: bool = False  # the brokers are controllers, too; `parse` does not know it

    def line(self) -> str:
        """`ready bootstrap=... metrics=... [control=...] [security=...]`: other programs parse it."""
        control = f" control={self.control}" if self.control else ""
        security = f" security={quote(self.security)}" if self.security else ""
        return f"{WORD} bootstrap={self.bootstrap} metrics={self.metrics}{control}{security}"

    @classmethod
    def of(cls, cluster: LocalCluster) -> Ready:
        """The addresses of a started cluster."""
        security = "" if cluster.security is None else str(cluster.security.directory)
        return cls(cluster.bootstrap, cluster.metrics, cluster.control_url, security, cluster.is_combined)

    @classmethod
    def parse(cls, line: str) -> Ready | None:
        """Parse a ready line; None for any other line."""
        fields = line.split()
        if fields[:1] != [WORD]:
            return None
        values = dict(field.partition("=")[::2] for field in fields[1:])
        security = unquote(values.get("security", ""))
        return cls(values.get("bootstrap", ""), values.get("metrics", ""), values.get("control", ""), security)

    def summary(self, directory: Path, *, is_temporary: bool, is_detached: bool) -> list[str]:
        """The lines for people."""
        count = len(self.bootstrap.split(","))
        pages = self.metrics.split(",")[0]
        secured = Path(self.security) if self.security else None
        access = of_directory(directory)
        kept = "removed at the end; --data-dir keeps it" if is_temporary else "kept"
        rows = [
            ("bootstrap", self.bootstrap),
            ("live page", login_link(access, pages, secured) if pages else "none (barnabas.metrics.port=-1)"),
            *([("faults", self.control)] if self.control else []),
            ("data", f"{directory} ({kept})"),
            ("stop", "barnabas down" if is_detached else "Ctrl-C, or: barnabas down"),
            ("try", "echo hello | barnabas produce greetings"),
            ("", "barnabas consume greetings --from-beginning --until-end"),
        ]
        brokers = "1 broker" if count == 1 else f"{count} brokers"
        controllers = "controller in one process each" if self.is_combined else "a controller"
        lines = [f"Barnabas is ready: {brokers} and {controllers}.", *(f"  {name:<11}{text}" for name, text in rows)]
        if secured is None:
            return lines
        return [*lines, *(page_lines(access, secured) if pages else []), *settings_lines(secured)]
