"""The secrets of a cluster as files."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from barnabas.client.client_properties import ClientProperties
from barnabas.cluster.security.secret_files import SecretFiles
from barnabas.common.clock import SystemClock
from barnabas.config.properties import parse_properties

NODES = {"broker-0": ["broker-0", "localhost", "127.0.0.1"], "controller": ["controller"]}


def write(directory: Path) -> dict[str, bytes]:
    """Write the secrets of a small cluster; return all files."""
    SecretFiles(directory, SystemClock().wall_ms()).write(NODES, ["admin", "alice"], "h:1", "/clients")
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_each_process_gets_its_own_files(tmp_path: Path) -> None:
    files = write(tmp_path)
    assert {name for name in files if not name.startswith("users/")} == {
        *("authority/ca.pem", "authority/ca-key.pem"),
        *("nodes/ca.pem", "nodes/pages_token", "nodes/token_key", "pages/ca.pem", "pages/pages_token"),
        *(f"nodes/{name}.{kind}" for name in NODES for kind in ("pem", "properties")),
    }
    settings = {"password", "client.properties", "librdkafka.conf", "kafka_python.json", "spark.json"}
    assert {name for name in files if name.startswith("users/alice/")} == {f"users/alice/{name}" for name in settings}
    assert files["users/admin/pages_token"] == files["pages/pages_token"] == files["nodes/pages_token"]
    for name, content in files.items():
        is_for_group = name.startswith("pages/")
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == (0o640 if is_for_group else 0o600), name
        assert (files["authority/ca-key.pem"] in content) == (name == "authority/ca-key.pem")
        assert (files["users/admin/password"] in content) == name.startswith("users/admin/") or name.endswith("token")


def test_the_settings_of_a_user_work_wherever_they_are_copied(tmp_path: Path) -> None:
    files = write(tmp_path)
    properties = parse_properties(files["users/alice/client.properties"].decode())
    assert properties["ssl.truststore.certificates"].encode() == files["users/ca.pem"]
    assert properties["bootstrap.servers"] == "h:1"
    assert ClientProperties(properties, SystemClock()).security() is not None
    assert json.loads(files["users/alice/spark.json"])["kafka.ssl.truststore.certificates"].startswith("-----BEGIN")
    assert json.loads(files["users/alice/kafka_python.json"])["ssl_cafile"] == "/clients/ca.pem"
    assert b"ssl.ca.location=/clients/ca.pem\n" in files["users/alice/librdkafka.conf"]


def test_a_node_connects_with_its_own_file(tmp_path: Path) -> None:
    write(tmp_path)
    properties = ClientProperties.load(tmp_path / "nodes" / "broker-0.properties", SystemClock())
    assert (properties.warnings, properties.protocol) == ((), "SSL")
    assert properties.tls is not None
    assert properties.tls.entry is not None


def test_a_later_run_keeps_authority_passwords_and_token(tmp_path: Path) -> None:
    first, second = write(tmp_path), write(tmp_path)
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"nodes/broker-0.pem", "nodes/controller.pem"}
    (tmp_path / "users" / "alice" / "password").write_text("")  # what a crash of the machine can leave
    assert write(tmp_path)["users/alice/password"] not in (b"", first["users/alice/password"])
