"""What a broker serves before it knows the cluster."""

from __future__ import annotations

import logging

from barnabas.broker.answers import Close
from barnabas.broker.apis.at_start import SERVED_FROM_THE_START, served_at_start
from barnabas.broker.apis.table import TABLE


def test_all_but_pushes_and_api_versions_have_their_connection_closed_without_a_warning() -> None:
    served = served_at_start(TABLE)
    assert served.keys() == TABLE.keys()
    for key, row in served.items():
        if key in SERVED_FROM_THE_START:
            assert row is TABLE[key]
            continue
        answer = row.handle(None, None)  # type: ignore[arg-type]
        assert isinstance(answer, Close)
        assert (answer.reason, answer.level) == ("the broker is starting", logging.DEBUG)
