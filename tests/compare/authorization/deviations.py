"""The answers in which Barnabas deviates from Apache Kafka, and the reasons.

DescribeCluster of the controller: Barnabas answers a node too (CLUSTER_ACTION), since a broker with empty directories
asks for the cluster's id.

AlterShareGroupOffsets: Apache Kafka shows the id of a topic to a user who may not read it. Barnabas does not.
"""

from __future__ import annotations

import copy
from typing import Any

_ONLY_AS_NODE = {
    "all but CLUSTER ALTER",
    "only CLUSTER CLUSTER_ACTION",
    "of the needed CLUSTER CLUSTER_ACTION",
    "of the needed CLUSTER DESCRIBE, CLUSTER CLUSTER_ACTION",
}


def is_deliberate(question: str, user: str) -> bool:
    """Return whether Barnabas answers a user in another way than Apache Kafka."""
    return question.startswith("DescribeCluster of the controller") and user in _ONLY_AS_NODE


def expected(question: str, answer: Any) -> Any:
    """Return our answer for an answer of Apache Kafka."""
    if not question.startswith("AlterShareGroupOffsets"):
        return answer
    ours = copy.deepcopy(answer)
    for topic in ours["responses"]:
        if {"error_code": "TOPIC_AUTHORIZATION_FAILED"} in topic["partitions"]:
            topic["topic_id"] = "no id"
    return ours
