"""The dashboards, their provisioning and the compose file fit together, as far as files can tell.

Tests build.py, panels.py, cluster.py, consumer_lag.py, replication.py, request_pipeline.py and topics.py of dashboards.
"""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from barnabas.metrics.names import family_names
from barnabas.metrics.table.catalogue import METRICS
from dashboards import build
from tests.support.docker.compose_cluster import BROKERS, CONTROLLERS, NODES, PLAIN, SECURE, compose_file, dashboards
from tests.support.docker.images import PYTHON_IMAGE, ROOT


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / "dashboards" / path).read_text())


def mount_of(service: str, target: str, file: str = PLAIN[0]) -> str:
    """Return the directory of the repository that a service has at `target`."""
    for volume in compose_file(file)["services"][service]["volumes"]:
        source, path, *_ = volume.split(":")
        if path == target:
            return str(source)
    raise AssertionError(f"{service} mounts nothing at {target}")


def test_the_files_are_current() -> None:
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
        chosen, *others = board["templating"]["list"]
        assert (chosen["type"], chosen["query"]) == ("datasource", source["type"])
        assert chosen["current"]["value"] == source["uid"], "what a board shows before anybody has chosen"
        users = [*others, *(panel for panel in board["panels"] if panel["type"] != "row")]
        found = {(user["datasource"]["type"], user["datasource"]["uid"]) for user in users}
        assert found == {(source["type"], f"${{{chosen['name']}}}")}


def test_all_queries_select_the_chosen_clusters() -> None:
    """With two clusters on one Prometheus, each board can show one of them."""
    for name, board in dashboards().items():
        _, clusters, *others = board["templating"]["list"]
        assert (clusters["name"], clusters["allValue"]) == ("cluster", ".*")
        asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets") or ()]
        asked += [variable["query"] for variable in others]
        series = [
            found for text in asked for found in re.findall(r"\b(?:kafka|barnabas|process)_[a-z0-9_]+(.[^}]*)", text)
        ]
        assert len(series) >= len(asked), name
        assert [text for text in series if not (text[0] == "{" and 'cluster=~"$cluster"' in text)] == [], name


def test_boards_link_to_each_other() -> None:
    for board in dashboards().values():
        (link,) = board["links"]
        assert (link["type"], link["includeVars"], link["keepTime"]) == ("dashboards", True, True)
        assert set(link["tags"]) <= set(board["tags"])


def test_a_cluster_s_label_is_scraped() -> None:
    for job in read("prometheus.yml")["scrape_configs"]:
        (static,) = job["static_configs"]
        assert static["labels"]["cluster"]


