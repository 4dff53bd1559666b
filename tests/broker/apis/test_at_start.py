"""What a broker serves before the first push."""

from __future__ import annotations

import logging

from barnabas.broker.apis.at_start import SERVED_FROM_THE_START, served_at_start
from barnabas.broker.apis.table import TABLE
from barnabas.broker.requests.answers import Close


def test_other_requests_than_pushes_and_api_versions_close_their_connection_without_a_warning() -> None:
    served = served_at_start(TABLE)
    assert served.keys() == TABLE.keys()
    for key, row in served.items():
        if key in SERVED_FROM_THE_START:
            assert row is TABLE[key]
            continue
        answer = row.handle(None, None)  # type: ignore[arg-type]
        assert isinstance(answer, Close)
        assert (answer.reason, answer.level) == ("the broker is starting", logging.DEBUG)
