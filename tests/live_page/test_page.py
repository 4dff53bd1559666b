"""The live page in a real browser: a paused follower, light and dark, on a phone, by keyboard."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from barnabas.client.connection import NodeConnection
from barnabas.cluster import CONTROLLER_ID
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.k72_push_telemetry import PushTelemetryRequest
from tests.broker.telemetry.payloads import Payload
from tests.live_page.browser import CONTROLS, DESKTOP, LOW_CONTRAST, PHONE, TOO_WIDE, Browser
from tests.live_page.conftest import CLIENT, LEADER, Stalled
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("chromium", "chromedriver")

LONG_MS = 1200  # an active page sends two requests in this time
PANELS = ("waiting", "threads", "slow", "partitions", "groups", "clients")
MEASURING = "<b>etl</b>"
CLIENT_METRICS = 16  # the type of the config resource

#: The panel of slow requests, of one request: how many percent of the wide bar each of its times has.
SLOW_BAR = """
const panel = document.createElement("section");
document.querySelector("main").append(panel);
return import("/live/slow.js").then(({ slowPanel }) => {
  slowPanel(panel)({ requests: { slow: [arguments[0]], errors: [] } });
  const bar = panel.querySelector(".columns > :last-child .stack");
  return [...bar.children].map((piece) => (100 * piece.getBoundingClientRect().width) / bar.clientWidth);
});
"""


@pytest.fixture(autouse=True)
def on_a_desk(window: Browser) -> None:
    window.look_like(DESKTOP)


@pytest.fixture(scope="module")
def measuring(stalled: Stalled) -> Iterator[NodeConnection]:
    """The connection of a client that has pushed what it measured to the leader."""
    node = stalled.cluster.nodes[LEADER]
    settings = {"metrics": "org.apache.kafka.producer.", "match": "client_id=<b>.*"}
    changes = [AlterableConfig(name=name, value=value) for name, value in settings.items()]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="measured", configs=changes)
    with NodeConnection(node.host, node.port, client_id="admin") as admin:
        (answer,) = admin.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0
    payload = Payload().gauge("org.apache.kafka.producer.request.latency.avg", 1234.0).encoded()
    with NodeConnection(node.host, node.port, client_id=MEASURING) as connection:

        def asked() -> GetTelemetrySubscriptionsResponse | None:
            answer = connection.send(GetTelemetrySubscriptionsRequest(), 0)
            return answer if answer.requested_metrics else None

        subscription = eventually("the leader knows the subscription", asked)
        of_it = {
            "client_instance_id": subscription.client_instance_id,
            "subscription_id": subscription.subscription_id,
        }
        assert connection.send(PushTelemetryRequest(**of_it, metrics=payload), 0).error_code == 0
        yield connection


@pytest.fixture
def page(stalled: Stalled, window: Browser) -> Browser:
    window.open(stalled.url())
    return window


def test_it_shows_the_produce_that_waits_for_the_stalled_follower(page: Browser) -> None:
    page.show("waiting")
    sentence = f"Produce of client {CLIENT} waits for offset 2 of orders-0 on replica 2, whose fetcher is at 1 and "
    eventually("the reason", lambda: any(text.startswith(sentence) for text in page.texts(".waiting .sentence")))
    eventually("it is the headline", lambda: page.text("#headline").startswith("1 produce waits for replica 2, which"))
    assert page.script("return document.querySelector('#headline').dataset.mood") == "warn"
    assert "1 of 2: 1 record to go" in page.texts(".lag li span:last-child")
    assert page.text("#tabs a[aria-current] .badge") == "1"
    assert len(page.all(".stage[data-stage='purgatories'] .chips i[data-family='produce'][data-old]")) == 1
    assert eventually("the announcement is made", lambda: page.script("return announcement.textContent"))


def test_text_from_clients_stays_text(page: Browser) -> None:
    for panel in PANELS:
        page.show(panel)
    page.show("waiting")
    eventually("the name is shown", lambda: CLIENT in page.text("#panels"))
    assert page.all("#panels img, #picture img") == []
    assert page.driver.title == "broker 0 · Barnabas"
    assert page.complaints() == []


def test_partitions_show_the_position_of_each_replica(page: Browser) -> None:
    page.show("partitions")
    eventually("orders-0", lambda: "orders-0" in page.texts(".partition h3"))
    wanted = [["replica 0", "leader"], ["replica 1", "caught up"], ["replica 2", "1 behind"]]
    eventually("its lanes", lambda: [lane.split("\n") for lane in page.texts(".partition .lanes li")][:3] == wanted)
    marks = page.script(
        "return [...document.querySelectorAll('.lane')].map((lane) => lane.style.getPropertyValue('--mark'))"
    )
    assert marks[0] == marks[2], "the high watermark is where the last replica is"
    page.script("document.querySelector('input[type=search]').focus()")
    page.press("nothing-like-it")
    eventually("the filter is asked for", lambda: page.texts(".partition h3") == [])
    assert len(page.all(".stage[data-stage='purgatories'] .chips i[data-family='produce']")) == 1, "of partitions only"


def test_a_slow_request_shows_its_six_times(page: Browser) -> None:
    page.show("slow")
    eventually("slow requests", lambda: page.all(".slow button"))
    page.driver.find_element("id", "pause").click()  # so that no slower request replaces the last one
    choices = page.all(".slow button")
    choices[-1].send_keys(Keys.ENTER)
    eventually("it is chosen", lambda: choices[-1].get_attribute("aria-pressed") == "true")
    api = choices[-1].text.split()[0]
    assert page.text("#panel-slow .columns .block:last-child h2").startswith(f"{api} v")
    stations = page.texts(".stations b")
    assert stations == ["Request queue", "Local", "Remote", "Throttle", "Response queue", "Send"]


@pytest.mark.parametrize("total_ms", [0.3, 3, 3000])
def test_the_six_times_of_a_request_fill_their_bar(page: Browser, total_ms: float) -> None:
    times = {"request_queue": total_ms / 4, "local": total_ms / 2, "send": total_ms / 4}
    request = {"api": "Produce", "version": 9, "connection": "c", "correlation_id": 1, "size_bytes": 1, "age_ms": 1}
    pieces = page.script(SLOW_BAR, {**request, "total_ms": total_ms, "times_ms": times})
    assert pieces == pytest.approx([25, 50, 0, 0, 0, 25], abs=1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("node_id", [LEADER, CONTROLLER_ID])
def test_it_is_readable(stalled: Stalled, window: Browser, size: tuple[int, int], scheme: str, node_id: int) -> None:
    window.look_like(size, scheme)
    window.open(stalled.url(node_id))
    light = window.script("return getComputedStyle(document.body).backgroundColor")
    assert (light == "rgb(244, 246, 249)") is (scheme == "light")
    for panel in PANELS if node_id == LEADER else ("brokers", "threads", "slow"):
        window.show(panel)
        checked, low = window.script(LOW_CONTRAST)
        assert (checked > 30, low) == (True, []), panel
        assert window.script(TOO_WIDE) == [], panel
        assert window.script("return document.documentElement.scrollWidth") <= size[0], panel


def test_every_control_is_reached_by_keyboard_and_shows_its_focus(page: Browser) -> None:
    page.show("slow")
    eventually("slow requests", lambda: page.all(".slow button"))
    page.press(Keys.ESCAPE)
    page.driver.find_element("id", "pause").send_keys(Keys.ENTER)  # so that nothing changes meanwhile
    eventually("it is paused", lambda: page.text("#pulse-text") == "paused")
    visited = page.tab_through()
    controls = page.script(CONTROLS)
    assert [control.get_attribute("outerHTML")[:100] for control in controls if control not in visited] == []
    for control in controls:
        assert "solid 3px" in visited[control], control.get_attribute("outerHTML")
        assert control.accessible_name, control.get_attribute("outerHTML")
    tab = page.driver.find_element("css selector", "#tabs a[href='#groups']")
    tab.send_keys(Keys.ENTER)
    eventually("the panel is there", lambda: page.script("return !document.getElementById('panel-groups').hidden"))


def test_the_focus_stays_while_the_page_updates(page: Browser) -> None:
    page.show("slow")
    eventually("slow requests", lambda: page.all(".slow button"))
    page.script("document.querySelector('.slow button').focus(); window.kept = document.activeElement")
    before = page.text("#about")
    eventually("two answers later", lambda: page.text("#about") != before)
    assert page.script("return document.activeElement === window.kept")


def test_pausing_and_resuming(page: Browser) -> None:
    page.driver.find_element("id", "pause").click()
    assert page.text("#pulse-text") == "paused"
    assert page.script("return pause.getAttribute('aria-pressed')") == "true"
    asked = "return performance.getEntriesByType('resource').filter((e) => e.name.includes('live.json')).length"
    page.script("performance.clearResourceTimings()")
    page.script(f"return new Promise((done) => setTimeout(done, {LONG_MS}))")
    assert page.script(asked) <= 1, "the question that was under way"
    page.driver.find_element("id", "pause").click()
    eventually("it goes on", lambda: page.text("#pulse-text") == "live" and page.script(asked) >= 2)


def test_a_hidden_page_sends_no_requests(page: Browser) -> None:
    page.script(
        """
        const asked = () => performance.getEntriesByType("resource").filter((e) => e.name.includes("live.json")).length;
        window.seen = [];
        document.addEventListener("visibilitychange", () => window.seen.push([document.hidden, asked()]));
        window.asked = asked;
        """
    )
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")  # hides the first one
    try:
        page.script(f"return new Promise((done) => setTimeout(done, {LONG_MS}))")
    finally:
        page.driver.close()
        page.driver.switch_to.window(first)
    (is_hidden, before), (is_still, after) = eventually("it is seen again", lambda: page.script("return seen"))[-2:]
    assert (is_hidden, is_still) == (True, False)
    assert after - before <= 1, "the question that was under way"
    eventually("it goes on", lambda: page.script("return asked()") > after + 1)


def test_the_chosen_theme_is_kept_on_another_broker(stalled: Stalled, page: Browser) -> None:
    theme = page.driver.find_element("id", "theme")
    theme.click()
    theme.click()
    assert (theme.text, theme.get_attribute("aria-label")) == ("Dark", "Colours: dark")
    assert page.script("return getComputedStyle(document.body).backgroundColor") == "rgb(13, 18, 24)"
    page.driver.find_element("link text", "broker 1").click()
    eventually("broker 1's page", lambda: page.driver.title == "broker 1 · Barnabas")
    assert page.text("#peers a[aria-current]") == "broker 1"
    assert page.script("return getComputedStyle(document.body).backgroundColor") == "rgb(13, 18, 24)"
    assert "theme" not in page.driver.current_url
    for node_id in (1, LEADER):  # each is another origin with its own storage
        page.open(stalled.url(node_id))
        page.script("localStorage.clear()")


def test_dots_move_unless_motion_is_unwanted(stalled: Stalled, window: Browser) -> None:
    window.open(stalled.url())
    eventually("something moves", lambda: window.all(".flow circle"))
    window.look_like(DESKTOP, reduced_motion=True)
    window.open(stalled.url())
    before = window.text("#about")
    eventually("answers later", lambda: window.text("#about") != before)
    assert window.all(".flow circle") == []
    moving = "return document.getAnimations().filter((each) => each.playState === 'running').length"
    assert window.script(moving) == 0


def test_a_broker_that_does_not_answer_is_shown_as_such(stalled: Stalled, window: Browser) -> None:
    window.open(stalled.url(1))
    stalled.signal(1, signal.SIGSTOP)
    try:
        eventually("it is missed", lambda: window.text("#headline").startswith("This broker does not answer"))
        assert window.text("#pulse-text") == "no answer"
    finally:
        stalled.signal(1, signal.SIGCONT)
    eventually("it is back", lambda: window.text("#pulse-text") == "live")


def test_the_checks_of_this_file_can_fail(page: Browser) -> None:
    page.script(
        """
        const pale = document.createElement("p");
        pale.textContent = "hardly to be read";
        pale.style.color = "#999";
        pale.style.width = "2000px";
        document.querySelector("main").append(pale);
        """
    )
    _, low = page.script(LOW_CONTRAST)
    assert [text.partition(":")[0] for text in low] == ["hardly to be read"]
    assert any("hardly to be read" in node for node in page.script(TOO_WIDE))
    page.script("const button = document.createElement('button'); button.tabIndex = -1; document.body.append(button)")
    visited = page.tab_through()
    assert any(control not in visited for control in page.script(CONTROLS))


def test_what_a_client_measures_is_beside_what_the_broker_does(page: Browser, measuring: NodeConnection) -> None:
    page.show("clients")
    eventually("the client", lambda: MEASURING in page.text("#panel-clients"))
    (row,) = page.texts("#panel-clients tbody tr")
    assert "1.2 s" in row
    assert "Produce" in row
    assert page.all("#panel-clients b") == []
    measuring.close()
    eventually("it is gone", lambda: "No client pushes its metrics" in page.text("#panel-clients"))
