"""What `barnabas up` says when clients can use the cluster: a line for programs, or what a person needs next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.cluster import LocalCluster

WORD = "ready"


class Ready(NamedTuple):
    """A cluster that clients can use. `metrics` and `control` are "" where there is nothing."""

    bootstrap: str  # HOST:PORT,... of the brokers
    metrics: str  # HOST:PORT,... of the pages, the controller's last
    control: str = ""  # URL

    def line(self) -> str:
        """`ready bootstrap=... metrics=... [control=...]`: other programs rely on it."""
        control = f" control={self.control}" if self.control else ""
        return f"{WORD} bootstrap={self.bootstrap} metrics={self.metrics}{control}"

    @classmethod
    def of(cls, cluster: LocalCluster) -> Ready:
        """The cluster, once it has been started."""
        return cls(cluster.bootstrap, cluster.metrics, cluster.control_url)

    @classmethod
    def parse(cls, line: str) -> Ready | None:
        """The cluster that a line tells of; None if it is another line."""
        fields = line.split()
        if fields[:1] != [WORD]:
            return None
        told = dict(field.partition("=")[::2] for field in fields[1:])
        return cls(told.get("bootstrap", ""), told.get("metrics", ""), told.get("control", ""))

    def words(self, directory: Path, *, is_temporary: bool, is_detached: bool) -> list[str]:
        """The lines for a person."""
        count = len(self.bootstrap.split(","))
        pages = self.metrics.split(",")[0]
        kept = "removed at the end; --data-dir keeps it" if is_temporary else "kept"
        rows = [
            ("bootstrap", self.bootstrap),
            ("live page", f"http://{pages}/live" if pages else "none (barnabas.metrics.port=-1)"),
            *([("faults", self.control)] if self.control else []),
            ("data", f"{directory} ({kept})"),
            ("stop", "barnabas down" if is_detached else "Ctrl-C, or: barnabas down"),
            ("try", "echo hello | barnabas produce greetings"),
            ("", "barnabas consume greetings --from-beginning --until-end"),
        ]
        brokers = "1 broker" if count == 1 else f"{count} brokers"
        return [f"Barnabas is ready: {brokers} and a controller.", *(f"  {name:<11}{text}" for name, text in rows)]
