"""Access: what the client of one request may do. The dispatcher gives it to the request; None means no authorizer.

A connection's requests share one while the rules and the principal stay. Nearly every request asks for the right of the
one before it, so the last decision is kept.

Threads: the one that holds the request; a connection has one request in progress at a time. The rules of its beginning
hold for the whole request, but for one that waited and reads afterwards: it asks `renewed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.broker.authorization.audit import Audit
from barnabas.protocol.errors import ApiError
from barnabas.security.acls.rules import CACHED_NAME_MAX, Reason
from barnabas.security.values import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from barnabas.broker.authorization.row import Row
    from barnabas.broker.requests.answers import Close
    from barnabas.security.acls.rules import AclRules, Decision

#: The operations that apply to a resource type (KIP-430).
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip


class Judge(Protocol):
    """Decides about a whole request (`Authorizer`, which imports this module)."""

    def admit(self, api: Any, request: Any) -> Close | None:
        """Give a request its access; None admits it. Raises ApiError."""

    def renewed(self, access: Access) -> Access:
        """Return an access by the present rules: the same one if they have not changed."""


class Access:
    """See the module."""

    __slots__ = (
        "_audit",
        "_decision",
        "_name",
        "_row",
        "api_name",
        "authorizer",
        "generation",
        "host",
        "lines",
        "principal",
        "rules",
    )

    def __init__(
        self,
        authorizer: Judge,
        audit: Audit,
        rules: AclRules,
        principal: str,
        host: str,
        api_name: str,
        generation: int,
    ) -> None:
        self.authorizer = authorizer
        self._audit = audit
        self.rules = rules
        self.principal = principal
        self.host = host
        self.api_name = api_name
        self.generation = generation  # of the rules, for answers that are kept
        self.lines = 0  # of the log, about this request
        self._row: Row | None = None  # what was decided last
        self._name = ""
        self._decision: Decision | None = None

    def begin(self, api_name: str) -> None:
        """Serve the next request of the connection."""
        self.api_name = api_name
        self.lines = 0

    @property
    def is_super_user(self) -> bool:
        """Whether the client may do everything."""
        return self.principal in self.rules.super_users

    @property
    def reason_to_be_a_node(self) -> Reason:
        """Why the client may, or may not, do what only nodes do."""
        return self._decision_to_be_a_node.reason

    @property
    def is_node(self) -> bool:
        """Whether the client may do what only nodes do."""
        return self._decision_to_be_a_node.is_allowed

    @property
    def _decision_to_be_a_node(self) -> Decision:
        return self.rules.decide(
            self.principal, self.host, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )

    def allows(self, row: Row, name: str = CLUSTER_NAME, count: int = 1) -> bool:
        """Return whether the client has a right on a resource, which the request names `count` times."""
        decision = self._decision
        if decision is None or row is not self._row or name != self._name:
            decision = self.rules.decide(self.principal, self.host, row.operation, row.resource, name)
            if len(name) <= CACHED_NAME_MAX:
                self._row, self._name, self._decision = row, name, decision
        audit = self._audit
        if decision.is_allowed:
            audit.allowed.inc()
            if audit.logs_allowed:
                audit.log(decision, row, name, count, self)
            return True
        audit.denied.inc()
        if row.is_logged:
            audit.log(decision, row, name, count, self)
        return False

    def has(self, row: Row, name: str) -> bool:
        """Return the same as `allows`, for a question that is asked again where it matters: not counted, not logged."""
        return self.rules.decide(self.principal, self.host, row.operation, row.resource, name).is_allowed

    def allows_any(self, row: Row) -> bool:
        """Return whether the client has a right on at least one resource of the row's type."""
        return self.rules.decide_by_type(self.principal, self.host, row.operation, row.resource).is_allowed

    def renewed(self) -> Access:
        """Return the access of the same client by the present rules; this one if they are the same."""
        return self.authorizer.renewed(self)

    def require(self, row: Row, name: str = CLUSTER_NAME) -> None:
        """Raise ApiError with the row's error if the right is missing."""
        if not self.allows(row, name):
            raise ApiError(row.error)

    def allowed(self, row: Row, names: Iterable[str]) -> set[str]:
        """Return the names on which the client has a right; each is decided, and logged, once."""
        counts: dict[str, int] = {}  # Why not a Counter: making one takes longer than to ask
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        return {name for name, count in counts.items() if self.allows(row, name, count)}

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may do on a resource, as a bit set (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource]
            if self.rules.decide(self.principal, self.host, operation, resource, name).is_allowed
        )
