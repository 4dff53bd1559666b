"""Durations as text, in ISO 8601 as Java reads them: `PT1H30M`, `P2DT0.5S`, `-PT1H`.

Source: java.time.Duration.parse (JDK 17).
"""

from __future__ import annotations

import re
from typing import Final

# Compiled at its first use, not at the start.
_DURATION: Final = (
    r"(?i)([-+]?)P(?:([-+]?[0-9]+)D)?"
    r"(T(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?"
)
_MS_OF: Final = (86_400_000, 3_600_000, 60_000, 1_000)
_NUMBER_MAX: Final = 19  # digits and sign of a long; none longer is read
_SECONDS_MAX: Final = 2**63 - 1


def parse_duration_ms(text: str) -> int | None:
    """Return a duration in whole milliseconds, which may be negative; None if the text is none."""
    match = re.fullmatch(_DURATION, text)
    if match is None or (match[3] or "").upper() == "T":
        return None
    sign, days, _, hours, minutes, seconds, fraction = match.groups()
    parts = (days, hours, minutes, seconds)
    if all(part is None for part in parts) or any(len(part or "") > _NUMBER_MAX for part in parts):
        return None
    total = sum(int(part or 0) * unit for part, unit in zip(parts, _MS_OF, strict=True))
    thousandths = int((fraction or "").ljust(3, "0")[:3])
    total += -thousandths if (seconds or "").startswith("-") else thousandths
    if abs(total) // 1000 > _SECONDS_MAX:
        return None
    return -total if sign == "-" else total
