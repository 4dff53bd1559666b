"""The answers in which Barnabas deviates from Apache Kafka, and the reasons. None of them is about a right.

DescribeConfigs: Apache Kafka tells the defaults of client metrics that nobody configured. Barnabas tells what is set.
"""

from __future__ import annotations

from tests.compare.authorization.summary import Summary
from tests.compare.authorization.world import CLIENT_METRICS


def apply(question: str, answer: Summary) -> Summary:
    """Return Barnabas's expected answer for this answer of Apache Kafka."""
    if not question.startswith("DescribeConfigs"):
        return answer
    rows = [{**row, "configs": "none"} if row["resource_name"] == CLIENT_METRICS else row for row in answer["results"]]
    return {**answer, "results": rows}
