"""APPEND and SUBTRACT on list values (KIP-339).

A value is text with commas. The cost is linear in the length of the texts: a client may send a list of 16,000 items.

Source: ConfigurationControlManager.incrementalAlterConfigResource (Kafka 4.3).
"""

from __future__ import annotations

from collections import Counter


def appended(text: str, added: str) -> str:
    """Return the list, with the added items that it does not contain yet at its end."""
    parts = _parts(text)
    known = set(parts)
    for part in added.split(","):
        if part not in known:
            known.add(part)
            parts.append(part)
    return ",".join(parts)


def subtracted(text: str, removed: str) -> str:
    """Return the list without these items; each removes the first equal one."""
    left = Counter(removed.split(","))
    kept = []
    for part in _parts(text):
        if left[part] > 0:
            left[part] -= 1
        else:
            kept.append(part)
    return ",".join(kept)


def _parts(text: str) -> list[str]:
    return [part for part in text.split(",") if part]