def test_dashboards_are_provisioned_and_home() -> None:
    (provider,) = read("provisioning/dashboards/barnabas.yml")["providers"]
    assert mount_of("grafana", provider["options"]["path"]) == "./dashboards/json"
    for kind in ("dashboards", "datasources"):  # not the directory above, which contains more
        assert mount_of("grafana", f"/etc/grafana/provisioning/{kind}") == f"./dashboards/provisioning/{kind}"
    home = compose_file()["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.rpartition("/")[0] == provider["options"]["path"]
    assert home.rpartition("/")[2] in dashboards()


def test_every_panel_has_texts_and_a_place() -> None:
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


def test_the_secured_scrape_differs_only_in_tls_and_the_token() -> None:
    where = mount_of("prometheus", "/etc/prometheus/prometheus.yml", SECURE[1])
    assert where == "./dashboards/prometheus-secure.yml"
    plain, secured = read("prometheus.yml"), read("prometheus-secure.yml")
    directory = "/secrets/pages"
    assert mount_of("prometheus", directory, SECURE[1]) == "pages"
    for job in secured["scrape_configs"]:
        assert job.pop("scheme") == "https"
        assert job.pop("authorization") == {"credentials_file": f"{directory}/pages_token"}
        assert job.pop("tls_config") == {"ca_file": f"{directory}/ca.pem"}
    assert secured == plain


@pytest.mark.needs("promtool")
def test_alerts_fire_when_they_should_and_only_then() -> None:
    """`alerts_test.yml` has both cases of every alert."""
    assert mount_of("prometheus", "/etc/prometheus/alerts.yml") == "./dashboards/alerts.yml"
    assert read("prometheus.yml")["rule_files"] == ["alerts.yml"]
    result = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yml"], cwd=ROOT / "dashboards", capture_output=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    alerts = {rule["alert"] for group in read("alerts.yml")["groups"] for rule in group["rules"]}
    cases = [case["alert_rule_test"][0] for case in read("alerts_test.yml")["tests"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == alerts


def test_every_alert_and_panel_queries_existing_series() -> None:
    """Every name in an expression is one of the catalogue."""
    known = {name for row in METRICS for name in family_names(row)} | {"up"}
    expressions = [rule["expr"] for group in read("alerts.yml")["groups"] for rule in group["rules"]]
    for board in dashboards().values():
        expressions += [target["expr"] for panel in board["panels"] for target in panel.get("targets") or ()]
    asked = {name for text in expressions for name in re.findall(r"\b(?:kafka|barnabas)_[a-z0-9_]+(?=[{ )\[])", text)}
    assert len(asked) > 80
    assert sorted(asked - known - {"kafka_cluster"}) == []


def test_labels_of_public_dashboards_are_set() -> None:
    for job in read("prometheus.yml")["scrape_configs"]:
        (static,) = job["static_configs"]
        assert static["labels"].keys() >= {"env", "namespace", "cluster", "kafka_cluster", "strimzi_io_cluster"}
        made = {rule["target_label"] for rule in job["relabel_configs"]}
        assert made >= {"instance", "kubernetes_pod_name"}


def test_the_tests_use_the_image_of_the_dockerfile() -> None:
    assert f"ARG PYTHON_IMAGE={PYTHON_IMAGE}\n" in (ROOT / "Dockerfile").read_text()


def test_brokers_differ_in_name_and_ports_only() -> None:
    services = compose_file()["services"]
    assert [services[name]["environment"]["KAFKA_NODE_ID"] for name in BROKERS] == ["0", "1", "2"]
    own = r"(?<!KAFKA_BARNABAS_LIVE_PEERS: )broker-\d|PORT_\d:-9\d(92|04)|KAFKA_NODE_ID: '\d'"
    assert len({re.sub(own, "", yaml.safe_dump(services[name], width=1000)) for name in BROKERS}) == 1


#: A published port: variable and default of its host, variable and default of its number, its target.
PORT = re.compile(r"\$\{(\w+):-127\.0\.0\.1\}:\$\{(\w+):-(\d+)\}:(\d+)")


def test_ports_are_published_on_the_loopback_interface_and_documented() -> None:
    documents, numbers = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")], []
    documented = "".join(path.read_text() for path in documents)
    for name in NODES:
        for port in compose_file()["services"][name]["ports"]:
            found = PORT.fullmatch(port)
            assert found, f"{name}: {port}"
            numbers.append(found[3])
    assert len(set(numbers)) == len(numbers) == 2 * len(BROKERS) + len(CONTROLLERS)
    assert [number for number in numbers if number not in documented] == []


@pytest.mark.parametrize("name", NODES)
def test_peers_have_the_addresses_of_the_published_pages(name: str) -> None:
    services = compose_file()["services"]
    found = {}
    for text in services[name]["environment"]["KAFKA_BARNABAS_LIVE_PEERS"].split(","):
        process, _, address = text.strip().partition("=")
        found[process] = address.replace("localhost", "127.0.0.1")
    published = {}
    for node in NODES:
        (pages,) = [port for port in services[node]["ports"] if port.endswith(":9404")]
        id_ = services[node]["environment"]["KAFKA_NODE_ID"]
        published[f"{node.partition('-')[0]}-{id_}"] = pages.removesuffix(":9404")
    assert found == published


SPARK = ("pipeline", "spark-master", "spark-worker")


@pytest.mark.parametrize("name", sorted(compose_file()["services"]))
def test_every_container_has_limits_and_no_privileges(name: str) -> None:
    service = compose_file()["services"][name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit"} <= service.keys()
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
    assert service.get("read_only", False) is (name not in SPARK)
    assert name in SPARK or "/tmp" in service["tmpfs"]


def test_services_wait_for_their_dependencies() -> None:
    waits = {
        (name, needed): how["condition"]
        for name, service in compose_file()["services"].items()
        if name != "spark-worker"  # it retries until there is a master
        for needed, how in service.get("depends_on", {}).items()
    }
    of_quorum = {(name, needed) for name in BROKERS for needed in CONTROLLERS}
    assert of_quorum | {("grafana", "prometheus")} <= waits.keys()
    # One controller may fail, so no broker waits until all are healthy.
    expected = {pair: "service_started" if pair in of_quorum else "service_healthy" for pair in waits}
    assert waits == expected
