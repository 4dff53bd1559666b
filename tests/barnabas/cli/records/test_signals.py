"""Signals are raised at once, or held until a client has served its callbacks."""

from __future__ import annotations

import signal

import pytest

from barnabas.cli.errors import EndedBySignal
from barnabas.cli.records.signals import Signals

RAISED = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, EndedBySignal)]


@pytest.mark.parametrize(("number", "raised"), RAISED)
def test_a_signal_is_an_exception_in_the_block_only(number: signal.Signals, raised: type[BaseException]) -> None:
    before = signal.getsignal(number)
    with Signals().caught(), pytest.raises(raised):
        signal.raise_signal(number)
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(("number", "raised"), RAISED)
def test_a_held_signal_is_raised_after_the_block(number: signal.Signals, raised: type[BaseException]) -> None:
    served = []
    with Signals().caught() as signals:
        with pytest.raises(raised):  # noqa: PT012, SIM117 - the block is what is tested
            with signals.held():
                signal.raise_signal(number)
                served.append("all of it")
        with signals.held():
            served.append("and the next one")
    assert served == ["all of it", "and the next one"]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Signals().caught():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
