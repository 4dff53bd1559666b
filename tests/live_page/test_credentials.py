"""The live page of a process whose pages ask for credentials, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live_page.browser import Browser
from tests.support.cluster import BarnabasCluster

pytestmark = pytest.mark.needs("chromium", "chromedriver")


def test_a_browser_presents_the_token_as_a_password(tmp_path: Path, window: Browser) -> None:
    config = {"barnabas.pages.auth.token": "t0ken"}
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config) as cluster:
        node = cluster.nodes[0]
        address = f"{node.host}:{node.metrics_port}/live"
        window.open(f"http://token:t0ken@{address}")
        assert window.driver.title == "broker 0 · Barnabas"
        window.open(f"http://{address}")  # the browser keeps them for the site
        window.leave()
