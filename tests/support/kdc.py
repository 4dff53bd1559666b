"""A Kerberos KDC (MIT's krb5kdc) in a directory of a test, on the loopback interface. Nothing outside of it changes.

A process uses it with `environment`, a JVM with `jvm_options`.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from barnabas.common.processes.ports import reserve_port
from tests.support.processes import end_process, tied_to_parent
from tests.support.programs import path_of
from tests.support.waiting import START_TIMEOUT_MS, eventually

REALM = "BARNABAS.TEST"
MASTER_PASSWORD = "master"
#: By how much clocks may differ, and how long an ended ticket is still accepted.
SKEW_S = 1


class Kdc:
    """See the module."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._port, self._reserved = reserve_port()
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "krb5.conf").write_text(self._krb5_conf())
        (directory / "kdc.conf").write_text(self._kdc_conf())

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead libkrb5 here, and keep its files here."""
        return {
            "KRB5_CONFIG": str(self.directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.directory / 'no-ticket'}",
            "KRB5RCACHEDIR": str(self.directory),
        }

    @property
    def jvm_options(self) -> tuple[str, ...]:
        """Options that lead a JVM here."""
        return (f"-Djava.security.krb5.conf={self.directory / 'krb5.conf'}",)

    def __enter__(self) -> Kdc:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", MASTER_PASSWORD)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._reserved.close()

    def start(self) -> None:
        """Run the KDC until it answers."""
        with (self.directory / "krb5kdc.out").open("ab") as log:
            command = [path_of("krb5kdc") or "krb5kdc", "-n", "-r", REALM]
            self._process = subprocess.Popen(
                tied_to_parent(command), stdout=log, stderr=log, env={**os.environ, **self.environment}
            )
        eventually("the KDC answers", self._answers, START_TIMEOUT_MS)

    def stop(self) -> None:
        """End the KDC; tickets cannot be had until it starts again."""
        if self._process is not None:
            end_process(self._process)
            self._process = None

    def keytab(self, name: str, *principals: str, life: str = "1 hour") -> Path:
        """Create principals of the realm that do not exist yet, and write new keys of all of them to a file."""
        path = self.directory / f"{name}.keytab"
        for principal in principals:
            self._admin(f'add_principal -randkey -maxlife "{life}" {principal}')
            self._admin(f"ktadd -k {path} {principal}")
        return path

    def new_key(self, principal: str) -> None:
        """Change the key of a principal, so that keytabs have an old one."""
        self._admin(f"change_password -randkey {principal}")

    def ticket(self, name: str, principal: str, keytab: Path, life: str = "1h") -> Path:
        """Get a ticket as kinit does, into a file."""
        path = self.directory / f"{name}.ccache"
        self._run("kinit", "-c", f"FILE:{path}", "-l", life, "-k", "-t", str(keytab), principal)
        return path

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "krb5kdc.out").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", REALM, "-q", query)

    def _run(self, program: str, *arguments: str) -> None:
        command = [path_of(program) or program, *arguments]
        environment = {**os.environ, **self.environment}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"

    def _krb5_conf(self) -> str:
        return f"""[libdefaults]
    default_realm = {REALM}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    clockskew = {SKEW_S}
    default_keytab_name = FILE:{self.directory}/no-keytab
    default_client_keytab_name = FILE:{self.directory}/no-keytab
[realms]
    {REALM} = {{
        kdc = 127.0.0.1:{self._port}
    }}
[domain_realm]
    localhost = {REALM}
[logging]
    kdc = FILE:{self.directory}/krb5kdc.log
    default = FILE:{self.directory}/krb5.log
"""

    def _kdc_conf(self) -> str:
        return f"""[kdcdefaults]
    kdc_listen = ""
    kdc_tcp_listen = 127.0.0.1:{self._port}
[realms]
    {REALM} = {{
        database_name = {self.directory}/principal
        key_stash_file = {self.directory}/stash
        acl_file = {self.directory}/kadm5.acl
        supported_enctypes = aes256-cts-hmac-sha1-96:normal
        max_life = 1h
    }}
"""
