"""How the parties of a run connect to its cluster: in the clear, or each as a user of its own with few rights.

A secured cluster is as `barnabas up --security` makes it: every connection is authenticated (and encrypted, but for
sasl_plaintext), and users need ACLs. The user `admin` may do everything.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from barnabas.cli.security.acl_requests import create_request
from barnabas.cli.security.acl_words import parse_acl_line
from barnabas.client.client_properties import ClientProperties
from barnabas.client.connection import Connect, NodeConnection
from barnabas.client.security import ClientSecurity
from barnabas.cluster.node import Node
from barnabas.cluster.security import client_settings
from barnabas.cluster.security.cluster_security import ADMIN, ClusterSecurity
from barnabas.common.clock import SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k29_describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.security.values import AclOperation, PatternType, PermissionType, ResourceType
from tests.support.waiting import eventually

PLAINTEXT = "plaintext"
SECURITY = (PLAINTEXT, "ssl", "sasl_plaintext", "sasl_ssl")
ACL_VERSION = 3
CONNECTION_TIMEOUT_MS = 5_000

Rule = tuple[Any, ...]  # AclBinding.rule, with plain numbers


def add_security_option(parser: argparse.ArgumentParser) -> None:
    """Add --security to the command line of a run."""
    parser.add_argument(
        "--security", choices=SECURITY, default=PLAINTEXT, help="secure every connection, as `barnabas up --security`"
    )


def security_of(directory: Path, protocol: str, users: Iterable[str]) -> ClusterSecurity | None:
    """The security of a cluster in a directory, with these users besides admin; None for plaintext."""
    if protocol == PLAINTEXT:
        return None
    passwords = {user: f"{user}'s secret" for user in users}
    return ClusterSecurity(directory, protocol.upper(), passwords, SystemClock().wall_ms())


class Access:
    """Connections of users. Without security the users' names do not matter.

    Any thread may use it; a ClientSecurity that two threads make at once is made twice.
    """

    def __init__(self, directory: Path, bootstrap: str, security: ClusterSecurity | None = None) -> None:
        self.bootstrap = bootstrap
        self.security = security
        self._directory = directory
        self._clients: dict[str, ClientSecurity | None] = {}

    def librdkafka(self, user: str = ADMIN) -> dict[str, Any]:
        """Settings with which a client of librdkafka connects."""
        if self.security is None:
            return {"bootstrap.servers": self.bootstrap}
        return dict(client_settings.librdkafka(self.security.login(user), self.bootstrap))

    def java(self, user: str = ADMIN) -> dict[str, str]:
        """Settings with which a Java client connects."""
        if self.security is None:
            return {"bootstrap.servers": self.bootstrap}
        return client_settings.java(self.security.login(user), self.bootstrap)

    def java_file(self, user: str = ADMIN) -> Path:
        """The same as a properties file."""
        if self.security is not None:
            return self.security.settings_file(user)
        path = self._directory / "client.properties"
        path.write_text(client_settings.properties_text(self.java()))
        return path

    def connect(self, user: str = ADMIN) -> Connect:
        """What makes our own connections to listeners for clients."""
        if user not in self._clients:
            login = None if self.security is None else self.security.login(user)
            self._clients[user] = None if login is None else secured(client_settings.java(login))
        return partial(NodeConnection, security=self._clients[user])

    def allow(self, nodes: Iterable[Node], *lines: str) -> None:
        """Add ACLs (arguments of `barnabas acl add`); return when every broker has them."""
        if self.security is None:
            return
        brokers, wanted = list(nodes), set(rules(*lines))
        with self._to(brokers[0]) as connection:
            assert create_acls(connection, *lines)
        for node in brokers:
            eventually(f"{node.name} has the ACLs", lambda node=node: wanted <= self.acls(node))  # type: ignore[misc]

    def acls(self, node: Node) -> set[Rule]:
        """The ACLs according to a broker; raises OSError."""
        request = DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=PermissionType.ANY,
        )
        with self._to(node) as connection:
            response = connection.send(request, ACL_VERSION)
        assert response.error_code == 0, response.error_message
        return {
            (
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in response.resources
            for acl in resource.acls
        }

    def _to(self, node: Node) -> NodeConnection:
        return self.connect()(node.host, node.port, timeout_ms=CONNECTION_TIMEOUT_MS)


def rules(*lines: str) -> list[Rule]:
    """The ACLs of some lines with the arguments of `barnabas acl add`."""
    return [acl.rule for line in lines for acl in parse_acl_line(line)]


def create_acls(connection: NodeConnection, *lines: str) -> bool:
    """Add ACLs; return False if the controller does not answer."""
    acls = [acl for line in lines for acl in parse_acl_line(line)]
    return _is_done(connection.send(create_request(acls), ACL_VERSION).results)


def delete_acl(connection: NodeConnection, rule: Rule) -> bool:
    """Delete an ACL, if it is there; return False if the controller does not answer."""
    kind, name, pattern, principal, host, operation, permission = rule
    wanted = DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission,
    )
    return _is_done(connection.send(DeleteAclsRequest(filters=[wanted]), ACL_VERSION).filter_results)


def _is_done(results: Iterable[Any]) -> bool:
    codes = {result.error_code for result in results}
    assert codes <= {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}, codes
    return codes == {ErrorCode.NONE}


def secured(java: Mapping[str, str]) -> ClientSecurity | None:
    """How our own connections are protected, by settings of a Java client."""
    return ClientProperties(java, SystemClock()).security()
