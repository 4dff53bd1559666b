"""Config keys of brokers that are only set at run time, for one broker or for all.

Part of THE table (see `keys.py`): a row has its facts in the first line and its documentation in the second.
Source: Kafka 4.3.1, QuotaConfig.brokerQuotaConfigs.
"""

from __future__ import annotations

# fmt: off
from barnabas.config.table.notation import CLUSTER_WIDE, LONG, LONG_MAX, MEDIUM, Key
from barnabas.config.validators import at_least

DYNAMIC_ROWS: tuple[Key, ...] = (
    Key("follower.replication.throttled.rate", LONG, LONG_MAX, MEDIUM, at_least(0),
        "Bytes a second that this broker fetches of the replicas in follower.replication.throttled.replicas.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("leader.replication.throttled.rate", LONG, LONG_MAX, MEDIUM, at_least(0),
        "Bytes a second that this broker sends of the replicas in leader.replication.throttled.replicas.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, MEDIUM, at_least(0),
        "Bytes a second that this broker copies between its log directories.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
)
# fmt: on
