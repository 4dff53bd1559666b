"""The live page of a process whose pages ask for credentials, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.local.client_settings import login_link
from barnabas.cluster.security.cluster_security import ClusterSecurity
from barnabas.common.clock import SystemClock
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


def test_the_printed_link_opens_the_page_of_a_secured_cluster(tmp_path: Path, window: Browser) -> None:
    security = ClusterSecurity(tmp_path, "SASL_SSL", {}, SystemClock().wall_ms())
    with BarnabasCluster(tmp_path, broker_count=2, first_port=0, security=security) as cluster:
        page = f"{cluster.nodes[0].host}:{cluster.nodes[0].metrics_port}"
        window.open(login_link(cluster.page_access, page, security.directory))
        assert window.driver.title == "broker 0 · Barnabas"
        links = window.script("return [...document.querySelectorAll('#peers a')].map((link) => link.href)")
        assert len(links) == 3
        assert all(link.startswith("https://") for link in links)
        window.leave()
