"""Limits on connections and on the rate of new ones."""

from __future__ import annotations

import threading

import pytest

from barnabas.broker.network import connection_quotas
from barnabas.broker.network.connection_quotas import (
    ConnectionQuotas,
    ConnectionThrottledError,
    RateLimit,
    TooManyConnectionsError,
)
from barnabas.broker.quotas.rates import Window
from barnabas.common.clock import NS_PER_MS, FakeClock, SystemClock

TIMEOUT_S = 60
WINDOW = Window(11, 1000)


def quotas(**limits: object) -> ConnectionQuotas:
    made = ConnectionQuotas(SystemClock(), **limits)  # type: ignore[arg-type]
    made.add_listener("CLIENT")
    return made


class Waiter:
    """Acquires on its own thread."""

    def __init__(self, quotas: ConnectionQuotas, listener: str = "CLIENT") -> None:
        self.waited_ns = -1
        self.done = threading.Event()
        self._quotas, self._listener = quotas, listener
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.waited_ns = self._quotas.acquire(self._listener, "10.0.0.9")
        self.done.set()

    def must_wait(self) -> None:
        assert not self.done.wait(0.02)

    def must_be_let_in(self) -> None:
        assert self.done.wait(TIMEOUT_S)
        self._thread.join()


def test_an_address_has_a_limit() -> None:
    limited = quotas(max_per_ip=2, per_ip_overrides={"127.0.0.1": 1})
    assert limited.acquire("CLIENT", "10.0.0.1") == 0
    limited.acquire("CLIENT", "10.0.0.1")
    with pytest.raises(TooManyConnectionsError, match="maximum of 2"):
        limited.acquire("CLIENT", "10.0.0.1")
    assert (limited.count("10.0.0.1"), limited.total()) == (3, 3), "a refused one is counted until it is closed"
    limited.release("CLIENT", "10.0.0.1")
    limited.acquire("CLIENT", "127.0.0.1")
    with pytest.raises(TooManyConnectionsError, match="maximum of 1"):
        limited.acquire("CLIENT", "127.0.0.1")
    limited.update(max_per_ip=5, per_ip_overrides={})
    limited.acquire("CLIENT", "127.0.0.1")
    assert limited.count("10.0.0.2") == 0


def test_the_acceptor_waits_at_the_limit() -> None:
    limited = quotas(max_connections=1)
    limited.acquire("CLIENT", "10.0.0.1")
    waiter = Waiter(limited)
    waiter.must_wait()
    limited.release("CLIENT", "10.0.0.1")
    waiter.must_be_let_in()
    assert waiter.waited_ns > 0
    second = Waiter(limited)
    second.must_wait()
    limited.update(max_connections=2)
    second.must_be_let_in()
    third = Waiter(limited)
    third.must_wait()
    limited.close()
    third.must_be_let_in()


def test_a_listener_has_its_own_limit() -> None:
    limited = quotas()
    limited.add_listener("SMALL", limit=1)
    limited.acquire("SMALL", "10.0.0.1")
    limited.acquire("CLIENT", "10.0.0.1")
    waiter = Waiter(limited, "SMALL")
    waiter.must_wait()
    limited.update_listener("SMALL", 2, 2**31 - 1)
    waiter.must_be_let_in()


def test_broker_connections_exceed_the_limit_and_a_client_connection_closes() -> None:
    limited = quotas(max_connections=1, inter_broker_listener="BROKER")
    limited.add_listener("BROKER")
    assert not limited.is_reached("CLIENT")
    limited.acquire("CLIENT", "10.0.0.1")
    assert not limited.is_exceeded("CLIENT")
    assert limited.is_reached("CLIENT")
    assert not limited.is_reached("BROKER")
    limited.acquire("BROKER", "10.0.0.2")
    assert limited.is_exceeded("CLIENT")
    assert not limited.is_exceeded("BROKER")
    limited.release("CLIENT", "10.0.0.1")
    assert not limited.is_exceeded("CLIENT")


def test_a_rate_of_connections_has_a_limit() -> None:
    limit = RateLimit(10, WINDOW)
    assert [limit.take(0) for _ in range(100)] == [0] * 100, "ten samples' worth may come at once"
    assert limit.take(0) == 100
    limit.take_back(0)
    assert limit.take(100) == 0
    limit.limit = 1
    assert limit.take(100) == 1000, "a wait is at most one sample long"
    assert RateLimit(2**31 - 1, WINDOW).take(0) == 0
    assert RateLimit(0, WINDOW).take(0) == WINDOW.sample_ms, "as in Kafka: one connection for each sample"


def test_an_address_that_opens_connections_too_fast_is_not_let_in() -> None:
    clock = FakeClock()
    limited = ConnectionQuotas(clock, max_creation_rate=1000)
    limited.add_listener("CLIENT", creation_rate=1000)
    limited.set_address_rates({"10.0.0.1": 1, "127.0.0.1": 2})
    for _ in range(10):
        limited.acquire("CLIENT", "10.0.0.1")
    for _ in range(3):
        with pytest.raises(ConnectionThrottledError) as throttled:
            limited.acquire("CLIENT", "10.0.0.1")
        assert throttled.value.throttle_ms == 1000
    assert (limited.total(), limited.count("10.0.0.1")) == (10, 10), "those do not count"
    assert limited.address_throttle_ms("CLIENT") == 1000
    for _ in range(40):
        limited.acquire("CLIENT", "10.0.0.2")
    for _ in range(20):
        limited.acquire("CLIENT", "127.0.0.1")
    with pytest.raises(ConnectionThrottledError):
        limited.acquire("CLIENT", "127.0.0.1")
    clock.advance_ms(11_000)
    limited.acquire("CLIENT", "10.0.0.1")
    limited.set_address_rates({})
    limited.acquire("CLIENT", "10.0.0.1")


def test_all_other_addresses_have_a_limit_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_quotas, "ADDRESSES_MAX", 10)
    limited = ConnectionQuotas(FakeClock())
    limited.add_listener("CLIENT")
    limited.set_address_rates({None: 1, "10.0.0.1": 5})
    for number in range(50):
        limited.acquire("CLIENT", f"10.0.1.{number}")
        assert len(limited._rates_by_address) <= 10
    for _ in range(9):
        limited.acquire("CLIENT", "10.0.1.49")
    with pytest.raises(ConnectionThrottledError):
        limited.acquire("CLIENT", "10.0.1.49")
    for _ in range(50):
        limited.acquire("CLIENT", "10.0.0.1")
    limited.set_address_rates({None: 100})
    limited.acquire("CLIENT", "10.0.1.49")


class ExpiredCondition(threading.Condition):
    """A condition whose waits time out at once."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "a wait without timeout would never end"
        self._clock.advance_ms(round(timeout * 1000))
        return False


def test_connections_over_the_rate_are_accepted_later() -> None:
    clock = FakeClock()
    limited = ConnectionQuotas(clock, max_creation_rate=20)
    limited._changed = ExpiredCondition(clock)
    limited.add_listener("CLIENT")
    waits_ms = [limited.acquire("CLIENT", "10.0.0.1") / NS_PER_MS for _ in range(202)]
    assert waits_ms == [*[0] * 200, 50, 50]
    assert limited.throttle_ms("CLIENT") == 50


def test_host_names_of_overrides_are_resolved() -> None:
    limited = ConnectionQuotas(FakeClock(), per_ip_overrides={"localhost": 0})
    limited.add_listener("CLIENT")
    with pytest.raises(TooManyConnectionsError):
        limited.acquire("CLIENT", "127.0.0.1")
