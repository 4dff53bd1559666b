"""The live page of a process that is a broker and a controller, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live_page.browser import DESKTOP, Browser
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("chromium", "chromedriver")


def test_the_menu_leads_to_each_role(tmp_path: Path, window: Browser) -> None:
    window.look_like(DESKTOP)
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, is_combined=True) as cluster:
        node = cluster.brokers[0]
        window.open(f"http://{node.host}:{node.metrics_port}/live")
        eventually("the broker", lambda: window.driver.title == "broker 0 \xb7 Barnabas")
        window.driver.find_element("link text", "controller 0").click()
        eventually("the controller", lambda: window.driver.title == "controller 0 \xb7 Barnabas")
        assert window.text("#peers a[aria-current]") == "controller 0"
        assert "role=controller" in window.driver.current_url
        assert "theme" not in window.driver.current_url
        window.driver.find_element("link text", "broker 0").click()
        eventually("the broker again", lambda: window.driver.title == "broker 0 \xb7 Barnabas")
