"""The output of `barnabas up` when it is ready."""

from __future__ import annotations

from pathlib import Path

from barnabas.cli.local.ready import Ready
from barnabas.cluster import LocalCluster
from barnabas.cluster.security.cluster_security import ClusterSecurity
from barnabas.common.pages.page_access import write_access


def test_the_line_for_programs_can_be_parsed() -> None:
    for ready in (Ready("h:1,h:2", "h:3"), Ready("h:1", "", "http://h:4")):
        assert Ready.parse(ready.line()) == ready
    assert Ready("h:1", "h:2").line() == "ready bootstrap=h:1 metrics=h:2"
    assert Ready.parse("barnabas: unknown config key x is ignored") is None
    assert Ready.parse("") is None


def test_the_summary_names_addresses_and_next_steps() -> None:
    summary = Ready("h:1,h:2", "h:3,h:4").summary(Path("/data"), is_temporary=True, is_detached=False)
    assert summary[0] == "Barnabas is ready: 2 brokers and a controller."
    assert summary[1:5] == [
        "  bootstrap  h:1,h:2",
        "  live page  http://h:3/live",
        "  data       /data (removed at the end; --data-dir keeps it)",
        "  stop       Ctrl-C, or: barnabas down",
    ]
    summary = Ready("h:1", "", "http://h:5").summary(Path("/data"), is_temporary=False, is_detached=True)
    assert summary[2:6] == [
        "  live page  none (barnabas.metrics.port=-1)",
        "  faults     http://h:5",
        "  data       /data (kept)",
        "  stop       barnabas down",
    ]


def test_the_summary_of_a_secured_cluster_says_how_to_open_its_pages(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path, "SASL_PLAINTEXT", {}, 0)
    security.prepare([], "h:1")
    cluster = LocalCluster(tmp_path, 1, 0, security=security)
    write_access(tmp_path, cluster.page_access)
    ready = Ready("h:1", "h:2", security=str(security.directory))
    summary = ready.summary(tmp_path, is_temporary=False, is_detached=False)
    token = (security.directory / "pages_token").read_text()
    assert f"  live page  http://token:{token}@h:2/live" in summary
    assert any(line.startswith("The pages ask for the user token") for line in summary)
    assert token not in ready.line()
