"""The answers in which Barnabas deviates from Apache Kafka, and the reasons.

DescribeCluster of the controller: Barnabas answers a node too (CLUSTER_ACTION), since a broker with empty directories
asks for the cluster's id.

DescribeConfigs: Apache Kafka tells the defaults of client metrics that nobody configured. Barnabas tells what is set.
"""

from __future__ import annotations

from tests.compare.authorization.summary import Summary
from tests.compare.authorization.world import CLIENT_METRICS

_ONLY_AS_NODE = {
    "all but CLUSTER ALTER",
    "only CLUSTER CLUSTER_ACTION",
    "of the needed CLUSTER CLUSTER_ACTION",
    "of the needed CLUSTER DESCRIBE, CLUSTER CLUSTER_ACTION",
}


def is_deliberate(question: str, user: str) -> bool:
    """Return whether Barnabas answers a user in another way than Apache Kafka."""
    return question.startswith("DescribeCluster of the controller") and user in _ONLY_AS_NODE


def apply(question: str, answer: Summary) -> Summary:
    """Return Barnabas's expected answer for this answer of Apache Kafka."""
    if not question.startswith("DescribeConfigs"):
        return answer
    rows = [{**row, "configs": "none"} if row["resource_name"] == CLIENT_METRICS else row for row in answer["results"]]
    return {**answer, "results": rows}
