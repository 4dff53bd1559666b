"""Signals are raised at once, or held until a client has served its callbacks."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from barnabas.cli.errors import EndedBySignal
from barnabas.cli.records.signals import Signals

NUMBERS = (signal.SIGINT, signal.SIGTERM)
RAISED = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, EndedBySignal)]


@pytest.fixture(autouse=True)
def _default_handlers() -> Iterator[None]:
    """Set the handlers that Python begins with. Why: a parent may ignore SIGINT (nohup, a shell's background job)."""
    before = [signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGTERM, signal.SIG_DFL)]
    yield
    for number, handler in zip(NUMBERS, before, strict=True):
        signal.signal(number, handler)


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


@pytest.mark.parametrize(("number", "raised"), RAISED)
def test_a_second_signal_ends_the_process(number: signal.Signals, raised: type[BaseException]) -> None:
    with Signals().caught():
        with pytest.raises(raised):
            signal.raise_signal(number)
        assert [signal.getsignal(each) for each in NUMBERS] == [signal.SIG_DFL, signal.SIG_DFL]


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Signals().caught():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(EndedBySignal):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
