"""The settings for clients that `barnabas up --security` prints."""

from __future__ import annotations

from pathlib import Path

from barnabas.cli.local.client_settings import login_link, page_lines, settings_lines
from barnabas.cluster.security.cluster_security import ClusterSecurity
from barnabas.common.pages.page_access import OPEN, TOKEN_KEY, Access


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


def test_the_link_of_the_live_page_logs_in(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path, "SSL", {}, 0)
    token = security.page_properties("broker-0", {})[TOKEN_KEY]
    own, other = Access(f"Bearer {token}", "https", "/ca"), Access("Bearer other", "https")
    assert login_link(own, "h:1", security.directory) == f"https://token:{token}@h:1/live"
    assert login_link(other, "h:1", security.directory) == "https://h:1/live"  # of the configuration: not ours to print
    assert login_link(OPEN, "h:1", None) == "http://h:1/live"


def test_how_the_pages_are_read(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path, "SSL", {}, 0)
    file = security.directory / "pages_token"
    by_tls = page_lines(Access(f"Bearer {file.read_text()}", "https", "/ca"), security.directory)
    assert by_tls[-3:] == [
        f"    authorization: {{credentials_file: {file}}}",
        "    scheme: https",
        "    tls_config: {ca_file: /ca}",
    ]
    assert file.read_text() not in "".join(by_tls)
    assert page_lines(Access(f"Bearer {file.read_text()}"), security.directory)[-1] == by_tls[-3]
    assert page_lines(Access("Bearer other"), security.directory) == []
