"""Prometheus scrapes pages that ask for a token over TLS, as docs/observing.md configures it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.dashboards.conftest import ROOT, Prometheus
from tests.support.certificates import Authority
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

TOKEN = "t0ken"


class Authorized(Prometheus):
    """A Prometheus with the settings of the documentation; the files are in its directory."""

    def _write_config(self, cluster: BarnabasCluster) -> None:
        super()._write_config(cluster)
        path = self._directory / "prometheus.yml"
        config = yaml.safe_load(path.read_text())
        (documented,) = re.findall(
            r"```yaml\n(\s+scrape_configs:.*?)```", (ROOT / "docs/observing.md").read_text(), re.S
        )
        text = textwrap.dedent(documented).replace("/run/secrets", str(self._directory))
        (job,) = yaml.safe_load(text)["scrape_configs"]
        for each in config["scrape_configs"]:
            each.update({key: job[key] for key in ("authorization", "scheme", "tls_config")})
        path.write_text(yaml.safe_dump(config))


@pytest.mark.needs("prometheus")
def test_prometheus_presents_the_token(tmp_path: Path) -> None:
    authority = Authority()
    authority.write_pem(tmp_path / "ca.pem")
    (tmp_path / "pages_token").write_text(TOKEN)
    config = {
        "barnabas.pages.auth.token": TOKEN,
        "barnabas.pages.ssl.keystore.type": "PEM",
        "barnabas.pages.ssl.keystore.location": str(authority.issue("pages").write_pem(tmp_path / "pages.pem")),
    }
    with (
        BarnabasCluster(tmp_path / "data", broker_count=1, first_port=0, config=config) as cluster,
        Authorized(cluster, tmp_path) as prometheus,
    ):
        eventually("both targets are up", lambda: values(prometheus) == ["1", "1"])


def values(prometheus: Prometheus) -> list[str]:
    return [found["value"][1] for found in prometheus.query("up")]
