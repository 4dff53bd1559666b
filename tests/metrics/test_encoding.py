from __future__ import annotations

import gzip

import pytest

from barnabas.metrics.encoding import accepts_gzip, gzipped


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (b"Accept-Encoding: gzip", True),
        (b"accept-encoding:deflate , GZIP;q=0.5", True),
        (b"Accept-Encoding: gzip;q=0", False),
        (b"Accept-Encoding: gzip; q=0.000, *", False),
        (b"Accept-Encoding: *", True),
        (b"Accept-Encoding: *;q=0", False),
        (b"Accept-Encoding: deflate\r\nAccept-Encoding: gzip", True),
        (b"Accept-Encoding: gzip;q=much", False),
        (b"Accept-Encoding:", False),
        (b"Accept-Encoding: identity", False),
        (b"X-Accept-Encoding: gzip", False),
        (b"Accept: gzip", False),
    ],
)
def test_who_accepts_gzip(header: bytes, accepted: bool) -> None:
    assert accepts_gzip(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n") is accepted


def test_gzip_is_gzip_and_smaller() -> None:
    body = b"kafka_log_log_size 1\n" * 1000
    assert gzip.decompress(gzipped(body)) == body
    assert len(gzipped(body)) < len(body) // 20
