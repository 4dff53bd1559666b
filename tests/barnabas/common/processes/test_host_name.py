"""The name that a node registers when none is configured."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.common.processes.host_name import own_host_name


@pytest.mark.parametrize(
    ("hosts", "name"),
    [
        ("127.0.0.1 localhost\n10.1.2.3\tctl-0.ctl.ns.svc.cluster.local\tctl-0\n", "ctl-0.ctl.ns.svc.cluster.local"),
        ("127.0.1.1 ctl-0.example ctl-0 # of Debian\n", "ctl-0.example"),
        ("127.0.0.1 localhost ctl-0\n", "ctl-0"),
        ("127.0.0.1 localhost.localdomain ctl-0\n", "ctl-0"),
        ("# 10.1.2.3 ctl-0.x ctl-0\n", "ctl-0"),
        ("", "ctl-0"),
    ],
)
def test_it_has_the_domain_of_the_file_of_hosts(
    hosts: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "ctl-0")
    monkeypatch.delattr("socket.getfqdn")
    (tmp_path / "hosts").write_text(hosts)
    assert own_host_name(str(tmp_path / "hosts")) == name
    assert own_host_name(str(tmp_path / "none")) == "ctl-0"
