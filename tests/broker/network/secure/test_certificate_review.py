"""The thread that reviews certificates."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from barnabas.broker.network.secure.certificate_review import CertificateReview

WAIT_S = 20


def test_it_reviews_until_the_end_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    reviewed = threading.Semaphore(0)

    class Endpoints:
        def review(self) -> None:
            reviewed.release()
            raise RuntimeError("a bug")

    endpoints: Any = Endpoints()
    review = CertificateReview(endpoints, 1)
    review.start()
    assert reviewed.acquire(timeout=WAIT_S)
    assert reviewed.acquire(timeout=WAIT_S)
    review.shutdown()
    assert "could not be reviewed" in caplog.text
    review.shutdown()


def test_one_that_never_started_ends() -> None:
    endpoints: Any = None
    CertificateReview(endpoints, 1).shutdown()
