"""The tables that Apache Kafka's tools for groups print."""

from __future__ import annotations


def rows(output: str) -> list[dict[str, str]]:
    """Return the rows of a tool's table, by its headings; none without a table."""
    lines = [line for line in output.splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if line.startswith(("GROUP", "TOPIC"))), len(lines) - 1)
    titles = lines[start].replace("COORDINATOR (ID)", "COORDINATOR ID").split() if lines else []
    return [dict(zip(titles, line.split(), strict=False)) for line in lines[start + 1 :]]
