"""The constants of /live.json, whose shape `live_shape` describes.

Why apart: a server needs nothing else of the shape at run time, and its types would be a quarter of a megabyte of it.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = 1
LIMIT_DEFAULT: Final = 50
LIMIT_MAX: Final = 1000

#: The stations of a request, in order; the keys of `RequestShape.times_ms`.
STATIONS: Final = ("request_queue", "local", "remote", "throttle", "response_queue", "send")
