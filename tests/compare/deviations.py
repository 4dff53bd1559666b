"""The responses in which Barnabas deviates from Apache Kafka, and the reasons.

Apache Kafka lists the APIs of client telemetry only with a plugin that takes what clients push. Barnabas takes it.

Apache Kafka 4.3.1 has no branch for some invalid inputs. An unexpected exception becomes UNKNOWN_SERVER_ERROR, which
clients retry. Barnabas returns a specific error.

A member of a streams group that reports other tasks than it should have is told its tasks again, since an answer may
have been lost. Apache Kafka names them once.
"""

from __future__ import annotations

import json

from tests.compare.conversation import AnswersByVersion

# API key -> versions that we serve, and Apache Kafka only with a plugin.
ADVERTISED = {"71": "0-0", "72": "0-0"}
# Question -> our error where Apache Kafka returns UNKNOWN_SERVER_ERROR.
INSTEAD_OF_UNKNOWN_SERVER_ERROR = {
    "IncrementalAlterConfigs with an unknown operation": "INVALID_REQUEST",
    "Produce compression 7": "UNSUPPORTED_COMPRESSION_TYPE",
    "Produce a varint without an end in NONE": "INVALID_RECORD",
    "Produce gzip that is none": "INVALID_RECORD",
    "Produce zstd that is none": "INVALID_RECORD",
}
# Question -> step -> fields of our answer.
TOLD_AGAIN = {
    "Streams group: several members": {
        "5. the first one has not revoked it": {
            "active_tasks": [{"subtopology_id": "0", "partitions": [0]}], "standby_tasks": [], "warmup_tasks": [],
        },
    },
}  # fmt: skip


def apply(question: str, answers: AnswersByVersion) -> AnswersByVersion:
    """Return Barnabas's expected responses for these responses of Apache Kafka."""
    ours = INSTEAD_OF_UNKNOWN_SERVER_ERROR.get(question, "UNKNOWN_SERVER_ERROR")
    changed: AnswersByVersion = json.loads(json.dumps(answers).replace("UNKNOWN_SERVER_ERROR", ours))
    for step, fields in TOLD_AGAIN.get(question, {}).items():
        changed[step] |= fields
    return changed
