"""The choice of gzip, and the compression of pages."""

from __future__ import annotations

import gzip

import pytest

from barnabas.metrics.page.encoding import accepts_gzip, gzipped


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        (["gzip"], True),
        (["deflate , GZIP;q=0.5"], True),
        (["gzip;q=0"], False),
        (["gzip; q=0.000, *"], False),
        (["*"], True),
        (["*;q=0"], False),
        (["deflate", "gzip"], True),
        (["gzip;q=much"], False),
        ([""], False),
        (["identity"], False),
        ([], False),
    ],
)
def test_accept_encoding(values: list[str], accepted: bool) -> None:
    assert accepts_gzip(values) is accepted


def test_gzip_is_gzip_and_smaller() -> None:
    body = b"kafka_log_log_size 1\n" * 1000
    assert gzip.decompress(gzipped(body)) == body
    assert len(gzipped(body)) < len(body) // 20
