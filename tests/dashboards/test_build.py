"""The dashboards, their provisioning and the compose file fit together, as far as files can tell."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from dashboards import build
from tests.support.compose_cluster import BROKERS, NODES, compose_file, dashboards
from tests.support.images import PYTHON_IMAGE, ROOT

PROVISIONING = ROOT / "dashboards" / "provisioning"


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / "dashboards" / path).read_text())


def mount_of(service: str, target: str) -> str:
    """The directory of the repository that a service sees at `target`."""
    for volume in compose_file()["services"][service]["volumes"]:
        source, path, *_ = volume.split(":")
        if path == target:
            return str(source)
    raise AssertionError(f"{service} mounts nothing at {target}")


def test_the_files_are_what_the_code_makes() -> None:
    assert build.main(["--check"]) == 0, "run `make dashboards`"


def test_a_stale_file_is_noticed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "DIRECTORY", tmp_path)
    assert build.main(["--check"]) == 1
    build.main([])
    assert build.main(["--check"]) == 0


def test_panels_name_the_provisioned_source() -> None:
    (source,) = read("provisioning/datasources/prometheus.yml")["datasources"]
    port = source["url"].rpartition(":")[2]
    assert source["url"] == f"http://prometheus:{port}"
    assert compose_file()["services"]["prometheus"]["ports"][0].endswith(f":{port}")
    for board in dashboards().values():
        panels = [panel for panel in board["panels"] if panel["type"] != "row"]
        assert {(panel["datasource"]["type"], panel["datasource"]["uid"]) for panel in panels} == {
            (source["type"], source["uid"])
        }


def test_dashboards_are_provisioned_and_home() -> None:
    (provider,) = read("provisioning/dashboards/barnabas.yml")["providers"]
    assert mount_of("grafana", provider["options"]["path"]) == "./dashboards/json"
    assert mount_of("grafana", "/etc/grafana/provisioning") == "./dashboards/provisioning"
    home = compose_file()["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.rpartition("/")[0] == provider["options"]["path"]
    assert home.rpartition("/")[2] in dashboards()


def test_every_panel_has_words_and_a_place() -> None:
    for board in dashboards().values():
        places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in board["panels"]]
        assert len(set(places)) == len(places)
        for panel in board["panels"]:
            assert panel["title"]
            assert panel["type"] == "row" or panel["description"]


def test_prometheus_scrapes_every_node() -> None:
    assert mount_of("prometheus", "/etc/prometheus/prometheus.yml") == "./dashboards/prometheus.yml"
    targets = [
        target
        for job in read("prometheus.yml")["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    ]
    assert sorted(targets) == sorted(f"{node}:9404" for node in NODES)


def test_the_test_stands_in_for_the_image_that_is_used() -> None:
    assert f"ARG PYTHON_IMAGE={PYTHON_IMAGE}\n" in (ROOT / "Dockerfile").read_text()


def test_brokers_differ_in_name_and_ports_only() -> None:
    services = compose_file()["services"]
    assert [services[name]["environment"]["KAFKA_NODE_ID"] for name in BROKERS] == ["0", "1", "2"]
    own = r"broker-\d|BARNABAS_PORT_\d|:-9\d92|KAFKA_NODE_ID: '\d'"
    assert len({re.sub(own, "", yaml.safe_dump(services[name])) for name in BROKERS}) == 1
