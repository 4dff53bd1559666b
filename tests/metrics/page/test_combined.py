"""Two registries on one page."""

from __future__ import annotations

import pytest

from barnabas.common.clock import FakeClock
from barnabas.metrics.page.combined import CombinedRegistry
from barnabas.metrics.page.exposition import render
from barnabas.metrics.registry import ForeignFamily, Registry
from barnabas.metrics.table import catalogue as c


def combined() -> tuple[CombinedRegistry, Registry, Registry]:
    clock = FakeClock()
    broker, controller = Registry(clock), Registry(clock)
    return CombinedRegistry(clock, broker, controller), broker, controller


def series(registry: Registry) -> dict[str, str]:
    lines = [line for line in render(registry).decode().splitlines() if not line.startswith("#")]
    found = dict(line.rsplit(" ", 1) for line in lines)
    assert len(found) == len(lines), "no series twice"
    return found


def test_a_family_of_one_role_is_shown_as_it_is() -> None:
    both, broker, controller = combined()
    broker.meter(c.BYTES_IN_PER_SEC).mark(3)
    controller.gauge(c.ACTIVE_CONTROLLER_COUNT, lambda: 1)
    found = series(both)
    assert found["kafka_server_brokertopicmetrics_bytesin_total"] == "3.0"
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == "1.0"


def test_in_a_family_of_both_the_controllers_series_are_marked() -> None:
    both, broker, controller = combined()
    broker.gauge(c.REQUEST_QUEUE_SIZE, lambda: 4)
    controller.gauge(c.REQUEST_QUEUE_SIZE, lambda: 5)
    broker.histogram(c.LOCAL_TIME_MS, request="Fetch").update(1)
    controller.histogram(c.LOCAL_TIME_MS, request="Fetch").update(2)
    found = series(both)
    assert found["kafka_network_requestchannel_requestqueuesize"] == "4.0"
    assert found['kafka_network_requestchannel_requestqueuesize{role="controller"}'] == "5.0"
    assert found['kafka_network_requestmetrics_localtimems_count{request="Fetch"}'] == "1.0"
    assert found['kafka_network_requestmetrics_localtimems_count{request="Fetch",role="controller"}'] == "1.0"
    assert series(both) == found, "the next scrape too, from what is kept"


@pytest.mark.parametrize("has_controllers", [False, True])
def test_a_family_of_the_process_and_its_roles_is_shown_once(has_controllers: bool) -> None:
    both, broker, controller = combined()
    row = c.TLS_CERTIFICATE_SECONDS_LEFT
    both.gauge(row, lambda: 1, listener="pages")
    broker.gauge(row, lambda: 2, listener="SSL")
    name, expected = "barnabas_tls_certificate_seconds_left", {"pages": "1.0", "SSL": "2.0"}
    if has_controllers:
        controller.gauge(row, lambda: 3, listener="CONTROLLER")
        expected['CONTROLLER",role="controller'] = "3.0"
    page = render(both).decode()
    assert page.count(f"# TYPE {name} ") == 1
    assert {key: value for key, value in series(both).items() if key.startswith(name)} == {
        f'{name}{{listener="{labels}"}}': value for labels, value in expected.items()
    }


def test_tables_of_both_are_merged_likewise() -> None:
    both, broker, controller = combined()
    rows = (c.CLIENT_REQUESTS,)
    width = len(c.CLIENT_REQUESTS.labels)
    broker.table(rows, lambda: [(("a",) * width, (1,))])
    controller.table(rows, lambda: [(("a",) * width, (2,))])
    controller.table((c.FETCHER_LAG,), list)
    marked = {key: value for key, value in series(both).items() if 'role="controller"' in key}
    assert set(marked.values()) == {"2.0"}
    assert len([key for key in series(both) if key.startswith(next(iter(marked)).split("{")[0] + "{")]) == 2


def test_what_is_of_the_process_is_shown_once() -> None:
    both, broker, controller = combined()
    for part in (broker, controller):
        part.table((c.LOG_LINES,), lambda: [(("INFO",), (7,))])
        part.gauge(c.START_TIME_MS, lambda: 1, id=1)
    both.gauge(c.METRICS_COUNT, lambda: both.last_count)
    assert not [key for key in series(both) if "role=" in key]


def test_the_families_of_clients_and_one_lock_for_all() -> None:
    both, broker, controller = combined()
    broker.foreign(lambda: [ForeignFamily("client_x", "gauge", "x", [({"a": "b"}, 1.0)])])
    assert series(both)['client_x{a="b"}'] == "1.0"
    assert broker.scraping is controller.scraping is both.scraping
