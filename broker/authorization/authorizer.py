"""The authorizer of a process: decides by ACLs. Its accesses count and log what they ask (`audit.py`).

`authorizer.class.name` configures it; without that there is none, and nothing is checked but the listener (rule 6 of
the dispatcher).

Rules
1. `admit` gives a request its `Access` and asks the rows of THE table that concern it as a whole. The API asks the
   others.
2. An API without a row, and not in `NO_RIGHTS`, is refused to everybody but super users.
3. Until the ACLs have arrived, the connections of others than super users are closed, as if the process were not up
   yet. The controller's pushes pass all the same, since they bring the ACLs; the push gate checks who sent them.
4. A right to be a node that nobody gave is none: on a listener for clients, `allow.everyone.if.no.acl.found` opens no
   API that only nodes may call.

Threads: any handler asks; the thread that brings ACLs replaces the rules.
Source: StandardAuthorizer, StandardAuthorizerData.logAuditMessage, AuthHelper (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.broker.authorization.access import Access
from barnabas.broker.authorization.audit import Audit, log
from barnabas.broker.authorization.row import Answer
from barnabas.broker.authorization.table import BROKER_RIGHTS, CONTROLLER_RIGHTS, FORWARDED, NO_RIGHTS
from barnabas.broker.requests.answers import Close
from barnabas.metrics.meters import Sensor
from barnabas.metrics.table import catalogue
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.security.acls.index import AclIndex
from barnabas.security.acls.rules import AclRules, parse_super_users

if TYPE_CHECKING:
    from barnabas.broker.authorization.table import Rights
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.request import Request
    from barnabas.config.config import Config
    from barnabas.metrics.registry import Registry
    from barnabas.metrics.table.row import Metric
    from barnabas.security.values import AclBinding

#: What a process may be asked before it has any ACL (rule 3).
_BEFORE_ACLS: Final = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.API_VERSIONS}
)
_PER_MINUTE: Final = 60.0


class Authorizer:
    """See the module."""

    def __init__(self, rules: AclRules, rights: Rights, unchecked: frozenset[int]) -> None:
        self.rules = rules  # replaced whole by `take`
        # Grows after each change of `rules`, and is read before them: an answer that is kept for a generation was given
        # by its rules, or by newer ones.
        self.generation = 0
        self._acls: Mapping[bytes, AclBinding] | None = None  # what `rules` were made of
        self._rows = {  # fixed before start; the rows that `admit` asks
            key: tuple(row for row in rows if row.asks is not None) for key, rows in rights.items()
        }
        self._unchecked = unchecked  # fixed before start
        self.audit = Audit()

    def register(self, registry: Registry, role: str) -> None:
        """Show the metrics of Kafka's StandardAuthorizer."""
        labels = {"config": "authorizer.class.name", "class": "StandardAuthorizer", "role": role}

        def show(row: Metric, count: Callable[[], int]) -> None:
            sensor = Sensor(registry.now_s(), count)
            registry.gauge(row, lambda: sensor.snapshot(registry.now_s())[1] * _PER_MINUTE, **labels)

        audit = self.audit
        show(catalogue.AUTHORIZATIONS_ALLOWED, lambda: audit.allowed.count)
        show(catalogue.AUTHORIZATIONS_DENIED, lambda: audit.denied.count)
        show(catalogue.AUTHORIZATIONS, lambda: audit.allowed.count + audit.denied.count)
        registry.gauge(catalogue.ACLS, lambda: len(self.rules.acls or ()), **labels)

    def take(self, acls: Mapping[bytes, AclBinding]) -> None:
        """Decide by these ACLs from now on; one thread at a time. The mapping must not change."""
        if acls is self._acls:
            return
        index = self.rules.acls
        if index is None:
            index = AclIndex(acls.values())
        else:
            gone = [acl.id for acl in index if acl.id not in acls]
            index = index.updated(gone, [acl for acl in acls.values() if index.get(acl.id) != acl])
        self.rules = self.rules.with_acls(index)
        self.generation += 1
        self._acls = acls  # Why last: what failed on the way is done when the push comes again

    def admit(self, api: Api, request: Request) -> Close | None:
        """Ask for the rights that the whole request needs (rules 1 to 3); None admits it. Raises ApiError."""
        generation = self.generation
        context, rules, connection = request.context, self.rules, request.connection
        access = None if connection is None else connection.access
        if access is not None and access.generation == generation and access.principal == context.principal:
            access.begin(api.name)
        else:
            access = Access(self, self.audit, rules, context.principal, context.client_address, api.name, generation)
            if connection is not None:
                connection.access = access
        request.access = access
        if rules.acls is None and not access.is_super_user:
            return None if api.key in _BEFORE_ACLS else Close("the ACLs have not arrived yet")
        rows = self._rows.get(api.key)
        if rows is None:
            if api.key not in self._unchecked and not access.is_super_user:
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return None
        for row in rows:
            name = None if row.asks is None else row.asks(request)
            if name is None:
                continue
            is_allowed = access.allows_any(row) if row.is_any else access.allows(row, name)
            if is_allowed and row.answer is Answer.NEXT:
                break
            if not is_allowed and row.answer is Answer.REQUEST:
                raise ApiError(row.error)
        return None

    def renewed(self, access: Access) -> Access:
        """Return an access by the present rules: the same one if they have not changed."""
        generation = self.generation
        rules = self.rules
        if rules is access.rules:
            return access
        return Access(self, self.audit, rules, access.principal, access.host, access.api_name, generation)


def make_authorizer(config: Config, registry: Registry, *, is_controller: bool = False) -> Authorizer | None:
    """Return the authorizer of a process, None if none is configured."""
    if not config.authorizer_class_name:
        return None
    super_users = parse_super_users(config.super_users)
    rules = AclRules(None, super_users, allows_by_default=config.allow_everyone_if_no_acl_found)
    if is_controller:
        made = Authorizer(rules, CONTROLLER_RIGHTS, frozenset(NO_RIGHTS))
    else:
        made = Authorizer(rules, BROKER_RIGHTS, FORWARDED.union(NO_RIGHTS))
    made.register(registry, "controller" if is_controller else "broker")
    default = "ALLOWED" if config.allow_everyone_if_no_acl_found else "DENIED"
    log.info("set super.users=%s, default result=%s", ",".join(sorted(super_users)), default)
    return made
