"""The settings for clients that `barnabas up --security` prints."""

from __future__ import annotations

from pathlib import Path

from barnabas.cli.local.client_settings import settings_lines
from barnabas.cluster.security.cluster_security import ClusterSecurity


def test_the_settings_of_the_first_user_are_shown_for_each_client(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path, "SASL_SSL", {"alice": "secret"}, 0)
    security.prepare([], "h:1")
    lines = settings_lines(security.directory)
    assert lines[0].startswith("Users: admin, alice. ")
    text = "\n".join(lines)
    assert "Settings of alice:" in lines
    assert "    sasl.password=secret" in lines  # librdkafka
    assert "    security.protocol=SASL_SSL" in lines
    assert '"sasl_plain_password": "secret"' in text
    assert '"kafka.security.protocol": "SASL_SSL"' in text
    assert "barnabas acl add alice read 'group:*'" in text
    assert security.users["admin"] not in text


def test_without_users_those_of_admin_are_shown(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path, "SASL_PLAINTEXT", {}, 0)
    security.prepare([], "h:1")
    lines = settings_lines(security.directory)
    assert "Settings of admin:" in lines
    assert any("barnabas acl add alice" in line for line in lines)
