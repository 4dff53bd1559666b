"""The live page of a cluster whose clock was moved says so, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.clock import ClusterClock
from barnabas.cluster import CONTROLLER_ID
from tests.live_page.browser import Browser
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("chromium", "chromedriver")


def test_every_page_says_how_far_the_clock_is_ahead(tmp_path: Path, window: Browser) -> None:
    config = {"barnabas.clock.enable": "true"}
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config) as cluster:
        clock = ClusterClock(cluster)
        for moved_ms, sentence in ((0, ""), (604_800_000, " The clock was moved 7 d 0 h ahead.")):
            clock.advance(moved_ms)
            for node_id in (0, CONTROLLER_ID):
                node = cluster.nodes[node_id]
                window.open(f"http://{node.host}:{node.metrics_port}/live")
                wanted = f" requests per second.{sentence}"
                eventually("the headline", lambda w=wanted: window.text("#headline").endswith(w))
        window.leave()
