"""The end of `barnabas consume`: the consumer is closed, and a cluster that hangs is not waited for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from barnabas.cli.errors import EndedBySignal
from barnabas.cli.records import consume
from barnabas.cli.records.consume import closed_at_the_end


class Hanging:
    """A consumer whose cluster never answers."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def close(self) -> None:
        """Wait for the cluster."""
        self.released.wait()


@pytest.mark.parametrize("raised", [KeyboardInterrupt, EndedBySignal])
def test_a_signal_ends_it_though_the_cluster_hangs(
    raised: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(consume, "INTERRUPTED_FLUSH_S", 0.01)
    consumer: Any = Hanging()
    with pytest.raises(raised), closed_at_the_end(consumer):
        raise raised
    consumer.released.set()
    assert capsys.readouterr().err == "barnabas: no answer to the last commit: its records may be consumed again\n"


def test_the_consumer_is_closed_after_the_block(capsys: pytest.CaptureFixture[str]) -> None:
    consumer: Any = Hanging()
    with closed_at_the_end(consumer):
        consumer.released.set()
    assert capsys.readouterr().err == ""
