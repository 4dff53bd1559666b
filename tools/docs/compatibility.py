"""`python -m tools.docs.compatibility`: writes the tables of `docs/compatibility.md` from those of the code.

Each table stands between two comments, `<!-- NAME: generated -->` and `<!-- end -->`. The other text of the page stays
as it is. A test compares the page with the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.broker.apis.table import TABLE as BROKER_APIS
from barnabas.broker.requests.api import Table, nodes_only, stable_versions
from barnabas.config.effect import PROTECTIVE, reason_without_effect
from barnabas.config.table.keys import OWN_KEYS
from barnabas.config.table.keys import TABLE as KEYS
from barnabas.controller.apis.table import TABLE as CONTROLLER_APIS
from barnabas.protocol.api_keys import ROWS, ApiKey
from tools.docs.kafka_scripts import SCRIPTS
from tools.docs.markdown import cell, code_cell, table
from tools.docs.stage import ROOT

PAGE: Final = ROOT / "docs" / "compatibility.md"
WORKS: Final = "works"


class Protocol(NamedTuple):
    """A protocol between clients and coordinators, or the format of an internal topic.

    `api`: one of the APIs that carry it. `why_not`: why it never works here; empty for one that works.
    """

    name: str
    api: ApiKey
    note: str = ""
    why_not: str = ""


PROTOCOLS: Final = (
    Protocol("classic groups, `consumer`", ApiKey.JOIN_GROUP, "assignors of the clients, static members"),
    Protocol("classic groups, `connect`", ApiKey.SYNC_GROUP, "workers of Kafka Connect"),
    Protocol("classic groups of any other type", ApiKey.JOIN_GROUP, "the broker never looks into their metadata"),
    Protocol("consumer groups (KIP-848)", ApiKey.CONSUMER_GROUP_HEARTBEAT, "migration in both directions"),
    Protocol("share groups (KIP-932)", ApiKey.SHARE_GROUP_HEARTBEAT),
    Protocol("streams groups (KIP-1071)", ApiKey.STREAMS_GROUP_HEARTBEAT),
    Protocol("idempotent producers (KIP-98)", ApiKey.INIT_PRODUCER_ID),
    Protocol("transactions, first version (KIP-98)", ApiKey.ADD_PARTITIONS_TO_TXN),
    Protocol("transactions, second version (KIP-890)", ApiKey.END_TXN),
    Protocol("`__consumer_offsets`", ApiKey.OFFSET_COMMIT, "Kafka's records"),
    Protocol("`__transaction_state`", ApiKey.END_TXN, "Kafka's records"),
    Protocol("`__share_group_state`", ApiKey.WRITE_SHARE_GROUP_STATE, "Kafka's records"),
    Protocol("`__cluster_metadata`", ApiKey.FETCH, "Kafka's records and snapshots"),
    Protocol("`__remote_log_metadata`", ApiKey.FETCH, why_not="there is no tiered storage"),
)


def apis() -> str:
    """Return the table of every API of Kafka's."""
    rows = [
        (str(int(key)), row.name, _versions(BROKER_APIS, key), _versions(CONTROLLER_APIS, key), cell(_api_note(key)))
        for key, row in ROWS.items()
    ]
    return table(("key", "API", "brokers", "controllers", ""), rows)


def _versions(apis_of: Table, key: int) -> str:
    api = apis_of.get(key)
    if api is None:
        return "-"
    low, high = stable_versions(apis_of)[key].versions
    return f"{low}" if low == high else f"{low}-{high}"


def _api_note(key: int) -> str:
    if key == ApiKey.CONTROLLED_SHUTDOWN:
        return "Kafka 4.0 removed it; brokers ask with their heartbeats"
    if key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA):
        return "Kafka 4.0 removed it; here controllers push metadata with it, and no client may send it"
    if key == ApiKey.INIT_PRODUCER_ID:
        return "also v6 (two-phase commit) with unstable.api.versions.enable=true, as in Kafka"
    served = [api for table_of in (BROKER_APIS, CONTROLLER_APIS) if (api := table_of.get(key)) is not None]
    return "for nodes only" if all(api.nodes_only is nodes_only for api in served) else ""


def protocols() -> str:
    """Return the table of protocols of groups and transactions, and of internal topics."""
    rows = [(row.name, _protocol_state(row), row.note) for row in PROTOCOLS]
    return table(("protocol or topic", "", ""), rows)


def _protocol_state(row: Protocol) -> str:
    return row.why_not or WORKS


def scripts() -> str:
    """Return the table of the scripts in Kafka's `bin/`."""
    rows = [(code_cell(script.name), cell(script.does), cell(script.why_not) or WORKS) for script in SCRIPTS]
    return table(("script", "for", ""), rows)


def settings() -> str:
    """Return how many of Kafka's settings have an effect, and the others by reason."""
    kafka = [key for key in KEYS if key.name not in OWN_KEYS]
    reasons: dict[str, list[str]] = {}
    for key in kafka:
        if not key.honoured:
            reasons.setdefault(reason_without_effect(key), []).append(key.name)
    protective = {missing.reason for missing in PROTECTIVE}
    rows = [
        (cell(reason), "refused" if reason in protective else "a warning", ", ".join(map(code_cell, sorted(names))))
        for reason, names in sorted(reasons.items())
    ]
    honoured = sum(key.honoured for key in kafka)
    text = (
        f"{honoured} of Kafka's {len(kafka)} keys of brokers, topics and groups have Kafka's effect. These have none:"
    )
    return f"{text}\n\n{table(('why', 'who sets it gets', 'keys'), rows)}"


#: The generated parts of the page, by name.
SECTIONS: Final[dict[str, Callable[[], str]]] = {
    "apis": apis,
    "protocols": protocols,
    "scripts": scripts,
    "settings": settings,
}


def updated(page: str) -> str:
    """Return the page with its generated parts as the tables have them now. Raises ValueError if one is missing."""
    for name, section in SECTIONS.items():
        pattern = re.compile(f"(<!-- {name}: generated -->\n).*?(\n<!-- end -->)", re.DOTALL)
        found = pattern.findall(page)
        if len(found) != 1:
            raise ValueError(f"{PAGE.name} has {len(found)} parts named {name}, not 1")
        ((begin, end),) = found
        text = f"{begin}\n{section().rstrip()}\n{end}"
        page = pattern.sub(lambda _, text=text: text, page)  # type: ignore[misc]
    return page


def main() -> None:
    """Write the page."""
    PAGE.write_text(updated(PAGE.read_text()))
    print(f"{PAGE} is up to date")


if __name__ == "__main__":
    main()
